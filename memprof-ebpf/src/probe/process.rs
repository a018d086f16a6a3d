//! What happens to a watched process as a whole.

use aya_ebpf::programs::RawTracePointContext;
use aya_log_ebpf::info;

use super::pid_tgid;
use crate::emit;
use crate::maps::TARGETS;

/// A process has replaced its program (`sched_process_exec`): its blocks are gone.
#[inline(always)]
pub(crate) fn exec(ctx: RawTracePointContext) -> u32 {
    let tgid = (pid_tgid() >> 32) as u32;
    if TARGETS.get_ptr(tgid).is_some() {
        // The tracepoint's second argument. By now the calling thread has the id of the process.
        let caller: i32 = ctx.arg(1);
        emit::exec(tgid, caller as u32);
        info!(&ctx, "process {} replaced its program", tgid);
    }
    0
}
