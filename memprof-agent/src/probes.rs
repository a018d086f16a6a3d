//! The probes of a run: which processes have them, and keeping that right across exec.

use std::collections::HashMap;

use anyhow::{Context, Result, anyhow};
use memprof_core::process::module::FileId;

use crate::bpf::attach::{AttachMode, Attachment, Programs, attach_by_ladder};
use crate::bpf::kernel_side::KernelSide;
use crate::bpf::sites::{AllocatorPlan, plan_allocator};
use crate::cli::ProbeArgs;

/// The probes in one process.
struct Attached {
    /// The allocator's file.
    file: FileId,
    /// Keeps them in place.
    _attachment: Attachment,
}

/// All probes of a run.
pub(crate) struct Probes {
    kernel_side: KernelSide,
    programs: Programs,
    /// How they are attached.
    pub(crate) mode: AttachMode,
    attached: HashMap<u32, Attached>,
    /// The first process's plan, for messages.
    pub(crate) plan: AllocatorPlan,
    /// Whether to attach where an allocator that cannot be probed is mapped too.
    force: bool,
}

impl Probes {
    /// Attaches to all processes, by the mode that was asked for or the best that works. All or none.
    pub(crate) fn attach(mut kernel_side: KernelSide, args: &ProbeArgs, tgids: &[u32]) -> Result<Self> {
        let force = args.force;
        let (&first, others) = tgids.split_first().ok_or_else(|| anyhow!("no process to attach to"))?;
        kernel_side.watch(first)?;
        let plan = plan_allocator(first, force)?;
        let KernelSide { ebpf, object, .. } = &mut kernel_side;
        let (mode, programs, attachment) =
            attach_by_ladder(args.attach_mode.forced(), ebpf, object, &plan.probes, first)?;
        let attached = HashMap::from([(first, Attached { file: plan.file, _attachment: attachment })]);
        let mut probes = Self { kernel_side, programs, mode, attached, plan, force };
        for &tgid in others {
            probes.kernel_side.watch(tgid)?;
            probes.add(tgid, plan_allocator(tgid, force)?)?;
        }
        Ok(probes)
    }

    fn add(&mut self, tgid: u32, plan: AllocatorPlan) -> Result<()> {
        let attachment = self
            .programs
            .attach(&mut self.kernel_side.ebpf, &plan.probes, tgid)
            .with_context(|| format!("attaching to process {tgid}"))?;
        self.attached.insert(tgid, Attached { file: plan.file, _attachment: attachment });
        Ok(())
    }

    /// A process has replaced its program. Probes go by file, so they are in place already when the
    /// new program uses the same allocator file; otherwise they move. They also are put in anew when
    /// another thread than the first did it: the kernel filters by the first thread's identity, which is
    /// gone then.
    ///
    /// # Errors
    /// When the new program has no allocator that can be probed, perhaps because it has not loaded it yet.
    pub(crate) fn follow_exec(&mut self, tgid: u32, by_leader: bool) -> Result<()> {
        let plan = plan_allocator(tgid, self.force)?;
        if by_leader && self.attached.get(&tgid).is_some_and(|attached| attached.file == plan.file) {
            return Ok(());
        }
        self.attached.remove(&tgid);
        self.add(tgid, plan)
    }

    /// Forgets a process that has ended.
    pub(crate) fn remove(&mut self, tgid: u32) {
        self.attached.remove(&tgid);
    }

    /// Stops the sampling, then takes all probes out: a block sampled while its `free` probe is
    /// already out would look like a leak.
    pub(crate) fn take_out(mut self) -> Result<()> {
        self.kernel_side.set_sample_interval(0)?;
        self.attached.clear();
        Ok(())
    }
}
