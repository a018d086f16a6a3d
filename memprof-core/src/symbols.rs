//! Names of code addresses: what a snapshot asks for, and what a symbolizer answers.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::address::Svma;
use crate::process::module::ModuleIndex;

/// One function at a code address; inlined functions come before the function that contains them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolizedFrame {
    /// Demangled name.
    pub function: String,
    /// Source file, when known.
    pub file: Option<String>,
    /// Source line, when known.
    pub line: Option<u32>,
    /// Whether the compiler inlined this function into the next frame.
    pub inlined: bool,
}

/// A code address to be named: a module and the address to look up in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolKey {
    /// The module.
    pub module: ModuleIndex,
    /// The address as linked; for a return address, one less than it.
    pub lookup: Svma,
}

/// Names by code address. An address without an entry has no name and prints as module+offset.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    by_key: FxHashMap<SymbolKey, Vec<SymbolizedFrame>>,
}

impl Symbols {
    /// Adds the frames at an address, innermost first.
    pub fn insert(&mut self, key: SymbolKey, frames: Vec<SymbolizedFrame>) {
        if !frames.is_empty() {
            self.by_key.insert(key, frames);
        }
    }

    /// The frames at an address, innermost first; empty when it has no name.
    #[must_use]
    pub fn get(&self, key: SymbolKey) -> &[SymbolizedFrame] {
        self.by_key.get(&key).map_or(&[], Vec::as_slice)
    }
}
