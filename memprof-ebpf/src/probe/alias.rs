//! Processes that run in the memory of another one: children of `vfork` (and of `posix_spawn`, which is
//! built on it), until they execute a program or end. What they do to memory, they do to their parent's.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use memprof_common::counter::Counter;

use crate::counter;
use crate::maps::{ALIAS_COUNT, ALIASES};

/// Whose memory process `tgid` runs in, if it is not its own.
#[inline(always)]
pub(crate) fn parent(tgid: u32) -> Option<u32> {
    if *ALIAS_COUNT.get(0)? == 0 {
        return None;
    }
    // SAFETY: the value is copied at once.
    unsafe { ALIASES.get(tgid) }.copied()
}

/// From now on `child` stands for `parent`.
#[inline(always)]
pub(crate) fn add(child: u32, parent: u32) {
    /// `BPF_NOEXIST`
    const NEW: u64 = 1;
    if ALIASES.insert(child, parent, NEW).is_ok() {
        count(1);
    } else {
        counter::count(Counter::InFlightFull);
    }
}

/// From now on `child` stands for itself, if it did not before.
#[inline(always)]
pub(crate) fn remove(child: u32) {
    if parent(child).is_some() && ALIASES.remove(child).is_ok() {
        count(1_u64.wrapping_neg());
    }
}

#[inline(always)]
fn count(change: u64) {
    let Some(cell) = ALIAS_COUNT.get_ptr_mut(0) else { return };
    // SAFETY: the map hands out an aligned u64 that lives as long as the program runs.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(cell, change) };
}
