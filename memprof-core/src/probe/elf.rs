//! An allocator's functions in the bytes of its ELF file.

use std::collections::{BTreeMap, BTreeSet};

use memprof_common::function::FunctionKind;
use object::elf::{EM_X86_64, STT_FUNC};
use object::read::elf::{ElfFile64, ElfSymbol64, FileHeader};
use object::{Endianness, Object, ObjectSegment, ObjectSymbol};
use thiserror::Error;

use super::functions::{ALLOCATORS, Allocator};
use crate::address::Svma;

/// Why an allocator's functions could not be found.
#[derive(Debug, Error)]
pub enum FindError {
    /// The bytes are no 64-bit ELF file.
    #[error("cannot read the file as a 64-bit ELF file: {0}")]
    Parse(#[from] object::Error),
    /// The file is for another processor.
    #[error("the file holds code for ELF machine {0}, only x86-64 (62) can be probed")]
    Machine(u16),
    /// The file lacks a function without which it is not this allocator.
    #[error("the file is not {allocator}: no function `{missing}` among {looked_at}")]
    NotAllocator {
        /// Name of the allocator that was looked for.
        allocator: &'static str,
        /// The first function that was missed.
        missing: &'static str,
        /// What was searched.
        looked_at: String,
    },
    /// A symbol's address lies in no part of the file.
    #[error("`{symbol}` at {svma:#x} lies outside of the file's {segments} loadable segments")]
    Unmapped {
        /// The symbol.
        symbol: &'static str,
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
    /// Its name; the first one in the allocator's table when it has several.
    pub symbol: &'static str,
    /// Its address as linked.
    pub svma: Svma,
    /// Its length in bytes as the symbol table says, 0 when it does not.
    pub size: u64,
    /// Its offset in the file, which is how the kernel names a probe's place.
    pub file_offset: u64,
    /// Its code, `size` bytes unless the file is shorter.
    pub code: Vec<u8>,
}

/// Finds the functions of `allocator` in the file with these `bytes`, by ascending address. Several
/// names at one address give one function, several versions of a name at different addresses one each.
///
/// # Errors
/// When the file is not an x86-64 ELF file, is not this allocator, or contradicts itself.
pub fn find_functions(bytes: &[u8], allocator: &Allocator) -> Result<Vec<AllocatorFunction>, FindError> {
    let file = parse(bytes)?;
    let symbols = FunctionSymbols::read(&file);
    let required = allocator.functions.iter().filter(|f| f.required).map(|f| f.symbol);
    if let Some(missing) =
        allocator.markers.iter().copied().chain(required).find(|name| !symbols.by_name.contains_key(name))
    {
        return Err(FindError::NotAllocator {
            allocator: allocator.name,
            missing,
            looked_at: symbols.looked_at,
        });
    }

    let mut found = BTreeMap::new();
    for spec in allocator.functions {
        for &(svma, size) in symbols.by_name.get(spec.symbol).into_iter().flatten() {
            if found.contains_key(&svma) {
                continue;
            }
            let (file_offset, code) = content(&file, svma, size).ok_or(FindError::Unmapped {
                symbol: spec.symbol,
                svma,
                segments: file.segments().count(),
            })?;
            let function =
                AllocatorFunction { kind: spec.kind, symbol: spec.symbol, svma, size, file_offset, code };
            found.insert(svma, function);
        }
    }
    Ok(found.into_values().collect())
}

/// The allocator that a file is, if it is one that can be probed.
///
/// # Errors
/// When the file is not an x86-64 ELF file.
pub fn identify(bytes: &[u8]) -> Result<Option<&'static Allocator>, FindError> {
    let symbols = FunctionSymbols::read(&parse(bytes)?);
    Ok(ALLOCATORS.iter().find(|a| a.markers.iter().all(|name| symbols.by_name.contains_key(name))))
}

fn parse(bytes: &[u8]) -> Result<ElfFile64<'_, Endianness>, FindError> {
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    match file.elf_header().e_machine(file.endian()) {
        EM_X86_64 => Ok(file),
        machine => Err(FindError::Machine(machine.0)),
    }
}

/// The functions that a file defines: address and size by name.
struct FunctionSymbols<'data> {
    by_name: BTreeMap<&'data str, BTreeSet<(Svma, u64)>>,
    looked_at: String,
}

impl<'data> FunctionSymbols<'data> {
    /// `.symtab` adds what `.dynsym` does not export, as in a statically linked program.
    fn read(file: &ElfFile64<'data, Endianness>) -> Self {
        let mut by_name = BTreeMap::<_, BTreeSet<_>>::new();
        let mut counts = [0_usize; 2];
        let all = file.dynamic_symbols().map(|s| (0, s)).chain(file.symbols().map(|s| (1, s)));
        for (table, symbol) in all.filter(|(_, symbol)| is_probeable(symbol)) {
            if let Ok(name) = symbol.name() {
                counts[table] += 1;
                by_name.entry(name).or_default().insert((symbol.address(), symbol.size()));
            }
        }
        let looked_at = format!("{} functions of .dynsym and {} of .symtab", counts[0], counts[1]);
        Self { by_name, looked_at }
    }
}

/// A function that the file defines for others. Indirect functions do not qualify: their symbol is the
/// address of the code that chooses among several.
fn is_probeable(symbol: &ElfSymbol64<'_, '_, Endianness>) -> bool {
    symbol.elf_symbol().st_type() == STT_FUNC && symbol.is_definition() && symbol.is_global()
}

/// File offset and bytes of `size` bytes at `svma`.
fn content(file: &ElfFile64<'_, Endianness>, svma: Svma, size: u64) -> Option<(u64, Vec<u8>)> {
    file.segments().find_map(|segment| {
        let offset = svma.checked_sub(segment.address())?;
        let data = segment.data().ok()?;
        let rest = data.get(usize::try_from(offset).ok()?..).filter(|rest| !rest.is_empty())?;
        let length = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
        Some((segment.file_range().0 + offset, rest[..length].to_vec()))
    })
}

#[cfg(test)]
mod tests;
