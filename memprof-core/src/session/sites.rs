//! Allocation sites: one stack of one process each, with everything that was allocated there.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::estimate::Estimate;
use crate::java::FrameKinds;
use crate::live::{ProcessIndex, SiteId};
use crate::stack::{Frame, Stack, StackBuffer, StackId, StackTable, Truncation};

/// Bytes of a site beside its frames: stack and site in their tables, with the growth of those, and its
/// points in the history.
const SITE_BYTES: u64 = 512;
/// The stack of all blocks for whose stacks there was no room.
const LOST: [Frame; 1] = [Frame::Truncated(Truncation::StackLost)];

/// The sites of a session, by [`SiteId`].
#[derive(Debug, Default)]
pub(super) struct Sites {
    /// Most bytes that stacks and sites may take, and those that they take.
    limit: Option<u64>,
    bytes: u64,
    stacks: StackTable,
    allocated: IndexMap<(ProcessIndex, StackId), Estimate, FxBuildHasher>,
}

impl Sites {
    /// Sets the most bytes that stacks and sites may take.
    pub(super) fn limit(&mut self, bytes: u64) {
        self.limit = Some(bytes);
    }

    /// Adds a sampled block to the site that its process and stack name. Without room for that site it
    /// goes to one of its process's that has [`Truncation::StackLost`] for a stack; the second value
    /// says so.
    pub(super) fn add(
        &mut self,
        process: ProcessIndex,
        stack: &StackBuffer,
        block: Estimate,
    ) -> (SiteId, bool) {
        let needed = self.needed(process, stack.frames());
        let lost = !self.has_room_for(needed);
        if !lost {
            self.bytes += needed;
        }
        let stack = if lost {
            self.stacks.intern(&LOST, &[])
        } else {
            self.stacks.intern(stack.frames(), stack.kinds())
        };
        let entry = self.allocated.entry((process, stack));
        let index = u32::try_from(entry.index()).expect("fewer than 2^32 sites");
        *entry.or_default() += block;
        (SiteId(index), lost)
    }

    /// Whether the site that process and stack name is known, or there is room for it.
    pub(super) fn has_room(&self, process: ProcessIndex, frames: &[Frame]) -> bool {
        self.has_room_for(self.needed(process, frames))
    }

    fn needed(&self, process: ProcessIndex, frames: &[Frame]) -> u64 {
        let known =
            self.stacks.find(frames).is_some_and(|stack| self.allocated.contains_key(&(process, stack)));
        if known { 0 } else { SITE_BYTES + size_of_val(frames) as u64 }
    }

    fn has_room_for(&self, needed: u64) -> bool {
        needed == 0 || self.limit.is_none_or(|limit| self.bytes + needed <= limit)
    }

    /// Adds bytes to what was allocated at a site, without another block.
    pub(super) fn add_bytes(&mut self, site: SiteId, bytes: u64) {
        if let Some((_, sum)) = self.allocated.get_index_mut(site.0 as usize) {
            sum.bytes += bytes as f64;
        }
    }

    /// How the frames of each site's stack were run, in [`SiteId`] order; empty where no frame is Java's.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &[FrameKinds]> {
        self.allocated.keys().map(|&(_, stack)| self.stacks.kinds(stack))
    }

    /// Process, stack and everything allocated of each site, in [`SiteId`] order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (ProcessIndex, &Stack, Estimate)> {
        self.allocated.iter().map(|(&(process, stack), &sum)| (process, self.stacks.get(stack), sum))
    }
}
