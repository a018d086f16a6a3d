//! The kinds of allocator functions that the probes tell apart: where a call carries its size, its
//! old block and its result.

/// Calling convention of an allocator function, as far as accounting is concerned.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionKind {
    /// `f(size) -> block`: malloc, valloc, pvalloc.
    Malloc = 0,
    /// `f(count, size) -> block`: calloc.
    Calloc = 1,
    /// `f(old, size) -> block`: realloc.
    Realloc = 2,
    /// `f(old, count, size) -> block`: reallocarray.
    ReallocArray = 3,
    /// `f(alignment, size) -> block`: aligned_alloc, memalign.
    AlignedAlloc = 4,
    /// `f(&mut block, alignment, size) -> 0 or errno`: posix_memalign.
    PosixMemalign = 5,
    /// `f(block)`: free, cfree.
    Free = 6,
}

impl FunctionKind {
    /// All kinds, in index order.
    pub const ALL: [FunctionKind; 7] = [
        Self::Malloc,
        Self::Calloc,
        Self::Realloc,
        Self::ReallocArray,
        Self::AlignedAlloc,
        Self::PosixMemalign,
        Self::Free,
    ];

    /// The kind with this index.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        if value < Self::ALL.len() as u32 { Some(Self::ALL[value as usize]) } else { None }
    }

    /// Whether an allocator may implement this function by calling another probed one (glibc:
    /// `realloc(NULL, n)` calls `malloc`, `reallocarray` calls `realloc`, the aligned family may call
    /// `malloc`). Such calls mark their thread, so that the inner call is not counted again.
    #[inline(always)]
    #[must_use]
    pub const fn may_nest(self) -> bool {
        !matches!(self, Self::Malloc | Self::Calloc | Self::Free)
    }

    /// Whether the function hands out memory, so that its return must be seen.
    #[inline(always)]
    #[must_use]
    pub const fn allocates(self) -> bool {
        !matches!(self, Self::Free)
    }
}
