//! Which code of an allocator's file maps memory for its blocks, so that such memory is not counted twice.

use std::path::Path;

use memprof_core::input::AllocatorPart;
use memprof_core::probe::elf::Examined;
use memprof_core::probe::reach::jumps_out;

/// The part of the file at `path` that is an allocator, given what was found in it. Of a C library, of the
/// process's own `executable` and of a file with an allocator under names of its own these functions only;
/// any other file is a library that does nothing else.
pub(crate) fn allocator_part(path: &str, executable: &str, examined: &Examined) -> AllocatorPart {
    let Examined { allocators, functions, .. } = examined;
    let is_private = allocators.iter().any(|found| !found.prefix.is_empty());
    if !is_c_library(path) && path != executable && !is_private {
        return AllocatorPart::Whole;
    }
    let entries = functions.iter().map(|function| (function.svma, function.size));
    let reached = functions.iter().flat_map(|function| jumps_out(&function.code, function.svma));
    AllocatorPart::Functions(entries.chain(reached.map(|svma| (svma, 0))).collect())
}

/// glibc and musl, whose library is also the dynamic loader.
fn is_c_library(path: &str) -> bool {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    ["libc.so", "libc-", "libc.musl", "ld-musl"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use memprof_common::function::{FunctionKind, Nesting};
    use memprof_core::probe::allocators::JEMALLOC;
    use memprof_core::probe::elf::{AllocatorFunction, Recognised, SymbolCounts};

    use super::*;

    #[test]
    fn only_a_library_of_its_own_is_an_allocator_as_a_whole() {
        let malloc = AllocatorFunction {
            kind: FunctionKind::Malloc,
            nesting: Nesting::Leaf,
            symbol: "malloc".into(),
            svma: 0x1000,
            size: 5,
            file_offset: 0,
            code: vec![0xe9, 0xfb, 0x0f, 0x00, 0x00],
        };
        let functions = AllocatorPart::Functions(vec![(0x1000, 5), (0x2000, 0)]);
        let examined = |prefix: &str| Examined {
            allocators: vec![Recognised { allocator: &JEMALLOC, prefix: prefix.into() }],
            functions: vec![malloc.clone()],
            symbols: SymbolCounts::default(),
        };
        let part = |path| allocator_part(path, "/usr/bin/server", &examined(""));
        assert_eq!(part("/usr/lib/libjemalloc.so.2"), AllocatorPart::Whole);
        for path in ["/lib/libc.so.6", "/lib/ld-musl-x86_64.so.1", "/lib/libc-2.28.so", "/usr/bin/server"] {
            assert_eq!(part(path), functions, "{path}");
        }
        assert_eq!(allocator_part("/usr/lib/plugin.so", "/usr/bin/server", &examined("je_")), functions);
    }
}
