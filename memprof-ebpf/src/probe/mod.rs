//! What happens when a probe fires.

pub(crate) mod alias;
pub(crate) mod call;
mod decision;
pub(crate) mod free;
pub(crate) mod map;
pub(crate) mod process;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use memprof_common::event::Registers;
use memprof_common::settings::Settings;

use crate::maps::SETTINGS;

/// The registers of the thread that hit the probe.
#[inline(always)]
pub(crate) fn registers<'a>(ctx: *mut core::ffi::c_void) -> &'a pt_regs {
    // SAFETY: the context of a uprobe program is the thread's pt_regs, valid while the program runs.
    unsafe { &*ctx.cast::<pt_regs>() }
}

/// Those registers from which an unwinder starts.
#[inline(always)]
pub(crate) fn unwinding(registers: &pt_regs) -> Registers {
    Registers {
        ip: registers.rip,
        sp: registers.rsp,
        bp: registers.rbp,
        bx: registers.rbx,
        r12: registers.r12,
        r13: registers.r13,
        r14: registers.r14,
        r15: registers.r15,
    }
}

/// The settings, or `None` before user space has written them (never, once loaded).
#[inline(always)]
pub(crate) fn settings() -> Option<&'static Settings> {
    SETTINGS.get(0)
}

/// Process and thread: tgid in the upper half, tid in the lower. A `vfork` child counts as its parent,
/// whose memory it works on.
#[inline(always)]
pub(crate) fn pid_tgid() -> u64 {
    let pid_tgid = bpf_get_current_pid_tgid();
    match alias::parent((pid_tgid >> 32) as u32) {
        Some(parent) => u64::from(parent) << 32 | pid_tgid & 0xffff_ffff,
        None => pid_tgid,
    }
}
