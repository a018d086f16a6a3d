//! What happens when a probe fires.

pub(crate) mod call;
pub(crate) mod free;
pub(crate) mod process;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use memprof_common::settings::Settings;

use crate::maps::SETTINGS;

/// The registers of the thread that hit the probe.
#[inline(always)]
pub(crate) fn registers<'a>(ctx: *mut core::ffi::c_void) -> &'a pt_regs {
    // SAFETY: the context of a uprobe program is the thread's pt_regs, valid while the program runs.
    unsafe { &*ctx.cast::<pt_regs>() }
}

/// The settings, or `None` before user space has written them (never, once loaded).
#[inline(always)]
pub(crate) fn settings() -> Option<&'static Settings> {
    SETTINGS.get(0)
}

/// Process and thread: tgid in the upper half, tid in the lower.
#[inline(always)]
pub(crate) fn pid_tgid() -> u64 {
    bpf_get_current_pid_tgid()
}
