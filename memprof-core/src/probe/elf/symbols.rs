//! The functions that an ELF file defines, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use object::elf::{ET_EXEC, PT_INTERP, STT_FUNC};
use object::read::elf::{ElfFile64, ElfSymbol64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

use crate::address::Svma;

/// How many functions a file's symbol tables name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SymbolCounts {
    /// Those of `.dynsym`: what a shared file exports.
    pub dynamic: usize,
    /// Those of `.symtab`, which stripping removes.
    pub full: usize,
}

impl fmt::Display for SymbolCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { dynamic: 0, full: 0 } => f.write_str("names no function: stripped"),
            Self { dynamic, full: 0 } => write!(f, "{dynamic} functions in .dynsym, .symtab is stripped"),
            Self { dynamic, full } => write!(f, "{dynamic} functions in .dynsym, {full} in .symtab"),
        }
    }
}

/// Address and size of a function.
type Place = (Svma, u64);

/// The functions of a file.
pub(super) struct FunctionSymbols<'data> {
    /// Those that other files or other parts of the program can call.
    global: BTreeMap<&'data str, BTreeSet<Place>>,
    /// Those that only their own part of the program names. A static link makes hidden functions such.
    local: BTreeMap<&'data str, BTreeSet<Place>>,
    is_program: bool,
    pub(super) counts: SymbolCounts,
}

impl<'data> FunctionSymbols<'data> {
    /// `.symtab` adds what `.dynsym` does not export, as in a statically linked program.
    pub(super) fn read(file: &ElfFile64<'data, Endianness>) -> Self {
        let mut symbols = Self {
            global: BTreeMap::new(),
            local: BTreeMap::new(),
            is_program: is_program(file),
            counts: SymbolCounts::default(),
        };
        for symbol in file.dynamic_symbols() {
            symbols.counts.dynamic += usize::from(symbols.add(&symbol));
        }
        for symbol in file.symbols() {
            symbols.counts.full += usize::from(symbols.add(&symbol));
        }
        symbols
    }

    fn add(&mut self, symbol: &ElfSymbol64<'data, '_, Endianness>) -> bool {
        let name = symbol.name().ok().filter(|_| is_function(symbol));
        if let Some(name) = name {
            let table = if symbol.is_global() { &mut self.global } else { &mut self.local };
            table.entry(name).or_default().insert((symbol.address(), symbol.size()));
        }
        name.is_some()
    }

    /// The places of the functions with this name: what others can call, or else what they cannot.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = Place> {
        self.global.get(name).or_else(|| self.local.get(name)).into_iter().flatten().copied()
    }

    /// Whether a whole program can get at a function of this name here: a library's own function that
    /// happens to have the name does not count.
    pub(super) fn offers(&self, name: &str) -> bool {
        self.global.contains_key(name) || (self.is_program && self.local.contains_key(name))
    }

    /// What stands before `name` in the names that end in it.
    pub(super) fn prefixes_of(&self, name: &str) -> impl Iterator<Item = &'data str> {
        self.global.keys().chain(self.local.keys()).filter_map(move |symbol| symbol.strip_suffix(name))
    }
}

/// A function that the file defines. Indirect functions do not qualify: their symbol is the address of
/// the code that chooses among several.
fn is_function(symbol: &ElfSymbol64<'_, '_, Endianness>) -> bool {
    symbol.elf_symbol().st_type() == STT_FUNC && symbol.is_definition()
}

/// Whether the file is a program and not a library.
fn is_program(file: &ElfFile64<'_, Endianness>) -> bool {
    let endian = file.endian();
    file.elf_header().e_type(endian) == ET_EXEC
        || file.elf_program_headers().iter().any(|header| header.p_type(endian) == PT_INTERP)
        // A static program that can be loaded anywhere exports nothing.
        || file.dynamic_symbols().all(|symbol| !symbol.is_definition())
}
