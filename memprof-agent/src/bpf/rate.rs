//! How busy the targets' allocators are, measured with one cheap probe each before the others go in.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use aya::maps::{MapData, PerCpuArray};
use memprof_common::function::FunctionKind;

use super::counters::duplicate;
use super::kernel_side::KernelSide;
use super::raw::{LinkKind, link_uprobes};
use super::sites::FilePlan;

/// The program that counts calls.
const COUNT_CALLS: &str = "count_calls";
/// The rate is not believed before it has been watched for this long.
const SHORTEST: Duration = Duration::from_millis(200);
/// Nor is it watched for longer.
const LONGEST: Duration = Duration::from_secs(1);
/// How often the count is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Calls of the targets' main allocating functions.
pub(crate) struct RateProbe {
    counter: PerCpuArray<MapData, u64>,
    program: OwnedFd,
    links: Vec<OwnedFd>,
}

impl RateProbe {
    /// A probe that is in no process yet.
    pub(crate) fn new(kernel_side: &KernelSide) -> Result<Self> {
        Ok(Self {
            counter: duplicate(&kernel_side.ebpf, "CALLS_COUNTED")?,
            program: kernel_side.object.load(COUNT_CALLS, LinkKind::Entry)?,
            links: Vec::new(),
        })
    }

    /// Counts the calls of a file's main functions of two kinds: `malloc` and, where the allocator has it,
    /// `operator new`.
    pub(crate) fn add(&mut self, plan: &FilePlan, tgid: u32) -> Result<()> {
        let kinds = [FunctionKind::Malloc, FunctionKind::New];
        let sites = kinds.into_iter().filter_map(|kind| plan.main_site(kind));
        let offsets: Vec<u64> = sites.map(|site| site.file_offset).collect();
        if offsets.is_empty() {
            return Ok(());
        }
        let link = link_uprobes(self.program.as_fd(), LinkKind::Entry, &plan.path(), &offsets, tgid)
            .context("attaching a counting probe")?;
        self.links.push(link);
        Ok(())
    }

    /// Calls per second, watched until it is `clear` whether they are many or few.
    pub(crate) fn measure(self, clear: impl Fn(f64) -> bool) -> Result<f64> {
        let (started, before) = (Instant::now(), self.count()?);
        loop {
            std::thread::sleep(LOOK);
            let calls = self.count()? - before;
            let elapsed = started.elapsed();
            let rate = calls as f64 / elapsed.as_secs_f64();
            if elapsed >= LONGEST || (elapsed >= SHORTEST && clear(rate)) {
                return Ok(rate);
            }
        }
    }

    fn count(&self) -> Result<u64> {
        Ok(self.counter.get(&0, 0).context("reading the count of calls")?.iter().sum())
    }
}
