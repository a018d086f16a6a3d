//! `floor`: probes that do nothing, to measure what the traps alone cost a target.

use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use crate::bpf::attach::Programs;
use crate::bpf::kernel_side::{KernelSide, LoadOptions};
use crate::bpf::sites::plan_allocator;
use crate::cli::FloorArgs;
use crate::present;
use crate::target::Target;

/// Attaches empty probes until SIGINT or SIGTERM.
pub(crate) fn run(args: &FloorArgs) -> Result<ExitCode> {
    let target = Target::open(args.pid.unsigned_abs())?;
    target.check_seccomp(false)?;
    let plan = plan_allocator(target.tgid(), false)?;
    let mut kernel_side = KernelSide::load(LoadOptions::trial())?;
    let programs = Programs::load_empty(&kernel_side.object)?;
    let _attachment = programs.attach(&mut kernel_side.ebpf, &plan.probes, target.tgid())?;
    present::message(&format!("empty probes in {}; Ctrl-C takes them out", plan.path));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("handling SIGTERM")?;
        tokio::select! {
            _ = terminate.recv() => Ok(ExitCode::SUCCESS),
            interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| ExitCode::SUCCESS).context("handling SIGINT"),
        }
    })
}
