//! What happens to a watched process as a whole.
//!
//! The child of a `vfork` runs in its parent's memory until it executes a program or ends: until then its
//! events are the parent's.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::programs::RawTracePointContext;
use aya_log_ebpf::info;
use memprof_common::event::{FORK_SHARES_MEMORY, FORK_WATCHED};

use super::{alias, call, pid_tgid, settings};
use crate::emit;
use crate::kernel::{read_half_word, read_word};
use crate::maps::TARGETS;

/// A process has replaced its program (`sched_process_exec`: task, the caller's former id): its blocks
/// are gone.
#[inline(always)]
pub(crate) fn exec(ctx: RawTracePointContext) -> u32 {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    alias::remove(tgid);
    if TARGETS.get_ptr(tgid).is_some() {
        // By now the calling thread has the id of the process.
        let caller: i32 = ctx.arg(1);
        emit::exec(tgid, caller as u32);
        info!(&ctx, "process {} replaced its program", tgid);
    }
    0
}

/// A thread has a child (`sched_process_fork`: parent, child): a thread or a process.
#[inline(always)]
pub(crate) fn fork(ctx: RawTracePointContext) -> u32 {
    let parent = pid_tgid();
    if TARGETS.get_ptr((parent >> 32) as u32).is_none() {
        return 0;
    }
    let Some(settings) = settings() else { return 0 };
    let offsets = &settings.kernel;
    let (parent_task, child_task): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let Some(child) = read_half_word(child_task, offsets.task_tgid) else { return 0 };
    // Threads have their process's id. That of a vfork child's thread is an alias of the parent.
    if child == (bpf_get_current_pid_tgid() >> 32) as u32 {
        return 0;
    }
    let mut flags = 0;
    let memory = read_word(child_task, offsets.task_mm);
    if memory.is_some() && memory == read_word(parent_task, offsets.task_mm) {
        flags |= FORK_SHARES_MEMORY;
        alias::add(child, (parent >> 32) as u32);
    }
    if settings.follow_children != 0 && TARGETS.insert(child, 1, 0).is_ok() {
        flags |= FORK_WATCHED;
    }
    let start_time = read_word(child_task, offsets.task_start_boottime).unwrap_or(0);
    emit::fork(parent, child, flags, start_time);
    0
}

/// A thread ends (`sched_process_exit`). A `vfork` child that ends no longer stands for its parent.
#[inline(always)]
pub(crate) fn exit() -> u32 {
    // With the id that its calls had.
    call::thread_ended(self::pid_tgid());
    let pid_tgid = bpf_get_current_pid_tgid();
    if (pid_tgid >> 32) as u32 == pid_tgid as u32 {
        alias::remove(pid_tgid as u32);
    }
    0
}
