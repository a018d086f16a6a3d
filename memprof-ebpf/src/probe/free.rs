//! `free`, taken at its entry: before the allocator can hand the address to another thread.

use core::ffi::c_void;

use memprof_common::function::FunctionKind;
use memprof_common::live::LiveKey;

use super::{pid_tgid, registers};
use crate::maps::LIVE;
use crate::{counter, emit, live};

/// A block is about to be freed.
#[inline(always)]
pub(crate) fn entry(ctx: *mut c_void) -> u32 {
    counter::count_call(FunctionKind::Free);
    let pid_tgid = pid_tgid();
    let address = registers(ctx).rdi;
    if let Some(allocated_at) = take(pid_tgid, address) {
        emit::free(pid_tgid, address, allocated_at);
    }
    0
}

/// Takes a block out of the live table: its allocation time, if it was there.
#[inline(always)]
pub(crate) fn take(pid_tgid: u64, address: u64) -> Option<u64> {
    let key = LiveKey { address, tgid: (pid_tgid >> 32) as u32, reserved: 0 };
    // SAFETY: the value is copied at once; only this block's owner removes it, so it is not reused
    // meanwhile unless the program frees a block twice, which glibc ends by abort().
    let allocated_at = unsafe { LIVE.get(key) }?.allocated_at;
    live::remove(key).then_some(allocated_at)
}
