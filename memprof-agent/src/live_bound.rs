//! Keeps the live tables below their bound: thins them when they are nearly full, and takes what was
//! thinned out of the kernel's table.
//!
//! ```text
//! nearly full ─► raise the interval ─► take what is in the ring ─► the core thins ─► release, in rounds
//!                                                                     ring empty ─► settled
//! ```

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use anyhow::Result;
use memprof_common::sampling::pressure_marks;
use memprof_core::figures::MemoryFigures;
use memprof_core::input::{BlockName, Input};
use memprof_core::session::Session;

use crate::bpf::live_table::LiveTable;
use crate::bpf::settings::ProbeSettings;
use crate::host::clock::monotonic_ns;

/// Entries taken out of the kernel's table before the ring is looked at again: about 2 ms.
const RELEASED_PER_ROUND: usize = 2048;
/// How long to wait when nothing more can be thinned.
const PAUSE: Duration = Duration::from_secs(1);

/// The bound of the live tables and what is under way to keep it.
pub(crate) struct LiveBound {
    settings: ProbeSettings,
    memory: MemoryFigures,
    releasing: Vec<BlockName>,
    lost: Vec<BlockName>,
    unsettled: bool,
    next_try: Instant,
}

impl LiveBound {
    /// The bound that `memory` names.
    pub(crate) fn new(settings: ProbeSettings, memory: MemoryFigures) -> Self {
        Self {
            settings,
            memory,
            releasing: Vec::new(),
            lost: Vec::new(),
            unsettled: false,
            next_try: Instant::now(),
        }
    }

    /// Blocks that the tables can hold.
    pub(crate) fn capacity(&self) -> usize {
        usize::try_from(self.memory.live_capacity).unwrap_or(usize::MAX)
    }

    /// What the memory is used for.
    pub(crate) fn figures(&self, session: &Session) -> MemoryFigures {
        MemoryFigures { live_blocks: session.live_len() as u64, ..self.memory.clone() }
    }

    /// Raises the interval when the tables are nearly full: the new interval, to be thinned to after the
    /// ring has been drained.
    pub(crate) fn raise_interval(&mut self, session: &Session, live: &LiveTable) -> Result<Option<u64>> {
        let (full_from, _) = pressure_marks(self.memory.live_capacity);
        if !self.releasing.is_empty() || Instant::now() < self.next_try {
            return Ok(None);
        }
        if (session.live_len() as u64).max(live.occupancy()?) < full_from {
            return Ok(None);
        }
        let keep = usize::try_from(self.memory.live_capacity / 2)?;
        let raised = session.interval_to_keep(keep, self.settings.interval());
        match raised {
            Some(interval) => self.settings.set_interval(interval)?,
            None => self.next_try = Instant::now() + PAUSE,
        }
        Ok(raised)
    }

    /// The input that makes the core thin to `interval`.
    pub(crate) fn thin(interval: u64) -> Input<'static> {
        // Each RandomState has keys of its own from the system's random numbers.
        let seed = RandomState::new().hash_one(interval);
        Input::Thin { time: monotonic_ns(), interval, seed }
    }

    /// Queues the blocks that the core has thinned out for their removal from the kernel's table.
    pub(crate) fn release(&mut self, thinned: Vec<BlockName>) {
        self.releasing = thinned;
        self.unsettled = true;
    }

    /// Takes some of the queued blocks out.
    pub(crate) fn release_some(&mut self, live: &mut LiveTable) -> Result<()> {
        let rest = self.releasing.len().saturating_sub(RELEASED_PER_ROUND);
        self.lost.extend(live.release(&self.releasing[rest..])?);
        self.releasing.truncate(rest);
        Ok(())
    }

    /// The tables have been compared: frees of what was repaired may be on their way.
    pub(crate) fn unsettle(&mut self) {
        self.unsettled = true;
    }

    /// Whether there is something to tell once all has been taken that is in the ring.
    pub(crate) fn waits_for_events(&self) -> bool {
        self.unsettled && self.releasing.is_empty()
    }

    /// The input that tells the core that everything on its way has come, when there is something to tell.
    /// To be asked for when all has been taken that was in the ring.
    pub(crate) fn settled(&mut self) -> Option<Input<'static>> {
        if !self.waits_for_events() {
            return None;
        }
        self.unsettled = false;
        Some(Input::Settled { lost: std::mem::take(&mut self.lost) })
    }
}
