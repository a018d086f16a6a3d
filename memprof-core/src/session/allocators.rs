//! Which code is an allocator's.
//!
//! In a library of its own every function is. In a C library or an executable the functions that are probed
//! are, and so is what they end in: compilers let `memalign` *jump* to the function that does the work, so
//! that only that one is found on the stack.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::address::Svma;
use crate::input::AllocatorPart;
use crate::process::module::{Module, ModuleIndex};
use crate::stack::Frame;

/// Code of allocators, by module.
#[derive(Debug, Default)]
pub(super) struct AllocatorCode {
    modules: FxHashMap<ModuleIndex, AllocatorPart>,
}

impl AllocatorCode {
    /// This part of a module is an allocator.
    pub(super) fn add(&mut self, module: ModuleIndex, part: AllocatorPart) {
        self.modules.insert(module, part);
    }

    /// Whether a frame of this stack is code of an allocator.
    pub(super) fn runs_through(&self, stack: &[Frame], modules: &[Arc<Module>]) -> bool {
        stack.iter().filter_map(|frame| frame.symbol_key()).any(|key| {
            let Some(part) = self.modules.get(&key.module) else { return false };
            match part {
                AllocatorPart::Whole => true,
                AllocatorPart::Functions(functions) => {
                    let module = &modules[key.module.0 as usize];
                    functions.iter().any(|&(start, size)| holds(module, start, size, key.lookup))
                }
            }
        })
    }
}

/// Whether the function at `start` holds the instruction at `svma`. Without a size, its unwind information
/// says how far it goes.
fn holds(module: &Module, start: Svma, size: u64, svma: Svma) -> bool {
    if size > 0 {
        return svma.checked_sub(start).is_some_and(|offset| offset < size);
    }
    module.cfi().is_some_and(|cfi| cfi.same_function(start, svma))
}
