//! Counting, per CPU.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::maps::PerCpuArray;
use memprof_common::counter::Counter;
use memprof_common::function::FunctionKind;

use crate::maps::{CALLS_BY_KIND, CALLS_COUNTED, COUNTERS};

/// Adds `amount` to a counter of this CPU and returns what it was before (roughly: another thread
/// may be preempted on this CPU between the two, which only matters to "is this the first time").
#[inline(always)]
pub(crate) fn add(counter: Counter, amount: u64) -> u64 {
    add_to(&COUNTERS, counter as u32, amount)
}

/// Adds one.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    add(counter, 1);
}

/// Counts a call of a function of this kind.
#[inline(always)]
pub(crate) fn count_call(kind: FunctionKind) {
    add_to(&CALLS_BY_KIND, kind as u32, 1);
}

/// Counts a call seen by the counting program.
#[inline(always)]
pub(crate) fn count_trial_call() {
    add_to(&CALLS_COUNTED, 0, 1);
}

#[inline(always)]
fn add_to(counters: &PerCpuArray<u64>, index: u32, amount: u64) -> u64 {
    let Some(cell) = counters.get_ptr_mut(index) else { return 0 };
    // SAFETY: the map hands out an aligned u64 that lives as long as the program runs. The addition
    // is atomic because a uprobe program can be preempted by another one on the same CPU.
    unsafe {
        let before = cell.read_volatile();
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(cell, amount);
        before
    }
}
