//! The kinds of allocator functions that the probes tell apart: where a call carries its size, its
//! old block and its result.

/// Calling convention of an allocator function, as far as accounting is concerned. Arguments that
/// follow those named here (flags, an alignment, a size that is known anyway) do not matter.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionKind {
    /// `f(size) -> block`: malloc, valloc, mallocx, `operator new` with `nothrow`.
    Malloc = 0,
    /// `f(count, size) -> block`: calloc.
    Calloc = 1,
    /// `f(old, size) -> block`, and the old block lives on when that is null: realloc, rallocx.
    Realloc = 2,
    /// `f(old, count, size) -> block`: reallocarray.
    ReallocArray = 3,
    /// `f(alignment, size) -> block`: aligned_alloc, memalign.
    AlignedAlloc = 4,
    /// `f(&mut block, alignment, size) -> 0 or errno`: posix_memalign.
    PosixMemalign = 5,
    /// `f(block)`: free, cfree, sdallocx, `operator delete`.
    Free = 6,
    /// `f(block, size, extra) -> usable size`, resizes in place or not at all: xallocx.
    ResizeInPlace = 7,
    /// `f(old, size) -> block`, and the old block is freed whatever happens: reallocf.
    ReallocOrFree = 8,
    /// `f(size) -> block`, or an exception: `operator new`.
    New = 9,
    /// `f(count, size) -> block`, or an exception: mi_new_n.
    NewArray = 10,
}

impl FunctionKind {
    /// All kinds, in index order.
    pub const ALL: [FunctionKind; 11] = [
        Self::Malloc,
        Self::Calloc,
        Self::Realloc,
        Self::ReallocArray,
        Self::AlignedAlloc,
        Self::PosixMemalign,
        Self::Free,
        Self::ResizeInPlace,
        Self::ReallocOrFree,
        Self::New,
        Self::NewArray,
    ];

    /// The kind with this index.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        if value < Self::ALL.len() as u32 { Some(Self::ALL[value as usize]) } else { None }
    }

    /// Whether the probes treat every function of this kind as one that may call another probed one
    /// (see [`Nesting`]): calls of these kinds are rare, or must be seen to return anyway because
    /// they may free their old block.
    #[inline(always)]
    #[must_use]
    pub const fn always_nests(self) -> bool {
        !matches!(self, Self::Malloc | Self::Calloc | Self::AlignedAlloc | Self::New | Self::Free)
    }

    /// Whether the function gets a block that it may free.
    #[inline(always)]
    #[must_use]
    pub const fn takes_old_block(self) -> bool {
        matches!(self, Self::Realloc | Self::ReallocArray | Self::ReallocOrFree | Self::ResizeInPlace)
    }

    /// Whether the function may throw a C++ exception instead of returning. An exception cannot pass
    /// a return probe: the unwinder does not know the code at the address that the kernel has put in
    /// the place of the return address, and ends the program.
    #[inline(always)]
    #[must_use]
    pub const fn may_throw(self) -> bool {
        matches!(self, Self::New | Self::NewArray)
    }

    /// Whether the function hands out memory, so that its return must be seen.
    #[inline(always)]
    #[must_use]
    pub const fn allocates(self) -> bool {
        !matches!(self, Self::Free)
    }
}

/// Whether a function may get its block by calling another probed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nesting {
    /// It does not.
    Leaf,
    /// It may. Its calls mark their thread, so that the inner call is not counted again, and all of
    /// them are seen to return.
    Outer,
}
