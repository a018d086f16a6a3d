//! The allocators in the bytes of an ELF file, and where their functions are.

mod symbols;
mod wrappers;

use std::collections::BTreeMap;

use memprof_common::function::{FunctionKind, Nesting};
use object::elf::EM_X86_64;
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSegment};
use thiserror::Error;

use self::symbols::FunctionSymbols;
pub use self::symbols::SymbolCounts;
use super::allocators::{ALLOCATORS, OTHER};
use super::functions::Allocator;
use crate::address::Svma;

/// Why a file could not be examined.
#[derive(Debug, Error)]
pub enum ExamineError {
    /// The bytes are no 64-bit ELF file.
    #[error("cannot read the file as a 64-bit ELF file: {0}")]
    Parse(#[from] object::Error),
    /// The file is for another processor.
    #[error("the file holds code for ELF machine {0}, only x86-64 (62) can be probed")]
    Machine(u16),
    /// A symbol's address lies in no part of the file.
    #[error("`{symbol}` at {svma:#x} lies outside of the file's {segments} loadable segments")]
    Unmapped {
        /// The symbol.
        symbol: String,
        /// Its address.
        svma: Svma,
        /// Number of segments that were searched.
        segments: usize,
    },
}

/// A function to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorFunction {
    /// Its calling convention.
    pub kind: FunctionKind,
    /// Whether it may call another one that is probed.
    pub nesting: Nesting,
    /// Its name; the first one in the allocator's table when it has several.
    pub symbol: String,
    /// Its address as linked.
    pub svma: Svma,
    /// Its length in bytes as the symbol table says, 0 when it does not.
    pub size: u64,
    /// Its offset in the file, which is how the kernel names a probe's place.
    pub file_offset: u64,
    /// Its code, `size` bytes unless the file is shorter.
    pub code: Vec<u8>,
}

/// An allocator in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// Its table.
    pub allocator: &'static Allocator,
    /// What this build has put before the names of its functions.
    pub prefix: String,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// The allocators: none, one, or several (a program with jemalloc and a C library linked into it).
    pub allocators: Vec<Recognised>,
    /// The functions to probe, by ascending address.
    pub functions: Vec<AllocatorFunction>,
    /// What was looked at.
    pub symbols: SymbolCounts,
}

/// Finds the allocators in the file with these `bytes` and their functions. Several names at one address
/// give one function, several versions of a name at different addresses one each.
///
/// # Errors
/// When the file is no x86-64 ELF file or contradicts itself.
pub fn examine(bytes: &[u8]) -> Result<Examined, ExamineError> {
    let file = parse(bytes)?;
    let symbols = FunctionSymbols::read(&file);
    let mut found = BTreeMap::new();
    let mut vias = BTreeMap::new();
    let mut allocators = Vec::new();
    for recognised in recognise(&symbols) {
        let before = found.len();
        for spec in recognised.allocator.specs() {
            let is_prefixed = !recognised.prefix.is_empty();
            if is_prefixed && spec.symbol.starts_with("_Z") {
                continue;
            }
            let symbol = format!("{}{}", recognised.prefix, spec.symbol);
            for (svma, size) in symbols.of(&symbol) {
                if found.contains_key(&svma) {
                    continue;
                }
                let function = AllocatorFunction {
                    kind: spec.kind,
                    nesting: spec.nesting,
                    ..locate(&file, &symbol, svma, size)?
                };
                found.insert(svma, function);
                vias.extend(spec.via.map(|via| (svma, format!("{}{via}", recognised.prefix))));
            }
        }
        if found.len() > before {
            allocators.push(recognised);
        }
    }
    wrappers::resolve(&file, &symbols, &vias, &mut found);
    Ok(Examined { allocators, functions: found.into_values().collect(), symbols: symbols.counts })
}

/// The allocators whose markers the file defines.
fn recognise(symbols: &FunctionSymbols<'_>) -> Vec<Recognised> {
    let mut found = Vec::new();
    let has_all = |prefix: &str, set: &[&str]| {
        set.iter().all(|name| symbols.of(&format!("{prefix}{name}")).next().is_some())
    };
    for allocator in ALLOCATORS {
        if allocator.markers.iter().any(|set| has_all("", set)) {
            found.push(Recognised { allocator, prefix: String::new() });
        }
        let candidates = allocator.prefixed.iter().filter_map(|set| Some((set, set.last()?)));
        let mut prefixes: Vec<&str> = candidates
            .flat_map(|(set, last)| symbols.prefixes_of(last).filter(|prefix| has_all(prefix, set)))
            .filter(|prefix| !prefix.is_empty())
            .collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        found.extend(prefixes.into_iter().map(|prefix| Recognised { allocator, prefix: prefix.to_owned() }));
    }
    let names_malloc =
        found.iter().any(|r| r.prefix.is_empty() && r.allocator.specs().any(|s| s.symbol == "malloc"));
    let is_other = OTHER.markers.iter().any(|set| set.iter().all(|name| symbols.offers(name)));
    if is_other && !names_malloc {
        found.push(Recognised { allocator: &OTHER, prefix: String::new() });
    }
    found
}

fn parse(bytes: &[u8]) -> Result<ElfFile64<'_, Endianness>, ExamineError> {
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    match file.elf_header().e_machine(file.endian()) {
        EM_X86_64 => Ok(file),
        machine => Err(ExamineError::Machine(machine.0)),
    }
}

fn locate(
    file: &ElfFile64<'_, Endianness>,
    symbol: &str,
    svma: Svma,
    size: u64,
) -> Result<AllocatorFunction, ExamineError> {
    let (file_offset, code) = content(file, svma, size).ok_or_else(|| ExamineError::Unmapped {
        symbol: symbol.to_owned(),
        svma,
        segments: file.segments().count(),
    })?;
    Ok(AllocatorFunction {
        kind: FunctionKind::Free,
        nesting: Nesting::Leaf,
        symbol: symbol.to_owned(),
        svma,
        size,
        file_offset,
        code: code.to_vec(),
    })
}

/// File offset and bytes of `size` bytes at `svma`.
fn content<'data>(file: &ElfFile64<'data, Endianness>, svma: Svma, size: u64) -> Option<(u64, &'data [u8])> {
    file.segments().find_map(|segment| {
        let offset = svma.checked_sub(segment.address())?;
        let data = segment.data().ok()?;
        let rest = data.get(usize::try_from(offset).ok()?..).filter(|rest| !rest.is_empty())?;
        let length = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
        Some((segment.file_range().0 + offset, &rest[..length]))
    })
}

#[cfg(test)]
mod tests;
