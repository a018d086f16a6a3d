//! The probe programs, loaded when a place needs them, and the probes that they are linked to.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, anyhow};
use aya::Ebpf;
use aya::programs::ProgramError;
use aya::programs::uprobe::{UProbe, UProbeAttachLocation, UProbeLink, UProbeScope};
use memprof_common::function::{FunctionKind, Nesting};

use super::attach::AttachMode;
use super::raw::{LinkKind, RelocatedObject, link_uprobes};
use super::sites::FilePlan;

/// The allocating functions' programs, those of functions that may call others first: so that while
/// probes go in one after the other no inner call is taken for an outer one.
const ALLOCATING: [(FunctionKind, Nesting, &str); 14] = [
    (FunctionKind::ReallocArray, Nesting::Outer, "reallocarray_outer"),
    (FunctionKind::ReallocOrFree, Nesting::Outer, "realloc_or_free_outer"),
    (FunctionKind::Realloc, Nesting::Outer, "realloc_outer"),
    (FunctionKind::ResizeInPlace, Nesting::Outer, "resize_in_place_outer"),
    (FunctionKind::PosixMemalign, Nesting::Outer, "posix_memalign_outer"),
    (FunctionKind::NewArray, Nesting::Outer, "new_array_outer"),
    (FunctionKind::New, Nesting::Outer, "new_outer"),
    (FunctionKind::AlignedAlloc, Nesting::Outer, "aligned_alloc_outer"),
    (FunctionKind::Calloc, Nesting::Outer, "calloc_outer"),
    (FunctionKind::Malloc, Nesting::Outer, "malloc_outer"),
    (FunctionKind::New, Nesting::Leaf, "new"),
    (FunctionKind::AlignedAlloc, Nesting::Leaf, "aligned_alloc"),
    (FunctionKind::Calloc, Nesting::Leaf, "calloc"),
    (FunctionKind::Malloc, Nesting::Leaf, "malloc"),
];

const RETURNED: &str = "returned";
const ENTRY_FREE: &str = "entry_free";
const EMPTY: &str = "empty";

/// The probe programs of one mode.
pub(crate) struct Programs {
    mode: AttachMode,
    /// Whether they are replaced by one that does nothing.
    empty: bool,
    /// Those linked by `BPF_LINK_CREATE`, by name.
    linked: HashMap<String, OwnedFd>,
    /// Those that aya has loaded, by name.
    perf: HashSet<String>,
}

/// What keeps the probes in one file of one process in place. Dropping it takes them out: those of the
/// allocating functions first, so that no block is sampled whose free would be missed.
pub(crate) struct Attachment {
    links: Vec<(FunctionKind, Link)>,
}

impl Attachment {
    /// Takes out the probes of functions that may throw, at once. Whether there were any.
    pub(crate) fn take_out_throwing(&mut self) -> bool {
        let all = self.links.len();
        self.links.retain(|(kind, _)| !kind.may_throw());
        self.links.len() < all
    }
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
    /// None loaded yet.
    pub(crate) fn new(mode: AttachMode) -> Self {
        Self { mode, empty: false, linked: HashMap::new(), perf: HashSet::new() }
    }

    /// Programs that do nothing, by the best mode, to measure what the traps alone cost.
    pub(crate) fn empty() -> Self {
        Self { empty: true, ..Self::new(AttachMode::Session) }
    }

    /// Puts the probes of `plan` into the process `pid`.
    ///
    /// The order matters: `free` first, so that no sampled block's free is missed; returns before
    /// entries, so that every entry seen has its return seen.
    pub(crate) fn attach(
        &mut self,
        ebpf: &mut Ebpf,
        object: &RelocatedObject,
        plan: &FilePlan,
        pid: u32,
    ) -> Result<Attachment> {
        let is_session = self.mode == AttachMode::Session;
        let (prefix, entry) =
            if is_session { ("session", LinkKind::Session) } else { ("entry", LinkKind::Entry) };
        let mut attachment = Attachment { links: Vec::new() };
        let mut put = |function, name: &str, kind, offsets: &[u64]| {
            if offsets.is_empty() {
                return Ok(());
            }
            let links = if self.mode == AttachMode::Perf {
                self.attach_perf(ebpf, name, plan, offsets, pid)?
            } else {
                vec![self.link(object, name, kind, plan, offsets, pid)?]
            };
            attachment.links.extend(links.into_iter().map(|link| (function, link)));
            anyhow::Ok(())
        };
        let free = FunctionKind::Free;
        put(free, ENTRY_FREE, LinkKind::Entry, &plan.offsets(free, Nesting::Leaf))?;
        for (kind, nesting, name) in ALLOCATING {
            let offsets = plan.offsets(kind, nesting);
            if !is_session {
                put(kind, RETURNED, LinkKind::Return, &offsets)?;
            }
            put(kind, &format!("{prefix}_{name}"), entry, &offsets)?;
        }
        Ok(attachment)
    }

    fn link(
        &mut self,
        object: &RelocatedObject,
        name: &str,
        kind: LinkKind,
        plan: &FilePlan,
        offsets: &[u64],
        pid: u32,
    ) -> Result<Link> {
        // An empty program is loaded once for each way to call it.
        let program = if self.empty { EMPTY } else { name };
        let key = if self.empty { format!("{EMPTY} {kind:?}") } else { name.to_owned() };
        if !self.linked.contains_key(&key) {
            self.linked.insert(key.clone(), object.load(program, kind)?);
        }
        let fd = link_uprobes(self.linked[&key].as_fd(), kind, &plan.path(), offsets, pid)
            .with_context(|| format!("attaching {name} by {}", self.mode))?;
        Ok(Link::Raw(fd))
    }

    fn attach_perf(
        &mut self,
        ebpf: &mut Ebpf,
        name: &str,
        plan: &FilePlan,
        offsets: &[u64],
        pid: u32,
    ) -> Result<Vec<Link>> {
        let program = uprobe(ebpf, name)?;
        if self.perf.insert(name.to_owned()) {
            // The error carries the whole log of the verifier, thousands of lines.
            program.load().map_err(|error| match error {
                ProgramError::LoadError { io_error, .. } => {
                    anyhow!("loading the eBPF program {name}: {io_error}")
                }
                other => anyhow!("loading the eBPF program {name}: {other}"),
            })?;
        }
        let scope = NonZeroU32::new(pid).map_or(UProbeScope::CallingProcess, UProbeScope::OneProcess);
        let attach = |&offset: &u64| {
            let id = program
                .attach(UProbeAttachLocation::AbsoluteOffset(offset), plan.path(), scope)
                .with_context(|| format!("attaching the eBPF program {name}"))?;
            Ok(Link::Perf(program.take_link(id).context("taking over a probe")?))
        };
        offsets.iter().map(attach).collect()
    }
}

fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut UProbe> {
    let program = ebpf.program_mut(name).ok_or_else(|| anyhow!("no eBPF program {name}"))?;
    program.try_into().with_context(|| format!("eBPF program {name}"))
}
