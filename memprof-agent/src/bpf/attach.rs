//! The ways to attach probes, and choosing the best one that the kernel has.
//!
//! | mode | kernel | unsampled calls |
//! |---|---|---|
//! | session | 6.13 | skip the return probe |
//! | multi | 6.10 | pay for the return probe |
//! | perf | 4.17 | pay for the return probe; attached one place at a time |
//!
//! `uprobe_multi` exists since 6.6, but until 6.10 its process filter matched a single thread, so it
//! is not chosen there. Probes go by inode and are filtered by process: the breakpoints are written
//! by the kernel into this process only, and vanish when the last descriptor of a link is closed,
//! however the agent ends.

use std::fmt;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::kernel_side::{KernelSide, LoadOptions};
use super::programs::{Attachment, Programs};
use super::sites::{FilePlan, plan_process};
use crate::host::allocators::AllocatorFiles;
use crate::host::kernel::KernelVersion;

/// First kernel whose `uprobe_multi` filters by process and not by thread.
const MULTI_FILTERS_PROCESSES: KernelVersion = KernelVersion::new(6, 10, 0);

/// A way to attach, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachMode {
    /// Uprobe session (kernel 6.13 and later).
    Session,
    /// Uprobe multi (kernel 6.10 and later).
    Multi,
    /// One perf event per probe.
    Perf,
}

impl AttachMode {
    /// All modes, best first.
    pub(crate) const LADDER: [Self; 3] = [Self::Session, Self::Multi, Self::Perf];

    /// Whether it can leave the return of a single call alone.
    pub(crate) fn can_skip_returns(self) -> bool {
        self == Self::Session
    }
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "uprobe session",
            Self::Multi => "uprobe multi",
            Self::Perf => "perf uprobe",
        })
    }
}

/// Calls `attach` with the programs of the first mode of the ladder that works, or of the `forced` one.
/// The reasons against the modes that were passed over go to the log, or into the error when none works.
pub(crate) fn by_ladder<T>(
    forced: Option<AttachMode>,
    mut attach: impl FnMut(AttachMode, &mut Programs) -> Result<T>,
) -> Result<(AttachMode, Programs, T)> {
    let ladder = forced.map_or(AttachMode::LADDER.to_vec(), |mode| vec![mode]);
    let mut reasons = Vec::new();
    for mode in ladder {
        if forced.is_none()
            && let Err(reason) = worth_trying(mode)
        {
            reasons.push(format!("{mode}: {reason}"));
            continue;
        }
        let mut programs = Programs::new(mode);
        match attach(mode, &mut programs) {
            Ok(attached) => {
                for reason in reasons {
                    log::info!("attach mode not used: {reason}");
                }
                return Ok((mode, programs, attached));
            }
            Err(error) => reasons.push(format!("{mode}: {error:#}")),
        }
    }
    bail!("{}", reasons.join("; "))
}

/// Puts the probes of all `plans` into the process `pid`. All or none.
pub(crate) fn attach_all(
    programs: &mut Programs,
    kernel_side: &mut KernelSide,
    plans: &[FilePlan],
    pid: u32,
) -> Result<Vec<Attachment>> {
    let KernelSide { ebpf, object, .. } = kernel_side;
    plans.iter().map(|plan| programs.attach(ebpf, object, plan, pid)).collect()
}

/// Whether a mode may be tried on the running kernel.
fn worth_trying(mode: AttachMode) -> Result<(), String> {
    if mode == AttachMode::Multi
        && let Some(kernel) = KernelVersion::running()
        && kernel < MULTI_FILTERS_PROCESSES
    {
        return Err(format!("filters by thread before kernel {MULTI_FILTERS_PROCESSES}, this is {kernel}"));
    }
    Ok(())
}

/// Tries every mode on this very process, with sampling off: what works here.
pub(crate) fn probe_modes() -> Result<Vec<(String, Result<(), String>)>> {
    let mut kernel_side = KernelSide::load(LoadOptions::trial())?;
    let pid = std::process::id();
    let plans = plan_process(&mut AllocatorFiles::default(), pid)?;
    Ok(AttachMode::LADDER
        .into_iter()
        .map(|mode| {
            let outcome = worth_trying(mode).and_then(|()| {
                attach_all(&mut Programs::new(mode), &mut kernel_side, &plans, pid)
                    .map(drop)
                    .map_err(|error| format!("{error:#}"))
            });
            (mode.to_string(), outcome)
        })
        .collect())
}
