//! Allocation sites: one stack of one process each, with everything that was allocated there.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::estimate::Estimate;
use crate::live::{ProcessIndex, SiteId};
use crate::stack::{Frame, Stack, StackId, StackTable};

/// The sites of a session, by [`SiteId`].
#[derive(Debug, Default)]
pub(super) struct Sites {
    stacks: StackTable,
    allocated: IndexMap<(ProcessIndex, StackId), Estimate, FxBuildHasher>,
}

impl Sites {
    /// Adds a sampled block to the site that its process and stack name.
    pub(super) fn add(&mut self, process: ProcessIndex, frames: &[Frame], block: Estimate) -> SiteId {
        let entry = self.allocated.entry((process, self.stacks.intern(frames)));
        let index = u32::try_from(entry.index()).expect("fewer than 2^32 sites");
        *entry.or_default() += block;
        SiteId(index)
    }

    /// Process, stack and everything allocated of each site, in [`SiteId`] order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (ProcessIndex, &Stack, Estimate)> {
        self.allocated.iter().map(|(&(process, stack), &sum)| (process, self.stacks.get(stack), sum))
    }
}
