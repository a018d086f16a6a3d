//! A session: takes inputs in their order and keeps what a profile needs. It is the same for a live
//! run and for the replay of a recording.
//!
//! ```text
//!  Process, Exit ─► watched ──┐ which life of the process id
//!  Module, Mappings ─► table ─┤ where code is
//!  Event ─► decode ─┬─ alloc ─► unwind ─► sites (allocated: sums that only grow)
//!                   │                └──► live table ◄── LiveBlocks (repair)
//!                   ├─ free ────────────► live table
//!                   ├─ map, unmap … ────► memory maps (see `maps`)
//!                   ├─ fork ────────────► another process (see `family`)
//!                   └─ exec ────────────► live table emptied for the process, its mappings forgotten
//!  snapshot: live table ─► in use, by site
//! ```
//! Only what a snapshot shows is kept; no event is. What cannot be used is counted, never an error.

mod allocators;
mod family;
mod history;
mod maps;
mod sites;
mod snapshot;
#[cfg(test)]
mod tests;
mod thin;
mod watched;
mod window;

use std::sync::Arc;

use memprof_common::counter::Counter;
use memprof_common::event::{AllocEvent, EventHeader, ExecEvent, FreeEvent, StackSnapshot};
use rustc_hash::FxHashSet;

use self::history::History;
use self::maps::Maps;
use self::sites::Sites;
use self::thin::{Cause, Departed};
use self::watched::Watched;
use self::window::Window;
use crate::address::Avma;
use crate::decode::{Event, decode};
use crate::estimate::Estimate;
use crate::figures::RunFigures;
use crate::input::{Input, ProcessInfo, ProcessKey, RunInfo};
use crate::java::JavaMethods;
use crate::live::{Block, BlockKey, LiveTable, ProcessIndex};
use crate::memory::{MemorySource, ProcessMemory, RecordedMemory};
use crate::process::module::ModuleIndex;
use crate::process::table::ProcessTable;
use crate::profile::{Coverage, Losses};
use crate::run_event::{RunEvent, RunEventKind};
use crate::stack::{Frame, StackBuffer, Truncation};
use crate::symbols::{SymbolKey, Symbols};
use crate::threads::ThreadNames;
use crate::unwind::{JavaContext, StackEnd};

/// Most events of the run that are kept; those of a sane run are a handful.
const MAX_RUN_EVENTS: usize = 1000;

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
        /// The address of the code.
        address: Avma,
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

/// What was in use at earlier moments, and what went since without a free.
#[derive(Debug, Default)]
struct Past {
    history: History,
    window: Window,
    departed: Departed,
}

/// How good the run is.
#[derive(Debug, Default)]
struct Quality {
    coverage: Coverage,
    losses: Losses,
    /// What happened to the run, at most [`MAX_RUN_EVENTS`].
    events: Vec<RunEvent>,
    figures: Option<RunFigures>,
    /// Children that the probes saw being started, and no more.
    children_not_recorded: u64,
}

/// All state of a run.
// tidy: wide: one field per concern
#[derive(Default)]
pub struct Session {
    run: RunInfo,
    clock: Clock,
    watched: Watched,
    table: ProcessTable,
    sites: Sites,
    past: Past,
    live: LiveTable,
    maps: Maps,
    quality: Quality,
    symbols: Symbols,
    /// The methods that Java frames name.
    methods: JavaMethods,
    /// Names of threads, if stacks are told apart by them.
    threads: Option<ThreadNames>,
    /// In a replay, the memory that the next event needs.
    recorded: RecordedMemory,
    /// The stack at hand: kept for its memory alone.
    stack: StackBuffer,
}

impl Session {
    /// A session that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells stacks apart by the names of their threads from now on.
    pub fn tell_threads(&mut self) {
        self.threads.get_or_insert_default();
    }

    /// Takes in one input. An event is taken in whatever mappings are known, as in a replay; a live
    /// run gives its events to [`Session::ingest_event`] first.
    pub fn ingest(&mut self, input: &Input<'_>) -> Ingested {
        match input {
            Input::Run(run) => {
                self.clock.advance(run.started_at);
                self.past.history.start(run.started_at);
                self.past.window.start(run.started_at);
                self.run = RunInfo { scope: self.run.scope, ..run.clone() };
            }
            Input::Process(info) => self.add_process(info),
            Input::Module(image) => {
                self.table.add_module(image.clone());
            }
            Input::Mappings { tgid, text } => self.set_mappings(*tgid, text),
            Input::Event(bytes) => return self.replay_event(bytes),
            Input::Jvm { file, path, jvm } => self.table.add_jvm(*file, path, jvm.clone()),
            Input::Memory(reads) => self.recorded.set(reads),
            Input::Counters(counters) => {
                for (sum, &counter) in self.quality.losses.kernel.iter_mut().zip(counters) {
                    *sum = counter;
                }
            }
            Input::LiveBlocks(held) => self.repair(held),
            Input::Exit { tgid, time } => self.exit(*tgid, *time),
            Input::RecordingLost { inputs } => self.quality.losses.recording_lost += inputs,
            Input::RunEvent(event) => self.note(event),
            Input::Limits { stack_bytes } => self.sites.limit(*stack_bytes),
            Input::Thin { time, interval, seed } => self.thin(*time, *interval, *seed),
            Input::Settled { lost } => self.settle(lost),
            Input::Figures(figures) => self.quality.figures = Some(figures.clone()),
            Input::End { time } => self.end(*time),
            Input::Scope(scope) => self.run.scope = *scope,
            Input::Allocator { file, path, part } => {
                if let Some(module) = self.table.find_module(*file, path) {
                    self.maps.allocators.add(module, part.clone());
                }
            }
            Input::ProbesInPlace { tgid, time } => self.probes_in_place(*tgid, *time),
            Input::Symbols(symbols) => {
                for (module, lookup, frames) in symbols {
                    let key = SymbolKey { module: ModuleIndex(*module), lookup: *lookup };
                    self.symbols.insert(key, frames.clone());
                }
            }
        }
        Ingested::Done
    }

    /// A session that looks at a part of a run only: until so many nanoseconds after its start, and with
    /// the growth since so many nanoseconds after its start. Counters are those of the whole run.
    #[must_use]
    pub fn of_part(from: Option<u64>, until: Option<u64>) -> Self {
        let past = Past { window: Window::new(from, until), ..Past::default() };
        Self { past, ..Self::default() }
    }

    /// Takes in an event with the memory that was recorded for it.
    fn replay_event(&mut self, bytes: &[u8]) -> Ingested {
        let mut recorded = std::mem::take(&mut self.recorded);
        let done = self.ingest_event(bytes, true, &mut recorded);
        recorded.clear();
        self.recorded = recorded;
        done
    }

    /// Takes in one event of the ring. Unless this is the `last_try`, an event whose stack runs
    /// through unknown code is refused with [`Ingested::NeedsMappings`] and leaves no trace in the profile.
    pub fn ingest_event(&mut self, bytes: &[u8], last_try: bool, memory: &mut dyn MemorySource) -> Ingested {
        match decode(bytes) {
            Ok(event) if self.past.window.is_past(event.header().time) => {}
            Ok(Event::Alloc { event, stack }) => {
                return self.sampled(
                    &event.header,
                    Some(event.function),
                    (&event.stack, stack),
                    last_try,
                    memory,
                    |session, process, end| {
                        session.advance(event.header.time);
                        session.count_end(end);
                        session.hold(process, &event);
                    },
                );
            }
            Ok(Event::Free(event)) => self.free(&event),
            Ok(Event::Exec(event)) => self.exec(&event),
            Ok(Event::Fork(event)) => self.fork(&event),
            Ok(Event::Map { call, event, stack }) => {
                return self.sampled(
                    &event.header,
                    None,
                    (&event.stack, stack),
                    last_try,
                    memory,
                    |session, process, end| {
                        session.map(call, &event, process, end);
                    },
                );
            }
            Ok(Event::Unmap { call, event }) => self.unmap(call, &event),
            Ok(Event::Protect(event)) => self.protect(&event),
            Ok(Event::Unmapped(event)) => self.unmapped(&event),
            Err(_) => self.quality.losses.undecodable_events += 1,
        }
        Ingested::Done
    }

    /// The running process with this id.
    #[must_use]
    pub fn running(&self, tgid: u32) -> Option<ProcessKey> {
        Some(self.watched.life(self.watched.running(tgid)?).info.key)
    }

    /// Whether the running process with this id has blocks in the live table.
    #[must_use]
    pub fn holds_blocks(&self, tgid: u32) -> bool {
        let process = self.watched.running(tgid);
        process.is_some_and(|process| self.live.iter().any(|(key, _)| key.process == process))
    }

    /// The names that the session has been given.
    #[must_use]
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Moves on to `time`, at which an input is about to change what is in use.
    fn advance(&mut self, time: u64) {
        let Past { history, window, .. } = &self.past;
        if history.is_due(time) || window.needs_baseline(time) {
            let bytes: Arc<[f64]> = self.in_use_bytes().into();
            self.past.history.add(time, &bytes);
            if self.past.window.needs_baseline(time) {
                self.past.window.set_baseline(bytes);
            }
        }
        self.clock.advance(time);
    }

    fn end(&mut self, time: u64) {
        let time = self.past.window.end().map_or(time, |end| end.min(time));
        self.advance(time);
        self.clock.end = Some(time);
    }

    /// Unwinds the stack of an event of a watched process and, unless mappings are needed first, goes on with
    /// `then`.
    fn sampled(
        &mut self,
        header: &EventHeader,
        function: Option<Avma>,
        (snapshot, bytes): (&StackSnapshot, &[u8]),
        last_try: bool,
        memory: &mut dyn MemorySource,
        then: impl FnOnce(&mut Self, ProcessIndex, StackEnd),
    ) -> Ingested {
        let &EventHeader { tgid, time, .. } = header;
        let Some((process, known)) = self.watched.running(tgid).zip(self.table.get_mut(tgid)) else {
            self.quality.losses.foreign_events += 1;
            return Ingested::Done;
        };
        let mut context =
            JavaContext { memory: ProcessMemory::new(memory, tgid), methods: &mut self.methods, time };
        let end = known.unwinder().unwind(function, snapshot, bytes, &mut context, &mut self.stack);
        let news = known.unwinder().take_news();
        if let Some(reason) = news {
            self.note(&RunEvent { time, kind: RunEventKind::JavaNotTold { tgid, reason } });
        }
        if end == StackEnd::Truncated(Truncation::UnknownCode) && !last_try {
            let unmapped = self.stack.frames().iter().rev().find_map(|frame| match frame {
                Frame::Unmapped(address) => Some(*address),
                _ => None,
            });
            return Ingested::NeedsMappings { tgid, address: unmapped.unwrap_or_default() };
        }
        if let Some(threads) = &mut self.threads {
            let (name, is_own) = threads.intern(snapshot.comm);
            self.stack.push(Frame::Thread(name));
            self.quality.losses.thread_names_lost += u64::from(!is_own);
        }
        then(self, process, end);
        Ingested::Done
    }

    fn note(&mut self, event: &RunEvent) {
        if self.past.window.is_past(event.time) {
            return;
        }
        self.advance(event.time);
        if self.quality.events.last_mut().is_some_and(|last| last.extend(event)) {
            return;
        }
        if self.quality.events.len() < MAX_RUN_EVENTS {
            self.quality.events.push(event.clone());
        } else {
            self.quality.losses.run_events_left_out += 1;
        }
    }

    fn count_end(&mut self, end: StackEnd) {
        self.quality.coverage.samples += 1;
        match end {
            StackEnd::Complete => self.quality.coverage.complete += 1,
            StackEnd::Java | StackEnd::Truncated(Truncation::JavaCode) => self.quality.coverage.java += 1,
            StackEnd::Truncated(_) => self.quality.coverage.truncated += 1,
        }
    }

    /// Adds the block of an event whose stack is in `stack`.
    fn hold(&mut self, process: ProcessIndex, event: &AllocEvent) {
        let estimate = Estimate::of_block(event.size, event.probability);
        let (site, lost) = self.sites.add(process, &self.stack, estimate);
        self.quality.losses.stacks_lost += u64::from(lost);
        let key = BlockKey { process, address: event.address, allocated_at: event.header.time };
        if event.replaces != 0 {
            // Not held is fine: the block may date from before an exec.
            self.live.remove(&BlockKey { allocated_at: event.replaces, ..key });
        }
        self.live.insert(key, Block { site, size: event.size, probability: event.probability });
    }

    fn free(&mut self, event: &FreeEvent) {
        let Some(process) = self.watched.running(event.header.tgid) else {
            self.quality.losses.foreign_events += 1;
            return;
        };
        self.advance(event.header.time);
        let key = BlockKey { process, address: event.address, allocated_at: event.allocated_at };
        if self.live.remove(&key).is_some() {
            return;
        }
        let losses = &mut self.quality.losses;
        match self.past.departed.take(&key) {
            Some(Cause::Thinned) => {}
            // Its free was not lost, it was under way.
            Some(Cause::Repaired) => losses.repaired_frees -= 1,
            None => losses.unknown_frees += 1,
        }
    }

    fn exec(&mut self, event: &ExecEvent) {
        let Some(process) = self.watched.running(event.header.tgid) else {
            self.quality.losses.foreign_events += 1;
            return;
        };
        self.advance(event.header.time);
        self.live.remove_process(process);
        self.maps.mapped.clear(process);
        if let Some(birth) = self.watched.current_mut(event.header.tgid).and_then(|life| life.birth.as_mut())
        {
            birth.inherited = Estimate::default();
        }
        // This forgets the mappings: the old program's would name the new one's code wrongly.
        self.table.add_process(self.watched.life(process).info.clone());
    }

    fn add_process(&mut self, info: &ProcessInfo) {
        if self.past.window.is_over() {
            return;
        }
        self.watched.describe(info.clone(), self.clock.now());
        self.table.add_process(info.clone());
    }

    fn set_mappings(&mut self, tgid: u32, text: &str) {
        if self.watched.running(tgid).is_none() {
            self.quality.losses.foreign_events += 1;
        } else if self.table.set_mappings(tgid, text).is_err() {
            self.quality.losses.undecodable_events += 1;
        }
    }

    fn exit(&mut self, tgid: u32, time: u64) {
        if self.past.window.is_past(time) {
            return;
        }
        self.advance(time);
        if self.watched.end(tgid, time) {
            self.table.exit(tgid);
        } else {
            self.quality.losses.foreign_events += 1;
        }
    }

    /// Frees the blocks of running processes that the kernel no longer holds.
    fn repair(&mut self, held: &[(u32, u64, u64)]) {
        if self.past.window.is_over() {
            // The kernel's table is that of a later moment: what it no longer holds may be alive in the window.
            return;
        }
        let held: FxHashSet<BlockKey> = held
            .iter()
            .filter_map(|&(tgid, address, allocated_at)| {
                let process = self.watched.running(tgid)?;
                Some(BlockKey { process, address, allocated_at })
            })
            .collect();
        let (watched, departed) = (&self.watched, &mut self.past.departed);
        let before = self.live.len();
        self.live.retain(|key, _| {
            let stays = watched.life(key.process).ended_at.is_some() || held.contains(key);
            if !stays {
                departed.repaired(*key);
            }
            stays
        });
        let repaired = (before - self.live.len()) as u64;
        self.quality.losses.repaired_frees += repaired;
        let frees = self.past.departed.newly_lost_frees(self.quality.losses.kernel(Counter::RingFullFrees));
        if frees != 0 {
            let now = self.clock.now();
            let kind = RunEventKind::FreesLost { until: now, frees, repaired };
            self.note(&RunEvent { time: now, kind });
        }
    }
}
