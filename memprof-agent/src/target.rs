//! A process to be recorded: what must be known and checked before probes go in.

use std::os::fd::OwnedFd;

use anyhow::{Result, bail};
use memprof_core::input::ProcessInfo;

use crate::cli::TargetArgs;
use crate::host::credentials::Namespace;
use crate::host::kernel::KernelVersion;
use crate::host::proc_fs;
use crate::host::seccomp::{ReturnProbes, SeccompUse, judge};

/// A process that exists.
pub(crate) struct Target {
    /// What it is.
    pub(crate) info: ProcessInfo,
    /// Becomes readable when it ends; also keeps its id from meaning another process unnoticed.
    pub(crate) pidfd: OwnedFd,
}

impl Target {
    /// Opens the process.
    pub(crate) fn open(tgid: u32) -> Result<Self> {
        // The descriptor first: facts read after it are facts of the process that it stands for,
        // or reading them fails.
        let pidfd = proc_fs::open_pidfd(tgid.cast_signed())?;
        let info = proc_fs::process_info(tgid.cast_signed())?;
        if info.key.tgid != tgid {
            bail!("{tgid} is a thread of process {}; give the process", info.key.tgid);
        }
        Ok(Self { info, pidfd })
    }

    /// Its id.
    pub(crate) fn tgid(&self) -> u32 {
        self.info.key.tgid
    }
}

/// Refuses a process that a return probe would kill.
pub(crate) fn check_seccomp(tgid: u32, force: bool) -> Result<()> {
    let used = SeccompUse::of(tgid.cast_signed())?;
    match judge(used, KernelVersion::running()) {
        ReturnProbes::Unsafe { reason } if !force => {
            bail!("refusing to attach to process {tgid}: {reason} (--force attaches all the same)")
        }
        _ => Ok(()),
    }
}

/// Refuses to run where the kernel's process ids, which events carry, are not the ones seen here: no
/// event could be told to belong to a target, and the profile would be empty.
pub(crate) fn check_namespace() -> Result<()> {
    if Namespace::Pid.is_initial() {
        return Ok(());
    }
    bail!(
        "this program is in a pid namespace of its own: run it in the machine's (in Kubernetes: hostPID: true)"
    )
}

/// The processes that the command line names, a command to start excepted.
pub(crate) fn find(args: &TargetArgs) -> Result<Vec<Target>> {
    let mut pids = match &args.comm {
        Some(name) => proc_fs::find_by_comm(name)?,
        None => args.pid.clone(),
    };
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().map(|pid| Target::open(pid.cast_unsigned())).collect()
}
