//! The names by which programs call an allocator's functions, where its file also has others for them
//! (`tc_newarray` and `operator new` are the same code, and so are `default_malloc` and `malloc`).

use std::fs::File;

use memprof_core::probe::elf::{AllocatorFunction, examine};
use memprof_core::symbols::SymbolizedFrame;

use crate::host::module_file::MappedFile;

/// The probed functions of one file.
pub(super) struct AllocatorNames {
    functions: Vec<AllocatorFunction>,
}

impl AllocatorNames {
    /// Those of `file`; none where it holds no allocator.
    pub(super) fn of(file: &File) -> Self {
        let examined = MappedFile::new(file).ok().and_then(|mapped| examine(mapped.bytes()).ok());
        Self { functions: examined.map_or_else(Vec::new, |examined| examined.functions) }
    }

    /// Gives the function at `lookup`, an address as linked, its usual name.
    pub(super) fn apply(&self, lookup: u64, frames: &mut [SymbolizedFrame]) {
        let holds = |function: &&AllocatorFunction| {
            lookup.checked_sub(function.svma).is_some_and(|offset| offset < function.size.max(1))
        };
        // Others are inlined into the last one.
        if let (Some(function), Some(frame)) = (self.functions.iter().find(holds), frames.last_mut()) {
            let name = display_name(&function.symbol);
            if !frame.function.starts_with(name) {
                name.clone_into(&mut frame.function);
            }
        }
    }
}

/// The name as in a program's source.
fn display_name(symbol: &str) -> &str {
    match symbol.get(..4) {
        Some("_Znw") => "operator new",
        Some("_Zna") => "operator new[]",
        Some("_Zdl") => "operator delete",
        Some("_Zda") => "operator delete[]",
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use memprof_common::function::{FunctionKind, Nesting};

    use super::*;

    fn function(symbol: &str, svma: u64, size: u64) -> AllocatorFunction {
        AllocatorFunction {
            kind: FunctionKind::Malloc,
            nesting: Nesting::Leaf,
            symbol: symbol.into(),
            svma,
            size,
            file_offset: svma,
            code: Vec::new(),
        }
    }

    fn frame(function: &str) -> SymbolizedFrame {
        SymbolizedFrame { function: function.into(), file: None, line: None, inlined: false }
    }

    #[test]
    fn aliases_give_way() {
        let names =
            AllocatorNames { functions: vec![function("malloc", 0x1000, 16), function("_Znwm", 0x1010, 16)] };
        let named = |lookup, name: &str| {
            let mut frames = [frame("inlined"), frame(name)];
            names.apply(lookup, &mut frames);
            assert_eq!(frames[0].function, "inlined");
            frames[1].function.clone()
        };
        assert_eq!(named(0x1000, "default_malloc"), "malloc");
        assert_eq!(named(0x100f, "tc_malloc"), "malloc");
        assert_eq!(named(0x1017, "tc_newarray"), "operator new");
        assert_eq!(named(0x1017, "operator new(unsigned long)"), "operator new(unsigned long)");
        assert_eq!(named(0x1020, "other"), "other");
        names.apply(0x1000, &mut []);
    }

    #[test]
    fn a_file_without_an_allocator_has_none() {
        assert!(AllocatorNames::of(&File::open("/bin/true").unwrap()).functions.is_empty());
    }
}
