//! Reading the running kernel's structures at the offsets that user space looked up in its BTF.

use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel};
use memprof_common::settings::KernelOffsets;

/// The word at `base + offset`, or `None` when either is unknown or the read fails.
#[inline(always)]
pub(crate) fn read_word(base: u64, offset: u32) -> Option<u64> {
    if base == 0 || offset == KernelOffsets::UNKNOWN {
        return None;
    }
    let address = (base + u64::from(offset)) as *const u64;
    // SAFETY: bpf_probe_read_kernel checks the address itself and fails on a bad one.
    unsafe { bpf_probe_read_kernel(address) }.ok()
}

/// Like [`read_word`], for a member of four bytes.
#[inline(always)]
pub(crate) fn read_half_word(base: u64, offset: u32) -> Option<u32> {
    if base == 0 || offset == KernelOffsets::UNKNOWN {
        return None;
    }
    let address = (base + u64::from(offset)) as *const u32;
    // SAFETY: bpf_probe_read_kernel checks the address itself and fails on a bad one.
    unsafe { bpf_probe_read_kernel(address) }.ok()
}

/// Address of the running thread's `task_struct`.
#[inline(always)]
pub(crate) fn current_task() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_current_task() }
}
