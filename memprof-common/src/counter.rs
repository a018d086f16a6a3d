//! Every event that the kernel side counts. A loss without a name here cannot happen.

/// Index into the per-CPU counter array of the probes. One spelling for both sides.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Calls of an allocating function (entries of probes, nested ones included). The probes count calls
    /// by kind of function in an array of their own; user space sums them up.
    AllocCalls = 0,
    /// Calls of a freeing function, `realloc` excluded; summed up as above.
    FreeCalls = 1,
    /// Allocations that the sampler took, before any loss.
    Sampled = 2,
    /// Calls made by an allocator function inside another one; the outermost counts, these do not.
    Nested = 3,
    /// Sampled calls that returned no memory.
    FailedAllocations = 4,
    /// `realloc` calls that failed, so that their old block stayed alive.
    FailedReallocs = 5,
    /// Sampled allocations dropped because the event ring was full.
    RingFullAllocs = 6,
    /// Requested bytes of the allocations in [`Counter::RingFullAllocs`], each divided by its
    /// sampling probability.
    RingFullBytes = 7,
    /// Sampled allocations dropped because the kernel's live table was full.
    LiveTableFullAllocs = 8,
    /// Requested bytes of the allocations in [`Counter::LiveTableFullAllocs`], each divided by its
    /// sampling probability.
    LiveTableFullBytes = 9,
    /// Frees of sampled blocks whose event found the ring full. The kernel's live table still
    /// knows that the block is gone, so user space repairs its own by comparing the two.
    RingFullFrees = 10,
    /// Sampled calls dropped because the table of calls in flight was full.
    InFlightFull = 11,
    /// Calls whose return was never seen (an entry of the same thread and stack depth replaced them).
    ReturnMissed = 12,
    /// Blocks found in the live table at an address that was handed out again: their free was missed.
    FreeMissed = 13,
    /// Exec events that found the ring full.
    RingFullExecs = 14,
    /// Snapshots of which a part of the stack could not be read.
    StackUnreadable = 15,
    /// Fork events that found the ring full.
    RingFullForks = 16,
    /// Events of memory maps (mmap, munmap, mremap, mprotect, brk) that found the ring full.
    RingFullMaps = 17,
    /// Requested bytes of the mappings made by the calls in [`Counter::RingFullMaps`].
    RingFullMapBytes = 18,
    /// Sampled allocations sent while the ring was more than three quarters full.
    RingPressure = 19,
    /// Returns of allocating functions that were seen: each is a second trap.
    Returns = 20,
    /// Calls of functions that may throw (`operator new`) whose request was so large that it may fail:
    /// their return is not awaited, see [`crate::function::FunctionKind::may_throw`].
    UnsafeReturns = 21,
}

impl Counter {
    /// Number of counters.
    pub const COUNT: usize = 22;

    /// All counters, in index order.
    pub const ALL: [Counter; Self::COUNT] = [
        Self::AllocCalls,
        Self::FreeCalls,
        Self::Sampled,
        Self::Nested,
        Self::FailedAllocations,
        Self::FailedReallocs,
        Self::RingFullAllocs,
        Self::RingFullBytes,
        Self::LiveTableFullAllocs,
        Self::LiveTableFullBytes,
        Self::RingFullFrees,
        Self::InFlightFull,
        Self::ReturnMissed,
        Self::FreeMissed,
        Self::RingFullExecs,
        Self::StackUnreadable,
        Self::RingFullForks,
        Self::RingFullMaps,
        Self::RingFullMapBytes,
        Self::RingPressure,
        Self::Returns,
        Self::UnsafeReturns,
    ];
}

const _: () = {
    let mut i = 0;
    while i < Counter::COUNT {
        assert!(Counter::ALL[i] as usize == i);
        i += 1;
    }
};
