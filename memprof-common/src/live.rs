//! Key and value of the kernel's live table: the sampled blocks that have not been freed.

/// A block by process and address.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LiveKey {
    /// Address that the allocator returned.
    pub address: u64,
    /// Process (thread group) id as the kernel sees it.
    pub tgid: u32,
    /// Always zero: padding must be initialised to be compared.
    pub reserved: u32,
}

/// What the kernel keeps of a live block: enough to tell it from an earlier one at its address.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveValue {
    /// `CLOCK_MONOTONIC` nanoseconds at which the block was handed out; with the key it names
    /// exactly one block in the life of a process.
    pub allocated_at: u64,
}

/// Slot of the occupancy array that the probes keep: entries added less entries removed by them.
pub const OCCUPANCY_PROBES: u32 = 0;
/// Slot of the occupancy array that user space keeps: entries that it has removed. It has no atomic
/// addition there, so it must not write to the probes' slot.
pub const OCCUPANCY_RELEASED: u32 = 1;
/// Slots of the occupancy array.
pub const OCCUPANCY_SLOTS: u32 = 2;

const _: () = assert!(size_of::<LiveKey>() == 16 && size_of::<LiveValue>() == 8);
