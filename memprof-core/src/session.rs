//! A session: takes inputs in their order and keeps what a profile needs. It is the same for a live
//! run and for the replay of a recording.
//!
//! ```text
//!  Process, Exit ─► watched ──┐ which life of the process id
//!  Module, Mappings ─► table ─┤ where code is
//!  Event ─► decode ─┬─ alloc ─► unwind ─► sites (allocated: sums that only grow)
//!                   │                └──► live table ◄── LiveBlocks (repair)
//!                   ├─ free ────────────► live table
//!                   └─ exec ────────────► live table emptied for the process, its mappings forgotten
//!  snapshot: live table ─► in use, by site
//! ```
//! Only what a snapshot shows is kept; no event is. What cannot be used is counted, never an error.

mod sites;
mod snapshot;
#[cfg(test)]
mod tests;
mod watched;

use memprof_common::event::{AllocEvent, ExecEvent, FreeEvent};
use rustc_hash::FxHashSet;

use self::sites::Sites;
use self::watched::Watched;
use crate::decode::{Event, decode};
use crate::estimate::Estimate;
use crate::input::{Input, ProcessInfo, RunInfo};
use crate::live::{Block, BlockKey, LiveTable, ProcessIndex};
use crate::process::module::ModuleIndex;
use crate::process::table::ProcessTable;
use crate::profile::{Coverage, Losses};
use crate::stack::{Frame, Truncation};
use crate::symbols::{SymbolKey, Symbols};
use crate::unwind::StackEnd;

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ingested {
    /// It was taken in.
    Done,
    /// It was not, and nothing has changed: a stack runs through code that no known mapping holds.
    /// Read the process' mappings again, ingest them, then ingest the event again for the last time.
    NeedsMappings {
        /// Process id.
        tgid: u32,
    },
}

/// The moment at which the session is.
#[derive(Debug, Default)]
struct Clock {
    newest: u64,
    end: Option<u64>,
}

impl Clock {
    fn advance(&mut self, time: u64) {
        self.newest = self.newest.max(time);
    }

    fn now(&self) -> u64 {
        self.end.unwrap_or(self.newest)
    }
}

/// All state of a run.
#[derive(Default)]
pub struct Session {
    run: RunInfo,
    clock: Clock,
    watched: Watched,
    table: ProcessTable,
    sites: Sites,
    live: LiveTable,
    coverage: Coverage,
    losses: Losses,
    symbols: Symbols,
    /// Frames of the stack at hand: kept for its memory alone.
    frames: Vec<Frame>,
}

impl Session {
    /// A session that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in one input. An event is taken in whatever mappings are known, as in a replay; a live
    /// run gives its events to [`Session::ingest_event`] first.
    pub fn ingest(&mut self, input: &Input<'_>) -> Ingested {
        match input {
            Input::Run(run) => {
                self.clock.advance(run.started_at);
                self.run = run.clone();
            }
            Input::Process(info) => self.add_process(info),
            Input::Module(image) => {
                self.table.add_module(image.clone());
            }
            Input::Mappings { tgid, text } => self.set_mappings(*tgid, text),
            Input::Event(bytes) => return self.ingest_event(bytes, true),
            Input::Counters(counters) => self.losses.kernel = *counters,
            Input::LiveBlocks(held) => self.repair(held),
            Input::Exit { tgid, time } => self.exit(*tgid, *time),
            Input::RecordingLost { inputs } => self.losses.recording_lost += inputs,
            Input::End { time } => self.clock.end = Some(*time),
            Input::Symbols(symbols) => {
                for (module, lookup, frames) in symbols {
                    let key = SymbolKey { module: ModuleIndex(*module), lookup: *lookup };
                    self.symbols.insert(key, frames.clone());
                }
            }
        }
        Ingested::Done
    }

    /// Takes in one event of the ring. Unless this is the `last_try`, an event whose stack runs
    /// through unknown code is refused with [`Ingested::NeedsMappings`] and leaves no trace.
    pub fn ingest_event(&mut self, bytes: &[u8], last_try: bool) -> Ingested {
        match decode(bytes) {
            Ok(Event::Alloc { event, stack }) => return self.alloc(&event, stack, last_try),
            Ok(Event::Free(event)) => self.free(&event),
            Ok(Event::Exec(event)) => self.exec(&event),
            Err(_) => self.losses.undecodable_events += 1,
        }
        Ingested::Done
    }

    /// The names that the session has been given.
    #[must_use]
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    fn alloc(&mut self, event: &AllocEvent, stack: &[u8], last_try: bool) -> Ingested {
        let tgid = event.header.tgid;
        let Some((process, unwinder)) = self.watched.running(tgid).zip(self.table.get_mut(tgid)) else {
            self.losses.foreign_events += 1;
            return Ingested::Done;
        };
        self.frames.clear();
        let end = unwinder.unwind(event, stack, &mut self.frames);
        if end == StackEnd::Truncated(Truncation::UnknownCode) && !last_try {
            return Ingested::NeedsMappings { tgid };
        }
        self.clock.advance(event.header.time);
        self.count_end(end);
        self.hold(process, event);
        Ingested::Done
    }

    fn count_end(&mut self, end: StackEnd) {
        self.coverage.samples += 1;
        match end {
            StackEnd::Complete => self.coverage.complete += 1,
            StackEnd::Java | StackEnd::Truncated(Truncation::JavaCode) => self.coverage.java += 1,
            StackEnd::Truncated(_) => self.coverage.truncated += 1,
        }
    }

    /// Adds the block of an event whose stack is in `frames`.
    fn hold(&mut self, process: ProcessIndex, event: &AllocEvent) {
        let estimate = Estimate::of_block(event.size, event.probability);
        let site = self.sites.add(process, &self.frames, estimate);
        let key = BlockKey { process, address: event.address, allocated_at: event.header.time };
        if event.replaces != 0 {
            // Not held is fine: the block may date from before an exec.
            self.live.remove(&BlockKey { allocated_at: event.replaces, ..key });
        }
        self.live.insert(key, Block { site, size: event.size, probability: event.probability });
    }

    fn free(&mut self, event: &FreeEvent) {
        let Some(process) = self.watched.running(event.header.tgid) else {
            self.losses.foreign_events += 1;
            return;
        };
        self.clock.advance(event.header.time);
        let key = BlockKey { process, address: event.address, allocated_at: event.allocated_at };
        if self.live.remove(&key).is_none() {
            self.losses.unknown_frees += 1;
        }
    }

    fn exec(&mut self, event: &ExecEvent) {
        let Some(process) = self.watched.running(event.header.tgid) else {
            self.losses.foreign_events += 1;
            return;
        };
        self.clock.advance(event.header.time);
        self.live.remove_process(process);
        // This forgets the mappings: the old program's would name the new one's code wrongly.
        self.table.add_process(self.watched.life(process).info.clone());
    }

    fn add_process(&mut self, info: &ProcessInfo) {
        self.watched.describe(info.clone(), self.clock.now());
        self.table.add_process(info.clone());
    }

    fn set_mappings(&mut self, tgid: u32, text: &str) {
        if self.watched.running(tgid).is_none() {
            self.losses.foreign_events += 1;
        } else if self.table.set_mappings(tgid, text).is_err() {
            self.losses.undecodable_events += 1;
        }
    }

    fn exit(&mut self, tgid: u32, time: u64) {
        self.clock.advance(time);
        if self.watched.end(tgid, time) {
            self.table.exit(tgid);
        } else {
            self.losses.foreign_events += 1;
        }
    }

    /// Frees the blocks of running processes that the kernel no longer holds.
    fn repair(&mut self, held: &[(u32, u64, u64)]) {
        let held: FxHashSet<BlockKey> = held
            .iter()
            .filter_map(|&(tgid, address, allocated_at)| {
                let process = self.watched.running(tgid)?;
                Some(BlockKey { process, address, allocated_at })
            })
            .collect();
        let watched = &self.watched;
        let freed = self.live.retain_held(&held, |process| watched.life(process).ended_at.is_none());
        self.losses.repaired_frees += freed as u64;
    }
}
