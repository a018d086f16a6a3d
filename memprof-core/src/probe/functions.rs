//! The functions by which programs get and return memory, one table per allocator.

use memprof_common::function::FunctionKind;

/// One function of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionSpec {
    /// Name in the symbol table, without version.
    pub symbol: &'static str,
    /// Where its calls carry size, block and result.
    pub kind: FunctionKind,
    /// Whether a file without this function cannot be this allocator.
    pub required: bool,
}

/// An allocator: how to recognise its file, and its functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// Name for messages.
    pub name: &'static str,
    /// Functions that the file must define to be this allocator's. Allocators imitate each other's
    /// entry points (several define `__libc_malloc`), so these tell them apart.
    pub markers: &'static [&'static str],
    /// The functions to probe.
    pub functions: &'static [FunctionSpec],
}

const fn required(symbol: &'static str, kind: FunctionKind) -> FunctionSpec {
    FunctionSpec { symbol, kind, required: true }
}

const fn optional(symbol: &'static str, kind: FunctionKind) -> FunctionSpec {
    FunctionSpec { symbol, kind, required: false }
}

/// The allocator inside the GNU C library (`libc.so.6`).
///
/// C++ `new` and `delete` of libstdc++ end in `malloc` and `free`, so they need no entry. `cfree` only
/// exists up to 2.25 and, as an old symbol version, beyond.
pub const GLIBC: Allocator = Allocator {
    name: "glibc",
    markers: &["gnu_get_libc_version", "__libc_malloc"],
    functions: &[
        required("malloc", FunctionKind::Malloc),
        required("calloc", FunctionKind::Calloc),
        required("realloc", FunctionKind::Realloc),
        required("free", FunctionKind::Free),
        optional("posix_memalign", FunctionKind::PosixMemalign),
        optional("aligned_alloc", FunctionKind::AlignedAlloc),
        optional("memalign", FunctionKind::AlignedAlloc),
        optional("valloc", FunctionKind::Malloc),
        optional("pvalloc", FunctionKind::Malloc),
        optional("reallocarray", FunctionKind::ReallocArray),
        optional("cfree", FunctionKind::Free),
    ],
};

/// Every allocator that can be probed.
pub const ALLOCATORS: &[Allocator] = &[GLIBC];
