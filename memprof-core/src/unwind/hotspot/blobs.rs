//! The blobs that are known, and what proves that they were there when a stack was copied.
//!
//! A blob is read once and used for many stacks. When a stack has been walked, the identities of all compiled
//! methods that it relied on are read again:
//!
//! ```text
//!     read          stack copied          identity read again: the same
//! ─────┼─────────────────┼──────────────────────────┼──────► time
//!      └──────────── the method was there ──────────┘
//! ```
//! One that was read after the stack was copied may have taken the place of another one. It is trusted only
//! when it was read soon, and only for return addresses that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::blob::{Blob, BlobKind};
use super::code_cache::CodeCache;
use super::layout::Layout;
use super::witness::Proof;
use crate::address::Avma;
use crate::java::FrameKinds;
use crate::memory::Piece;
use crate::stack::{Frame, Truncation};
use crate::unwind::JavaContext;

/// Most blobs remembered, after which all are forgotten. A large server runs some ten thousand methods in
/// stacks with allocations.
const MAX_BLOBS: usize = 1 << 14;

/// Most return addresses of all of them: about 32 MiB.
const MAX_ADDRESSES: usize = 1 << 22;

/// Nanoseconds after which a stack's methods may have been replaced before they were first looked at (250 ms).
const LATE: u64 = 250_000_000;

/// Longest that an event is believed to take (10 ms): a blob's time is from before it was read.
const READING: u64 = 10_000_000;

/// The frames that a return address stands for, innermost first.
pub(super) type Frames = Arc<[(Frame, FrameKinds)]>;

/// The blobs of one process.
#[derive(Default)]
pub(super) struct Blobs {
    /// By start, without overlaps.
    known: BTreeMap<Avma, Known>,
    /// Return addresses of all of them.
    addresses: usize,
    /// Compiled methods, by start, whose identity is to be read again for the stack at hand.
    relied: Vec<Avma>,
    /// Frames told in this walk, by blob and return address: remembered once the walk is proven.
    told: Vec<(Avma, Avma, Frames)>,
    /// Compiled methods that were found replaced, for the stack at hand.
    replaced: Vec<Arc<Blob>>,
}

struct Known {
    blob: Arc<Blob>,
    /// A moment shortly before it was read.
    read_at: u64,
    /// When its identity was last read and still the same; 0 before the first time.
    checked_at: u64,
    /// What its return addresses stand for.
    frames: FxHashMap<Avma, Frames>,
}

/// A blob that was found.
pub(super) struct Found {
    pub(super) blob: Arc<Blob>,
    /// Whether it was read before the stack was copied: if its identity is still the same, it was there.
    pub(super) is_old: bool,
}

impl Blobs {
    /// A stack is about to be walked, for the first time or again.
    pub(super) fn begin(&mut self) {
        self.relied.clear();
        self.told.clear();
        if self.known.len() > MAX_BLOBS || self.addresses > MAX_ADDRESSES {
            self.known.clear();
            self.addresses = 0;
        }
    }

    /// Another stack is at hand.
    pub(super) fn forget_replaced(&mut self) {
        self.replaced.clear();
    }

    /// The blob around an address.
    pub(super) fn find(
        &mut self,
        pc: Avma,
        cache: &CodeCache,
        layout: &Layout,
        context: &mut JavaContext<'_>,
    ) -> Result<Found, Truncation> {
        let start = match self.start(pc) {
            Some(start) => start,
            None => {
                let blob = Blob::read(pc, cache, layout, &mut context.memory);
                self.add(blob.ok_or(Truncation::UnknownJavaCode)?, context.memory.now())
            }
        };
        let known = self.known.get(&start).ok_or(Truncation::UnknownJavaCode)?;
        let found = Found {
            blob: Arc::clone(&known.blob),
            is_old: known.read_at.saturating_add(READING) < context.time,
        };
        if let BlobKind::Method(method) = &found.blob.kind {
            if known.read_at.saturating_sub(context.time) > LATE {
                return Err(Truncation::TooLate);
            }
            if known.checked_at < context.time {
                self.rely_on(start);
            }
            let was_replaced = |old: &Arc<Blob>| {
                let knows = |method: &super::blob::Nmethod| method.is_return_address(pc);
                old.range.contains(&pc) && (old.method().is_some_and(knows) || !knows(method))
            };
            if self.replaced.iter().any(was_replaced) {
                return Err(Truncation::StaleJavaCode);
            }
        }
        Ok(found)
    }

    /// What a return address stands for, if that has been told before.
    pub(super) fn frames(&self, blob: &Blob, pc: Avma) -> Option<Frames> {
        let told = self.told.iter().find(|(start, address, _)| (*start, *address) == (blob.range.start, pc));
        match told {
            Some((_, _, frames)) => Some(Arc::clone(frames)),
            None => self.known.get(&blob.range.start)?.frames.get(&pc).cloned(),
        }
    }

    /// Remembers what a return address stands for, which was read just now: it is true if the blob is still
    /// there.
    pub(super) fn tell(&mut self, blob: &Blob, pc: Avma, frames: Frames) {
        if blob.method().is_some() {
            self.rely_on(blob.range.start);
        }
        self.told.push((blob.range.start, pc, frames));
    }

    /// Asks for what to read again for the walk that is done.
    pub(super) fn want(&self, proof: &mut Proof) {
        let relied = self.relied.iter().filter_map(|start| self.known.get(start));
        for method in relied.filter_map(|known| known.blob.method()) {
            method.witness.want(proof);
        }
    }

    /// Whether all compiled methods that the walk relied on are still there, by what was wanted and has been
    /// read. Those that are not are forgotten.
    pub(super) fn settle(&mut self, read: &mut &[Piece], now: u64) -> bool {
        let mut all_hold = true;
        for start in std::mem::take(&mut self.relied) {
            let Some(known) = self.known.get_mut(&start) else {
                // Something else was found in its place within this walk.
                all_hold = false;
                continue;
            };
            let Some(method) = known.blob.method() else { continue };
            if method.witness.holds(read) {
                known.checked_at = now;
            } else {
                all_hold = false;
                let gone = self.forget(start);
                self.replaced.extend(gone);
            }
        }
        all_hold
    }

    /// Remembers what has been told in the walk: it is proven.
    pub(super) fn keep_told(&mut self) {
        for (start, pc, frames) in std::mem::take(&mut self.told) {
            if let Some(known) = self.known.get_mut(&start) {
                self.addresses += 1 + frames.len();
                known.frames.insert(pc, frames);
            }
        }
    }

    fn rely_on(&mut self, start: Avma) {
        if !self.relied.contains(&start) {
            self.relied.push(start);
        }
    }

    /// Start of the known blob around an address.
    fn start(&self, pc: Avma) -> Option<Avma> {
        let (start, known) = self.known.range(..=pc).next_back()?;
        known.blob.range.contains(&pc).then_some(*start)
    }

    fn add(&mut self, blob: Blob, now: u64) -> Avma {
        let range = blob.range.clone();
        // What lies where this one lies is gone.
        while let Some((&start, _)) =
            self.known.range(..range.end).next_back().filter(|(_, known)| known.blob.range.end > range.start)
        {
            self.forget(start);
        }
        self.addresses += blob.method().map_or(0, |method| method.pcs.len());
        let known = Known { blob: Arc::new(blob), read_at: now, checked_at: 0, frames: FxHashMap::default() };
        self.known.insert(range.start, known);
        range.start
    }

    fn forget(&mut self, start: Avma) -> Option<Arc<Blob>> {
        let known = self.known.remove(&start)?;
        let frames = known.frames.values().map(|frames| 1 + frames.len()).sum();
        let descs = known.blob.method().map_or(0, |method| method.pcs.len());
        self.addresses = self.addresses.saturating_sub(descs).saturating_sub(frames);
        Some(known.blob)
    }
}
