//! `floor`: probes that do nothing, to measure what the traps alone cost a target.

use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use crate::bpf::attach::attach_all;
use crate::bpf::kernel_side::{KernelSide, LoadOptions};
use crate::bpf::programs::Programs;
use crate::bpf::sites::{FilePlan, plan_process};
use crate::cli::FloorArgs;
use crate::host::allocators::AllocatorFiles;
use crate::present;
use crate::target::{Target, check_seccomp};

/// Attaches empty probes until SIGINT or SIGTERM.
pub(crate) fn run(args: &FloorArgs) -> Result<ExitCode> {
    let target = Target::open(args.pid.unsigned_abs())?;
    check_seccomp(target.tgid(), false)?;
    let plans = plan_process(&mut AllocatorFiles::default(), target.tgid())?;
    let mut kernel_side = KernelSide::load(LoadOptions::trial())?;
    let _attachments = attach_all(&mut Programs::empty(), &mut kernel_side, &plans, target.tgid())?;
    let files: Vec<String> = plans.iter().map(FilePlan::description).collect();
    present::message(&format!("empty probes in {}; Ctrl-C takes them out", files.join(", ")));
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
