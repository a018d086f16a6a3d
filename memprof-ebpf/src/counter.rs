//! Counting, per CPU.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use memprof_common::counter::Counter;

use crate::maps::COUNTERS;

/// Adds `amount` to a counter of this CPU and returns what it was before (roughly: another thread
/// may be preempted on this CPU between the two, which only matters to "is this the first time").
#[inline(always)]
pub(crate) fn add(counter: Counter, amount: u64) -> u64 {
    let Some(cell) = COUNTERS.get_ptr_mut(counter as u32) else { return 0 };
    // SAFETY: the map hands out an aligned u64 that lives as long as the program runs. The addition
    // is atomic because a uprobe program can be preempted by another one on the same CPU.
    unsafe {
        let before = cell.read_volatile();
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(cell, amount);
        before
    }
}

/// Adds one.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    add(counter, 1);
}
