//! What a table of an allocator says: how to recognise its file, and which functions of it to probe.
//!
//! ```text
//! symbol            kind           nesting   via
//! malloc            Malloc         Leaf      —
//! calloc (musl)     Calloc         Outer     —               calls malloc: marks its thread
//! _ZnwmSt11align…   New            Outer     aligned_alloc   not probed where it calls aligned_alloc
//! ```

use memprof_common::function::{FunctionKind, Nesting};

/// One function of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionSpec {
    /// Name in the symbol table, without version and without the prefix that a build may give it.
    pub symbol: &'static str,
    /// Where its calls carry size, block and result.
    pub kind: FunctionKind,
    /// Whether it may call another function of the tables.
    pub nesting: Nesting,
    /// The function by which it gets its blocks where the compiler has not inlined that one. Such a
    /// call shows all there is to see, so this function is left alone then: a return probe in it
    /// would be in the way of an exception.
    pub via: Option<&'static str>,
}

impl FunctionSpec {
    /// One that calls no other.
    pub(super) const fn leaf(symbol: &'static str, kind: FunctionKind) -> Self {
        Self {
            symbol,
            kind,
            nesting: if kind.always_nests() { Nesting::Outer } else { Nesting::Leaf },
            via: None,
        }
    }

    /// One that may call another.
    pub(super) const fn outer(symbol: &'static str, kind: FunctionKind) -> Self {
        Self { symbol, kind, nesting: Nesting::Outer, via: None }
    }

    /// One that usually gets its blocks from `via`.
    pub(super) const fn via(symbol: &'static str, kind: FunctionKind, via: &'static str) -> Self {
        Self { symbol, kind, nesting: Nesting::Outer, via: Some(via) }
    }

    /// One that frees.
    pub(super) const fn free(symbol: &'static str) -> Self {
        Self::leaf(symbol, FunctionKind::Free)
    }
}

/// An allocator: how to recognise its file, and its functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// Name for messages.
    pub name: &'static str,
    /// Sets of functions; a file that defines all of one set holds this allocator. Allocators imitate
    /// each other's entry points (several define `__libc_malloc`), so these tell them apart.
    pub markers: &'static [&'static [&'static str]],
    /// Sets for builds that put a prefix before all names (`je_malloc`, `_rjem_malloc`); the prefix is
    /// what stands before a set's last name. The C++ operators in such a file are somebody else's.
    pub prefixed: &'static [&'static [&'static str]],
    /// The functions to probe. Of several names at one address the first counts.
    pub functions: &'static [&'static [FunctionSpec]],
}

impl Allocator {
    /// All functions.
    pub fn specs(&self) -> impl Iterator<Item = &'static FunctionSpec> + use<> {
        self.functions.iter().copied().flatten()
    }
}
