//! The live table and how full it is. Every entry that comes or goes is counted exactly once.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::bindings::{BPF_EXIST, BPF_NOEXIST};
use memprof_common::live::{LiveKey, LiveValue, OCCUPANCY_PROBES, OCCUPANCY_RELEASED};

use crate::maps::{LIVE, OCCUPANCY};

/// Enters a block, in place of an earlier one at its address. Whether there was room.
#[inline(always)]
pub(crate) fn insert(key: LiveKey, value: LiveValue) -> bool {
    if LIVE.insert(key, value, u64::from(BPF_NOEXIST)).is_ok() {
        add(1);
        return true;
    }
    LIVE.insert(key, value, u64::from(BPF_EXIST)).is_ok()
}

/// Takes a block out. Whether this call did it.
#[inline(always)]
pub(crate) fn remove(key: LiveKey) -> bool {
    let removed = LIVE.remove(key).is_ok();
    if removed {
        add(u64::MAX);
    }
    removed
}

/// Blocks in the table.
#[inline(always)]
pub(crate) fn occupancy() -> u64 {
    let probes = OCCUPANCY.get(OCCUPANCY_PROBES).map_or(0, |count| read(count));
    let released = OCCUPANCY.get(OCCUPANCY_RELEASED).map_or(0, |count| read(count));
    // User space says so after it has removed entries: it may be late, the difference is never negative.
    probes.wrapping_sub(released)
}

#[inline(always)]
fn read(count: &u64) -> u64 {
    // SAFETY: a reference to an aligned u64; others write to it whole.
    unsafe { (&raw const *count).read_volatile() }
}

#[inline(always)]
fn add(amount: u64) {
    if let Some(count) = OCCUPANCY.get_ptr_mut(OCCUPANCY_PROBES) {
        // SAFETY: the map hands out an aligned u64 that lives as long as the program runs.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(count, amount) };
    }
}
