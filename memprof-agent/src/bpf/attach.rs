//! Attaching the probes to one process, by the best method that the kernel has.
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
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, anyhow, bail};
use aya::Ebpf;
use aya::programs::ProgramError;
use aya::programs::uprobe::{UProbe, UProbeAttachLocation, UProbeLink, UProbeScope};
use clap::ValueEnum;
use memprof_common::function::FunctionKind;

use super::kernel_side::{KernelSide, LoadOptions};
use super::raw::{LinkKind, RelocatedObject, link_uprobes};
use super::sites::{ProbePlan, plan_allocator};
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

/// The allocating kinds, those that may call others first: so that while probes go in one after the
/// other no inner call is taken for an outer one.
const ALLOCATING: [(FunctionKind, &str); 6] = [
    (FunctionKind::ReallocArray, "reallocarray"),
    (FunctionKind::Realloc, "realloc"),
    (FunctionKind::PosixMemalign, "posix_memalign"),
    (FunctionKind::AlignedAlloc, "aligned_alloc"),
    (FunctionKind::Calloc, "calloc"),
    (FunctionKind::Malloc, "malloc"),
];

const RETURNED: &str = "returned";
const ENTRY_FREE: &str = "entry_free";
const EMPTY: &str = "empty";

/// The probe programs, loaded for one mode.
pub(crate) enum Programs {
    /// Programs linked by `BPF_LINK_CREATE`.
    Linked {
        /// `Session` or `Multi`.
        mode: AttachMode,
        /// The allocating kinds' programs, in the order of [`ALLOCATING`].
        allocating: Vec<OwnedFd>,
        /// The shared return program; a session has none.
        returned: Option<OwnedFd>,
        /// The program of `free`.
        free: OwnedFd,
    },
    /// Programs that aya holds and attaches.
    Perf,
}

/// What keeps the probes of one process in place. Dropping it takes them out: those of the
/// allocating functions first, so that no block is sampled whose free would be missed.
pub(crate) struct Attachment {
    links: Vec<Link>,
}

#[expect(dead_code, reason = "held for its drop, which detaches")]
enum Link {
    Raw(OwnedFd),
    Perf(UProbeLink),
}

impl Drop for Attachment {
    fn drop(&mut self) {
        while let Some(link) = self.links.pop() {
            drop(link);
        }
    }
}

impl Programs {
    /// Loads the programs that `mode` needs.
    pub(crate) fn load(mode: AttachMode, ebpf: &mut Ebpf, object: &RelocatedObject) -> Result<Self> {
        let (prefix, kind) = match mode {
            AttachMode::Session => ("session", LinkKind::Session),
            AttachMode::Multi => ("entry", LinkKind::Entry),
            AttachMode::Perf => return Self::load_perf(ebpf),
        };
        let load = |(_, name): &(FunctionKind, &str)| object.load(&format!("{prefix}_{name}"), kind);
        Ok(Self::Linked {
            mode,
            allocating: ALLOCATING.iter().map(load).collect::<Result<_>>()?,
            returned: match mode {
                AttachMode::Multi => Some(object.load(RETURNED, LinkKind::Return)?),
                _ => None,
            },
            free: object.load(ENTRY_FREE, LinkKind::Entry)?,
        })
    }

    /// Loads programs that do nothing, by the best mode, to measure what the traps alone cost.
    pub(crate) fn load_empty(object: &RelocatedObject) -> Result<Self> {
        let allocating = ALLOCATING.iter().map(|_| object.load(EMPTY, LinkKind::Session));
        Ok(Self::Linked {
            mode: AttachMode::Session,
            allocating: allocating.collect::<Result<_>>()?,
            returned: None,
            free: object.load(EMPTY, LinkKind::Entry)?,
        })
    }

    fn load_perf(ebpf: &mut Ebpf) -> Result<Self> {
        let entries = ALLOCATING.iter().map(|(_, name)| format!("entry_{name}"));
        for name in entries.chain([RETURNED.into(), ENTRY_FREE.into()]) {
            // The error carries the whole log of the verifier, thousands of lines.
            uprobe(ebpf, &name)?.load().map_err(|error| match error {
                ProgramError::LoadError { io_error, .. } => {
                    anyhow!("loading the eBPF program {name}: {io_error}")
                }
                other => anyhow!("loading the eBPF program {name}: {other}"),
            })?;
        }
        Ok(Self::Perf)
    }

    /// Puts the probes of `plan` into the process `pid`.
    ///
    /// The order matters: `free` first, so that no sampled block's free is missed; returns before
    /// entries, so that every entry seen has its return seen.
    pub(crate) fn attach(&self, ebpf: &mut Ebpf, plan: &ProbePlan, pid: u32) -> Result<Attachment> {
        let mut links = Vec::new();
        match self {
            Self::Linked { mode, allocating, returned, free } => {
                let mut link = |program: &OwnedFd, kind, offsets: &[u64]| {
                    if offsets.is_empty() {
                        return Ok(());
                    }
                    link_uprobes(program.as_fd(), kind, &plan.path(), offsets, pid)
                        .map(|fd| links.push(Link::Raw(fd)))
                        .with_context(|| format!("attaching {kind:?} probes of mode {mode}"))
                };
                let entry = if *mode == AttachMode::Session { LinkKind::Session } else { LinkKind::Entry };
                link(free, LinkKind::Entry, &plan.offsets(FunctionKind::Free))?;
                for ((kind, _), program) in ALLOCATING.iter().zip(allocating) {
                    if let Some(returned) = returned {
                        link(returned, LinkKind::Return, &plan.offsets(*kind))?;
                    }
                    link(program, entry, &plan.offsets(*kind))?;
                }
            }
            Self::Perf => {
                for offset in plan.offsets(FunctionKind::Free) {
                    links.push(attach_perf(ebpf, ENTRY_FREE, plan, offset, pid)?);
                }
                for (kind, name) in ALLOCATING {
                    for offset in plan.offsets(kind) {
                        links.push(attach_perf(ebpf, RETURNED, plan, offset, pid)?);
                        links.push(attach_perf(ebpf, &format!("entry_{name}"), plan, offset, pid)?);
                    }
                }
            }
        }
        Ok(Attachment { links })
    }
}

/// Loads and attaches by the first mode of the ladder that works, or by the `forced` one. The
/// reasons against the modes that were passed over go to the log, or into the error when none works.
pub(crate) fn attach_by_ladder(
    forced: Option<AttachMode>,
    ebpf: &mut Ebpf,
    object: &RelocatedObject,
    plan: &ProbePlan,
    pid: u32,
) -> Result<(AttachMode, Programs, Attachment)> {
    let ladder = forced.map_or(AttachMode::LADDER.to_vec(), |mode| vec![mode]);
    let mut reasons = Vec::new();
    for mode in ladder {
        if forced.is_none()
            && let Err(reason) = worth_trying(mode)
        {
            reasons.push(format!("{mode}: {reason}"));
            continue;
        }
        let attempt = Programs::load(mode, ebpf, object)
            .and_then(|programs| programs.attach(ebpf, plan, pid).map(|attachment| (programs, attachment)));
        match attempt {
            Ok((programs, attachment)) => {
                for reason in reasons {
                    log::info!("attach mode not used: {reason}");
                }
                return Ok((mode, programs, attachment));
            }
            Err(error) => reasons.push(format!("{mode}: {error:#}")),
        }
    }
    bail!("cannot attach to process {pid}: {}", reasons.join("; "))
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

fn attach_perf(ebpf: &mut Ebpf, name: &str, plan: &ProbePlan, offset: u64, pid: u32) -> Result<Link> {
    let scope = NonZeroU32::new(pid).map_or(UProbeScope::CallingProcess, UProbeScope::OneProcess);
    let program = uprobe(ebpf, name)?;
    let id = program
        .attach(UProbeAttachLocation::AbsoluteOffset(offset), plan.path(), scope)
        .with_context(|| format!("attaching the eBPF program {name}"))?;
    Ok(Link::Perf(program.take_link(id).context("taking over a probe")?))
}

fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut UProbe> {
    let program = ebpf.program_mut(name).ok_or_else(|| anyhow!("no eBPF program {name}"))?;
    program.try_into().with_context(|| format!("eBPF program {name}"))
}

/// Tries every mode on this very process, with sampling off: what works here.
pub(crate) fn probe_modes() -> Result<Vec<(String, Result<(), String>)>> {
    let mut kernel_side = KernelSide::load(LoadOptions::trial())?;
    let pid = std::process::id();
    let plan = plan_allocator(pid, true)?.probes;
    let KernelSide { ebpf, object, .. } = &mut kernel_side;
    Ok(AttachMode::LADDER
        .into_iter()
        .map(|mode| {
            let outcome = worth_trying(mode).and_then(|()| {
                Programs::load(mode, ebpf, object)
                    .and_then(|programs| programs.attach(ebpf, &plan, pid).map(drop))
                    .map_err(|error| format!("{error:#}"))
            });
            (mode.to_string(), outcome)
        })
        .collect())
}
