//! The probes of a run: which files of which processes have them, and keeping that right across exec
//! and the loading of libraries.

use std::collections::HashMap;
use std::{mem, slice};

use anyhow::{Context, Result, anyhow};
use memprof_common::function::FunctionKind;
use memprof_core::input::AllocatorPart;
use memprof_core::process::module::FileId;

use crate::bpf::attach::{AttachMode, attach_all, by_ladder};
use crate::bpf::kernel_side::KernelSide;
use crate::bpf::programs::{Attachment, Programs};
use crate::bpf::sites::{FilePlan, plan_process, single_stepped};
use crate::cli::ProbeArgs;
use crate::detacher::Detacher;
use crate::forecast::is_stepped;
use crate::host::allocators::AllocatorFiles;
use crate::host::{memory_limits, proc_fs};
use crate::present;
use crate::target::check_seccomp;

/// The probes in one file of a process.
struct Attached {
    /// The allocator's file.
    file: FileId,
    /// The kinds of functions whose probes there are single-stepped.
    stepped: Vec<FunctionKind>,
    /// Keeps them in place.
    attachment: Attachment,
}

/// A file whose allocator is probed in some process.
#[derive(Clone, Debug)]
pub(crate) struct FoundAllocator {
    /// The process.
    pub(crate) tgid: u32,
    /// The file.
    pub(crate) file: FileId,
    /// Its path as the process sees it.
    pub(crate) path: String,
    /// Which part of it is the allocator.
    pub(crate) part: AllocatorPart,
}

/// All probes of a run.
pub(crate) struct Probes {
    kernel_side: KernelSide,
    programs: Programs,
    files: AllocatorFiles,
    /// How they are attached.
    pub(crate) mode: AttachMode,
    attached: HashMap<u32, Vec<Attached>>,
    /// Where the first process has its probes.
    plans: Vec<FilePlan>,
    /// Allocators' files that were found and not told of yet.
    found: Vec<FoundAllocator>,
    detacher: Detacher,
    /// What is not seen there, and why.
    left_out: Option<String>,
    /// Whether to attach where that may end the target.
    force: bool,
}

impl Probes {
    /// Attaches to all processes, by the mode that was asked for or the best that works. All or none.
    pub(crate) fn attach(mut kernel_side: KernelSide, args: &ProbeArgs, tgids: &[u32]) -> Result<Self> {
        let force = args.force;
        let mut files = AllocatorFiles::default();
        let (&first, others) = tgids.split_first().ok_or_else(|| anyhow!("no process to attach to"))?;
        kernel_side.watch(first)?;
        // Without an allocator no mode would do.
        plan_process(&mut files, first)?;
        let (mode, programs, (plans, attachments, left_out)) =
            by_ladder(args.attach_mode.forced(), |mode, programs| {
                let mut plans = plan_process(&mut files, first)?;
                let unsafe_now = why_unsafe(&plans, first, mode, force)?;
                let left_out = unsafe_now.and_then(|reason| leave_out(&mut plans, &reason));
                let attachments = attach_all(programs, &mut kernel_side, &plans, first)?;
                Ok((plans, attachments, left_out))
            })
            .with_context(|| format!("cannot attach to process {first}"))?;
        let found = found_in(first, &plans)?;
        let first_attached = pair(&plans, attachments);
        let attached = HashMap::from([(first, first_attached)]);
        let detacher = Detacher::start()?;
        let mut probes =
            Self { kernel_side, programs, files, mode, attached, plans, found, detacher, left_out, force };
        for &tgid in others {
            probes.kernel_side.watch(tgid)?;
            probes.refresh(tgid)?;
        }
        Ok(probes)
    }

    /// Where the first process has its probes, in words.
    pub(crate) fn summary(&self) -> String {
        let mut text = summary(&self.plans, self.mode);
        text.extend(self.left_out.iter().map(|reason| format!("; {reason}")));
        text
    }

    /// Puts probes into a process that was started meanwhile.
    ///
    /// # Errors
    /// When it has no allocator that can be seen, or the probes would kill it.
    pub(crate) fn add_child(&mut self, tgid: u32) -> Result<()> {
        self.detach(tgid);
        self.follow_exec(tgid, true).map(drop)
    }

    /// Whether probes in functions of this kind are single-stepped in any process.
    pub(crate) fn are_stepped(&self, kind: FunctionKind) -> bool {
        self.attached.values().flatten().any(|attached| attached.stepped.contains(&kind))
    }

    /// The allocators' files found since the last call.
    pub(crate) fn take_found(&mut self) -> Vec<FoundAllocator> {
        mem::take(&mut self.found)
    }

    /// Whether a process has probes.
    pub(crate) fn are_in(&self, tgid: u32) -> bool {
        self.attached.contains_key(&tgid)
    }

    /// Brings the probes of a process in line with the files that it maps now; a process that was started
    /// meanwhile gets its first ones. Whether probes were put in.
    ///
    /// # Errors
    /// When none of them is an allocator that can be seen; then nothing changes.
    pub(crate) fn refresh(&mut self, tgid: u32) -> Result<bool> {
        let mut plans = plan_process(&mut self.files, tgid)?;
        let attached = self.attached.entry(tgid).or_default();
        let is_mapped = |attached: &mut Attached| plans.iter().any(|plan| plan.id() == attached.file);
        let gone: Vec<Attached> = attached.extract_if(.., |attached| !is_mapped(attached)).collect();
        if !gone.is_empty() {
            self.detacher.detach(gone);
        }
        let unsafe_now = why_unsafe(&plans, tgid, self.mode, self.force)?;
        if let Some(reason) = &unsafe_now {
            take_out_unsafe(attached, &plans, tgid, reason);
        }
        plans.retain(|plan| attached.iter().all(|attached| attached.file != plan.id()));
        if plans.is_empty() {
            return Ok(false);
        }
        if let Some(left_out) = unsafe_now.and_then(|reason| leave_out(&mut plans, &reason)) {
            log::warn!("process {tgid}: {left_out}");
        }
        let attachments = attach_all(&mut self.programs, &mut self.kernel_side, &plans, tgid)
            .with_context(|| format!("attaching to process {tgid}"))?;
        attached.extend(pair(&plans, attachments));
        self.found.extend(found_in(tgid, &plans)?);
        for plan in plans {
            log::info!("process {tgid}: probes in {}", plan.description());
        }
        Ok(true)
    }

    /// A process has replaced its program. Probes go by file, so they are in place already where the
    /// new program uses the same allocator file. They are put in anew when another thread than the
    /// first did it: the kernel filters by the first thread's identity, which is gone then. Whether
    /// probes were put in.
    ///
    /// # Errors
    /// When the new program has no allocator that can be seen, perhaps because it has not loaded it yet, or
    /// when the probes would kill it; then it has none any more.
    pub(crate) fn follow_exec(&mut self, tgid: u32, by_leader: bool) -> Result<bool> {
        if let Err(refusal) = check_seccomp(tgid, self.force) {
            // At once: any return could be its last.
            self.attached.remove(&tgid);
            return Err(refusal);
        }
        // The kernel side has done so itself, unless it was then told that an earlier process of this id ended.
        self.kernel_side.watch(tgid)?;
        if !by_leader {
            self.detach(tgid);
        }
        self.refresh(tgid)
    }

    fn detach(&mut self, tgid: u32) {
        if let Some(attached) = self.attached.remove(&tgid) {
            self.detacher.detach(attached);
        }
    }

    /// Forgets a process that has ended.
    pub(crate) fn remove(&mut self, tgid: u32) {
        self.detach(tgid);
        if let Err(error) = self.kernel_side.forget(tgid) {
            log::warn!("{error:#}");
        }
    }

    /// Stops the sampling, then takes all probes out: a block sampled while its `free` probe is
    /// already out would look like a leak.
    pub(crate) fn take_out(mut self) -> Result<()> {
        self.kernel_side.settings.stop()?;
        self.attached.clear();
        self.detacher.finish()
    }
}

fn found_in(tgid: u32, plans: &[FilePlan]) -> Result<Vec<FoundAllocator>> {
    let executable = proc_fs::process_info(tgid.cast_signed())?.executable;
    let found = |plan: &FilePlan| FoundAllocator {
        tgid,
        file: plan.id(),
        path: plan.mapped_path().to_owned(),
        part: plan.part(&executable),
    };
    Ok(plans.iter().map(found).collect())
}

fn pair(plans: &[FilePlan], attachments: Vec<Attachment>) -> Vec<Attached> {
    let pairs = plans.iter().zip(attachments);
    let attached =
        |(plan, attachment): (&FilePlan, _)| Attached { file: plan.id(), stepped: stepped(plan), attachment };
    pairs.map(attached).collect()
}

/// The kinds whose main function in this file has a probe that is single-stepped.
fn stepped(plan: &FilePlan) -> Vec<FunctionKind> {
    let plan = slice::from_ref(plan);
    FunctionKind::ALL.into_iter().filter(|&kind| is_stepped(plan, kind)).collect()
}

fn may_throw(plan: &FilePlan) -> bool {
    plan.sites.iter().any(|site| site.kind.may_throw())
}

/// Why a C++ exception may meet return probes in the functions of `plans`, which would end the target.
fn why_unsafe(plans: &[FilePlan], tgid: u32, mode: AttachMode, force: bool) -> Result<Option<String>> {
    if force || !plans.iter().any(may_throw) {
        return Ok(None);
    }
    Ok(match memory_limits::limit_of(tgid.cast_signed())? {
        Some(limit) => Some(limit),
        None if !mode.can_skip_returns() => Some(format!("{mode} cannot leave out those that may fail")),
        None => None,
    })
}

/// Takes the functions out of `plans` that may throw. Returns, in words, what that was and why.
fn leave_out(plans: &mut [FilePlan], reason: &str) -> Option<String> {
    let of: Vec<String> = plans.iter().filter(|plan| may_throw(plan)).map(FilePlan::description).collect();
    for plan in plans {
        plan.sites.retain(|site| !site.kind.may_throw());
    }
    (!of.is_empty()).then(|| {
        format!(
            "calls of operator new in {} are not seen, because an exception thrown there would end the target and {reason} \
             (--force sees them all the same)",
            of.join(", ")
        )
    })
}

/// Takes probes out of functions that may throw, in a process that has got them before that was unsafe. At
/// once: the detacher may have others to do first.
fn take_out_unsafe(attached: &mut [Attached], plans: &[FilePlan], tgid: u32, reason: &str) {
    for attached in attached {
        if attached.attachment.take_out_throwing() {
            attached.stepped.retain(|kind| !kind.may_throw());
            let file = plans.iter().find(|plan| plan.id() == attached.file).map(FilePlan::description);
            present::message(&format!(
                "process {tgid}: calls of operator new in {} are not seen any more, because an exception thrown there \
                 would end it and {reason}",
                file.unwrap_or_default()
            ));
        }
    }
}

/// Where the probes are, in words.
fn summary(plans: &[FilePlan], mode: AttachMode) -> String {
    let count: usize = plans.iter().map(|plan| plan.sites.len()).sum();
    let files: Vec<String> = plans.iter().map(FilePlan::description).collect();
    let mut text = format!("{count} probes by {mode} in {}", files.join(", "));
    if let Some((functions, first)) = single_stepped(plans) {
        text += &format!(
            "; {functions} single-stepped (at `{}`), which costs several times as much",
            first.instruction
        );
    }
    text
}
