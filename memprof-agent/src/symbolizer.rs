//! Names for code addresses, in one batch at snapshot time.
//!
//! A module's names are sought in this order: a separate debug file with its build id (this machine's, then
//! the target's root), the file itself with the debug information in it or linked from it, the file's
//! symbol tables alone. What is not inside of a symbol stays without a name: unknown beats wrong.

mod allocator_names;

use std::fmt::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized};
use memprof_core::probe::allocators::GLIBC;
use memprof_core::symbols::{SymbolKey, SymbolizedFrame};

use self::allocator_names::AllocatorNames;
use crate::host::module_file::{ModuleFile, ModuleFiles};

/// Names of code addresses: module index, looked-up address, frames innermost first. What
/// `memprof_core::input::Input::Symbols` carries.
pub(crate) type NamedAddresses = Vec<(u32, u64, Vec<SymbolizedFrame>)>;

/// Finds names. Keeps what it has parsed, so one instance should serve a whole snapshot and no more.
pub(crate) struct Symbolizer {
    backend: blazesym::symbolize::Symbolizer,
}

impl Symbolizer {
    /// A symbolizer that has read nothing yet.
    pub(crate) fn new() -> Self {
        Self { backend: blazesym::symbolize::Symbolizer::new() }
    }

    /// Names all of `keys` that have one, in order of module and address. Keys may be in any order.
    pub(crate) fn symbolize(&self, keys: &[SymbolKey], files: &ModuleFiles) -> NamedAddresses {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let mut named = Vec::new();
        for of_module in keys.chunk_by(|a, b| a.module == b.module) {
            let module = of_module[0].module;
            let lookups: Vec<u64> = of_module.iter().map(|key| key.lookup).collect();
            let frames =
                files.get(module).map_or_else(Vec::new, |file| self.symbolize_module(file, &lookups));
            named.extend(
                lookups
                    .into_iter()
                    .zip(frames)
                    .filter(|(_, frames)| !frames.is_empty())
                    .map(|(lookup, frames)| (module.0, lookup, frames)),
            );
        }
        named
    }

    /// Frames for each address of one module; none for those without a name.
    fn symbolize_module(&self, module: &ModuleFile, lookups: &[u64]) -> Vec<Vec<SymbolizedFrame>> {
        let mut named = vec![Vec::new(); lookups.len()];
        for source in sources(module) {
            let open: Vec<usize> = (0..lookups.len()).filter(|&i| named[i].is_empty()).collect();
            if open.is_empty() {
                break;
            }
            let addresses: Vec<u64> = open.iter().map(|&i| lookups[i]).collect();
            let path = source.path.clone();
            match self.backend.symbolize(&Source::Elf(source), Input::VirtOffset(&addresses)) {
                Ok(found) => {
                    for (i, symbol) in open.into_iter().zip(found) {
                        named[i] = frames(symbol);
                    }
                }
                Err(error) => log::debug!("no names from {}: {error:#}", path.display()),
            }
        }
        if let Some(file) = &module.file {
            let names = AllocatorNames::of(file);
            lookups.iter().zip(&mut named).for_each(|(&lookup, frames)| names.apply(lookup, frames));
        }
        named
    }
}

/// Where a module's names may be, best first.
fn sources(module: &ModuleFile) -> Vec<Elf> {
    let mut sources: Vec<Elf> = debug_file(module).map(Elf::new).into_iter().collect();
    if let Some(file) = &module.file {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if sources.is_empty() {
            sources.push(Elf::new(&path));
        }
        let mut symbols_only = Elf::new(&path);
        symbols_only.debug_syms = false;
        sources.push(symbols_only);
    }
    sources
}

/// The separate debug file with the module's build id.
///
/// It is sought here and not left to the library, which follows the file descriptor to a path: the path
/// that a container sees may be another file on this machine.
fn debug_file(module: &ModuleFile) -> Option<PathBuf> {
    let (first, rest) = module.build_id.split_first()?;
    let mut name = format!("usr/lib/debug/.build-id/{first:02x}/");
    for byte in rest {
        write!(name, "{byte:02x}").expect("writing to a string");
    }
    name.push_str(".debug");
    let roots = [PathBuf::from("/"), PathBuf::from(format!("/proc/{}/root", module.pid))];
    roots.iter().map(|root| root.join(&name)).find(|path| has_build_id(path, &module.build_id))
}

/// Whether `path` is a regular file (opening another kind could block) with this build id.
fn has_build_id(path: &Path, build_id: &[u8]) -> bool {
    path.is_file() && read_elf_build_id(path).ok().flatten().is_some_and(|found| found.as_ref() == build_id)
}

/// A symbol and what was inlined into it, innermost first.
fn frames(symbolized: Symbolized<'_>) -> Vec<SymbolizedFrame> {
    let Symbolized::Sym(symbol) = symbolized else { return Vec::new() };
    if is_guess(&symbol) {
        return Vec::new();
    }
    let inlined =
        symbol.inlined.iter().rev().map(|inlined| frame(&inlined.name, inlined.code_info.as_ref(), true));
    inlined.chain([frame(&symbol.name, symbol.code_info.as_deref(), false)]).collect()
}

/// Whether the symbol has no length, so that the address may well lie behind it.
fn is_guess(symbol: &Sym<'_>) -> bool {
    symbol.size.is_none() && symbol.code_info.is_none() && symbol.offset > 0
}

fn frame(name: &str, code: Option<&CodeInfo<'_>>, inlined: bool) -> SymbolizedFrame {
    SymbolizedFrame {
        function: plain_name(name).to_owned(),
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line),
        inlined,
    }
}

/// The name by which a program calls a function, where the symbol tables also have others: with a version
/// (`malloc@@GLIBC_2.2.5`), and glibc's own aliases (`__GI___libc_malloc`). Which of them is found depends
/// on what debug files are installed; the name shown should not.
fn plain_name(name: &str) -> &str {
    let is_version =
        |version: &str| version.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.@".contains(&b));
    let name = match name.split_once('@') {
        Some((plain, version)) if !plain.is_empty() && is_version(version) => plain,
        _ => name,
    };
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let function = ["__libc_", "__"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    if GLIBC.specs().any(|known| known.symbol == function) { function } else { name }
}

#[cfg(test)]
mod tests;
