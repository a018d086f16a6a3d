//! The tables of all known allocators. Which functions call others was read from the disassembly of
//! Debian 12's builds and from the sources; where builds differ, "may call another" is the safe word.

use memprof_common::function::FunctionKind;
use memprof_common::function::FunctionKind::{
    AlignedAlloc, Calloc, Malloc, New, NewArray, PosixMemalign, Realloc, ReallocArray, ReallocOrFree,
    ResizeInPlace,
};

use super::functions::{Allocator, FunctionSpec};

const fn leaf(symbol: &'static str, kind: FunctionKind) -> FunctionSpec {
    FunctionSpec::leaf(symbol, kind)
}

const fn outer(symbol: &'static str, kind: FunctionKind) -> FunctionSpec {
    FunctionSpec::outer(symbol, kind)
}

const fn via(symbol: &'static str, kind: FunctionKind, via: &'static str) -> FunctionSpec {
    FunctionSpec::via(symbol, kind, via)
}

const fn free(symbol: &'static str) -> FunctionSpec {
    FunctionSpec::free(symbol)
}

/// The functions of the C standard that never call each other, except inside musl.
const MALLOC_CALLOC: &[FunctionSpec] = &[leaf("malloc", Malloc), leaf("calloc", Calloc)];

/// The other functions of the C standard, of POSIX and of tradition. `cfree` is in glibc up to 2.25
/// and, as an old symbol version, beyond; the sized frees are C23's.
const STANDARD: &[FunctionSpec] = &[
    outer("realloc", Realloc),
    outer("reallocarray", ReallocArray),
    outer("posix_memalign", PosixMemalign),
    free("free"),
    free("free_sized"),
    free("free_aligned_sized"),
    free("cfree"),
];

/// The aligned functions where they are the allocator's own code.
const ALIGNED: &[FunctionSpec] = &[
    leaf("aligned_alloc", AlignedAlloc),
    leaf("memalign", AlignedAlloc),
    leaf("valloc", Malloc),
    leaf("pvalloc", Malloc),
];

/// The aligned functions where they may call others.
const ALIGNED_OUTER: &[FunctionSpec] = &[
    outer("aligned_alloc", AlignedAlloc),
    outer("memalign", AlignedAlloc),
    outer("valloc", Malloc),
    outer("pvalloc", Malloc),
];

/// `operator new` and `operator new[]`; with `nothrow`.
const NEW: &[FunctionSpec] = &[
    leaf("_Znwm", New),
    leaf("_Znam", New),
    leaf("_ZnwmRKSt9nothrow_t", Malloc),
    leaf("_ZnamRKSt9nothrow_t", Malloc),
];

/// `operator delete` and `operator delete[]`: plain, `nothrow`, sized, aligned, aligned `nothrow`, sized
/// and aligned.
const DELETE: &[FunctionSpec] = &[
    free("_ZdlPv"),
    free("_ZdaPv"),
    free("_ZdlPvRKSt9nothrow_t"),
    free("_ZdaPvRKSt9nothrow_t"),
    free("_ZdlPvm"),
    free("_ZdaPvm"),
    free("_ZdlPvSt11align_val_t"),
    free("_ZdaPvSt11align_val_t"),
    free("_ZdlPvSt11align_val_tRKSt9nothrow_t"),
    free("_ZdaPvSt11align_val_tRKSt9nothrow_t"),
    free("_ZdlPvmSt11align_val_t"),
    free("_ZdaPvmSt11align_val_t"),
];

/// The allocator inside the GNU C library, shared (`libc.so.6`) or linked into a program. The C++
/// operators of libstdc++ end in `malloc` and `free`, so they need no entry.
pub const GLIBC: Allocator = Allocator {
    name: "glibc",
    markers: &[&["malloc", "gnu_get_libc_version", "__libc_malloc"], &["malloc", "_int_malloc"]],
    prefixed: &[],
    functions: &[
        MALLOC_CALLOC,
        STANDARD,
        &[
            outer("aligned_alloc", AlignedAlloc),
            outer("memalign", AlignedAlloc),
            // Always for more than malloc aligns by itself, so they never call it.
            leaf("valloc", Malloc),
            leaf("pvalloc", Malloc),
        ],
    ],
};

/// musl, shared (it is the dynamic loader too) or linked into a program. Its `calloc` calls `malloc`.
/// What the library takes for itself by `__libc_malloc` is not seen.
pub const MUSL: Allocator = Allocator {
    name: "musl",
    markers: &[
        &["malloc", "__dls3"],
        // A static program has what it uses, which need not be malloc.
        &["free", "__malloc_alloc_meta"],
        &["malloc", "__simple_malloc"],
        &["free", "__bin_chunk"],
    ],
    prefixed: &[],
    functions: &[&[leaf("malloc", Malloc), outer("calloc", Calloc)], STANDARD, ALIGNED_OUTER],
};

/// jemalloc. Blocks that `mallctl` frees with their arena are not seen to go.
pub const JEMALLOC: Allocator = Allocator {
    name: "jemalloc",
    markers: &[&["malloc", "free", "mallctl"]],
    // A linker leaves out what a static program does not use.
    prefixed: &[&["malloc", "mallctl"], &["malloc", "sdallocx"], &["mallocx", "sdallocx"]],
    functions: &[
        MALLOC_CALLOC,
        STANDARD,
        ALIGNED,
        &[
            leaf("mallocx", Malloc),
            outer("rallocx", Realloc),
            outer("xallocx", ResizeInPlace),
            free("dallocx"),
            free("sdallocx"),
        ],
        NEW,
        &[
            via("_ZnwmSt11align_val_t", New, "aligned_alloc"),
            via("_ZnamSt11align_val_t", New, "aligned_alloc"),
            via("_ZnwmSt11align_val_tRKSt9nothrow_t", Malloc, "aligned_alloc"),
            via("_ZnamSt11align_val_tRKSt9nothrow_t", Malloc, "aligned_alloc"),
        ],
        DELETE,
    ],
};

/// tcmalloc of gperftools. `valloc` and others end in `tc_memalign`.
pub const TCMALLOC: Allocator = Allocator {
    name: "tcmalloc",
    markers: &[&["tc_malloc", "tc_free"]],
    prefixed: &[],
    functions: &[
        MALLOC_CALLOC,
        STANDARD,
        &[
            leaf("aligned_alloc", AlignedAlloc),
            leaf("memalign", AlignedAlloc),
            outer("valloc", Malloc),
            outer("pvalloc", Malloc),
        ],
        NEW,
        &[
            leaf("_ZnwmSt11align_val_t", New),
            leaf("_ZnamSt11align_val_t", New),
            leaf("_ZnwmSt11align_val_tRKSt9nothrow_t", Malloc),
            leaf("_ZnamSt11align_val_tRKSt9nothrow_t", Malloc),
        ],
        DELETE,
        // The same functions, where they are not at the same addresses.
        &[
            leaf("tc_malloc", Malloc),
            leaf("tc_malloc_skip_new_handler", Malloc),
            leaf("tc_calloc", Calloc),
            outer("tc_realloc", Realloc),
            leaf("tc_memalign", AlignedAlloc),
            outer("tc_posix_memalign", PosixMemalign),
            outer("tc_valloc", Malloc),
            outer("tc_pvalloc", Malloc),
            free("tc_free"),
            free("tc_free_sized"),
            free("tc_cfree"),
            leaf("tc_new", New),
            leaf("tc_newarray", New),
            leaf("tc_new_nothrow", Malloc),
            leaf("tc_newarray_nothrow", Malloc),
            leaf("tc_new_aligned", New),
            leaf("tc_newarray_aligned", New),
            leaf("tc_new_aligned_nothrow", Malloc),
            leaf("tc_newarray_aligned_nothrow", Malloc),
            free("tc_delete"),
            free("tc_deletearray"),
            free("tc_delete_nothrow"),
            free("tc_deletearray_nothrow"),
            free("tc_delete_sized"),
            free("tc_deletearray_sized"),
            free("tc_delete_aligned"),
            free("tc_deletearray_aligned"),
            free("tc_delete_aligned_nothrow"),
            free("tc_deletearray_aligned_nothrow"),
            free("tc_delete_sized_aligned"),
            free("tc_deletearray_sized_aligned"),
        ],
    ],
};

/// mimalloc. Not here, so not seen: the `mi_heap_*` functions, `mi_strdup` and its like, and whatever
/// `mi_heap_destroy` frees. `mi_new_realloc` and `mi_reallocarr` end in functions of the table.
pub const MIMALLOC: Allocator = Allocator {
    name: "mimalloc",
    markers: &[&["mi_malloc", "mi_free"]],
    prefixed: &[],
    functions: &[
        MALLOC_CALLOC,
        STANDARD,
        ALIGNED_OUTER,
        NEW,
        &[
            via("_ZnwmSt11align_val_t", New, "mi_malloc_aligned"),
            via("_ZnamSt11align_val_t", New, "mi_malloc_aligned"),
            via("_ZnwmSt11align_val_tRKSt9nothrow_t", Malloc, "mi_malloc_aligned"),
            via("_ZnamSt11align_val_tRKSt9nothrow_t", Malloc, "mi_malloc_aligned"),
        ],
        DELETE,
        MIMALLOC_OWN,
    ],
};

const MIMALLOC_OWN: &[FunctionSpec] = &[
    leaf("mi_malloc", Malloc),
    leaf("mi_malloc_small", Malloc),
    leaf("mi_zalloc", Malloc),
    leaf("mi_zalloc_small", Malloc),
    leaf("mi_calloc", Calloc),
    leaf("mi_mallocn", Calloc),
    leaf("mi_malloc_aligned", Malloc),
    leaf("mi_malloc_aligned_at", Malloc),
    leaf("mi_zalloc_aligned", Malloc),
    leaf("mi_zalloc_aligned_at", Malloc),
    leaf("mi_calloc_aligned", Calloc),
    leaf("mi_calloc_aligned_at", Calloc),
    outer("mi_memalign", AlignedAlloc),
    outer("mi_aligned_alloc", AlignedAlloc),
    outer("mi_posix_memalign", PosixMemalign),
    outer("mi_valloc", Malloc),
    outer("mi_pvalloc", Malloc),
    outer("mi_realloc", Realloc),
    outer("mi_reallocn", ReallocArray),
    outer("mi_reallocarray", ReallocArray),
    outer("mi_reallocf", ReallocOrFree),
    outer("reallocf", ReallocOrFree),
    outer("mi_rezalloc", Realloc),
    outer("mi_recalloc", ReallocArray),
    outer("mi_expand", Realloc),
    outer("mi_realloc_aligned", Realloc),
    outer("mi_realloc_aligned_at", Realloc),
    outer("mi_rezalloc_aligned", Realloc),
    outer("mi_rezalloc_aligned_at", Realloc),
    outer("mi_recalloc_aligned", ReallocArray),
    outer("mi_recalloc_aligned_at", ReallocArray),
    leaf("mi_new", New),
    leaf("mi_new_nothrow", Malloc),
    via("mi_new_aligned", New, "mi_malloc_aligned"),
    via("mi_new_aligned_nothrow", Malloc, "mi_malloc_aligned"),
    outer("mi_new_n", NewArray),
    free("mi_free"),
    free("mi_free_size"),
    free("mi_free_size_aligned"),
    free("mi_free_aligned"),
    free("mi_cfree"),
    free("vfree"),
];

/// Whatever else offers `malloc` and `free`: a replacement that nobody here knows. Every function of
/// it may call another.
pub const OTHER: Allocator = Allocator {
    name: "an unknown allocator",
    markers: &[&["malloc", "free"]],
    prefixed: &[],
    functions: &[
        &[outer("malloc", Malloc), outer("calloc", Calloc)],
        STANDARD,
        ALIGNED_OUTER,
        &[
            via("_Znwm", New, "malloc"),
            via("_Znam", New, "malloc"),
            via("_ZnwmRKSt9nothrow_t", Malloc, "malloc"),
            via("_ZnamRKSt9nothrow_t", Malloc, "malloc"),
            via("_ZnwmSt11align_val_t", New, "aligned_alloc"),
            via("_ZnamSt11align_val_t", New, "aligned_alloc"),
            via("_ZnwmSt11align_val_tRKSt9nothrow_t", Malloc, "aligned_alloc"),
            via("_ZnamSt11align_val_tRKSt9nothrow_t", Malloc, "aligned_alloc"),
        ],
        DELETE,
    ],
};

/// Every allocator that is known by name; [`OTHER`] is tried after them.
pub const ALLOCATORS: &[Allocator] = &[TCMALLOC, MIMALLOC, JEMALLOC, GLIBC, MUSL];
