//! The kernel's live table as user space sees it: reading it whole, and taking entries out while the
//! probes go on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use aya::Pod;
use aya::maps::{Array, HashMap, Map, MapData, MapError};
use memprof_common::live::{LiveKey, LiveValue, OCCUPANCY_PROBES, OCCUPANCY_RELEASED};
use memprof_core::input::BlockName;

use super::raw;

/// Wrapper that lets aya read keys of the live table.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct LiveKeyValue(LiveKey);
// SAFETY: a repr(C) structure of integers without padding.
unsafe impl Pod for LiveKeyValue {}

/// Wrapper that lets aya read values of the live table.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct LiveBlockValue(LiveValue);
// SAFETY: a repr(C) structure of one integer.
unsafe impl Pod for LiveBlockValue {}

/// The table and the count of its entries.
pub(crate) struct LiveTable {
    map: HashMap<MapData, LiveKeyValue, LiveBlockValue>,
    fd: OwnedFd,
    occupancy: Array<MapData, u64>,
    released: u64,
}

/// What became of an entry that was to be taken out.
enum Removal {
    /// It is gone now.
    Done,
    /// It was gone before, or another block had taken its place.
    NotThere,
    /// Another block took its place at the last moment; its entry is gone, its allocation time this.
    Wrong(u64),
}

impl LiveTable {
    pub(super) fn new(live: Map, occupancy: Map) -> Result<Self> {
        let fd = raw::map_fd("LIVE", &live)?.try_clone_to_owned().context("duplicating a descriptor")?;
        Ok(Self {
            map: live.try_into().context("opening the kernel's live table")?,
            fd,
            occupancy: occupancy.try_into().context("opening the occupancy of the kernel's live table")?,
            released: 0,
        })
    }

    /// Number of entries.
    pub(crate) fn occupancy(&self) -> Result<u64> {
        let added = self.occupancy.get(&OCCUPANCY_PROBES, 0).context("reading the live table's occupancy")?;
        Ok(added.saturating_sub(self.released))
    }

    /// Every block in the table.
    pub(crate) fn blocks(&self) -> Result<Vec<BlockName>> {
        let entries = raw::lookup_all::<LiveKey, LiveValue>(self.fd.as_fd())
            .context("reading the kernel's live table")?;
        Ok(entries.into_iter().map(|(key, value)| (key.tgid, key.address, value.allocated_at)).collect())
    }

    /// Takes these blocks out. Returns those that were taken out in place of one of them, because they
    /// had just got its address.
    pub(crate) fn release(&mut self, blocks: &[BlockName]) -> Result<Vec<BlockName>> {
        let mut wrong = Vec::new();
        let released_before = self.released;
        for &(tgid, address, allocated_at) in blocks {
            match self.remove(LiveKey { address, tgid, reserved: 0 }, allocated_at)? {
                Removal::NotThere => continue,
                Removal::Done => {}
                Removal::Wrong(other) => wrong.push((tgid, address, other)),
            }
            self.released += 1;
        }
        if self.released != released_before {
            // After the removals, so that the difference is never too small.
            self.occupancy
                .set(OCCUPANCY_RELEASED, self.released, 0)
                .context("writing the live table's occupancy")?;
        }
        Ok(wrong)
    }

    /// Takes out the blocks of a process that were handed out before `time`.
    pub(crate) fn forget(&mut self, tgid: u32, time: u64) -> Result<()> {
        let mut blocks = self.blocks()?;
        blocks.retain(|&(owner, _, allocated_at)| owner == tgid && allocated_at < time);
        // One that took such a block's place belongs to the new program: it goes on unseen, as if it had
        // been handed out before.
        self.release(&blocks).map(drop)
    }

    fn remove(&mut self, key: LiveKey, allocated_at: u64) -> Result<Removal> {
        // Looked at first, so that an address which has long been handed out again is left alone.
        match self.map.get(&LiveKeyValue(key), 0) {
            Ok(LiveBlockValue(value)) if value.allocated_at == allocated_at => {}
            Ok(_) | Err(MapError::KeyNotFound) => return Ok(Removal::NotThere),
            Err(error) => return Err(error).context("looking into the kernel's live table"),
        }
        match raw::lookup_and_delete::<LiveKey, LiveValue>(self.fd.as_fd(), &key) {
            Ok(value) if value.allocated_at == allocated_at => Ok(Removal::Done),
            Ok(value) => Ok(Removal::Wrong(value.allocated_at)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Removal::NotThere),
            // Before kernel 5.14: whether it was the right one in the last microsecond is not known.
            Err(_) => match self.map.remove(&LiveKeyValue(key)) {
                Ok(()) => Ok(Removal::Done),
                Err(MapError::KeyNotFound) => Ok(Removal::NotThere),
                Err(error) => Err(error).context("taking entries out of the kernel's live table"),
            },
        }
    }
}
