//! The thread that owns the core's state: it drains the ring, answers the core's requests for
//! mappings, and keeps the recording.
//!
//! ```text
//! ring ──► take ──► session.ingest_event ──► done
//!                        │ needs mappings
//!                        └─► read /proc/PID/maps, new modules ──► session ──► once more, last try
//! ```

mod lives;
mod mappings;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use aya::maps::{MapData, RingBuf};
use bytesize::ByteSize;
use memprof_common::counter::Counter;
use memprof_common::event::EventHeader;
use memprof_core::figures::{OverheadFigures, RunFigures};
use memprof_core::input::{Input, ProcessKey};
use memprof_core::run_event::{RunEvent, RunEventKind};
use memprof_core::session::{Ingested, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

pub(crate) use self::lives::Notice;
use self::lives::{Lives, Turn};
use self::mappings::Mappings;
use crate::bpf::counters::Counts;
use crate::bpf::kernel_side::KernelTables;
use crate::host::clock::monotonic_ns;
use crate::host::module_file::ModuleFiles;
use crate::host::process_memory::ProcessMemoryReader;
use crate::lag::Lags;
use crate::live_bound::LiveBound;
use crate::present;
use crate::probes::FoundAllocator;
use crate::recorder::Recorder;

/// Longest wait for an event before control messages are looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long events are left to gather before they are taken. A wake-up for each would cost more than the event
/// itself, and the target pays for sending it; but the JVM's code may change before its frames are looked up.
const GATHER: Duration = Duration::from_millis(4);
/// Events do not gather when the last ones filled more than one part in this many of the ring.
const BUSY_PART: usize = 16;
/// Longest wait for an event that is being written: its writer may have been interrupted.
const UNFINISHED: Duration = Duration::from_millis(1);
/// Most events taken before anything else gets its turn: 10 to 50 ms.
const EVENTS_PER_ROUND: usize = 1024;
/// How often mappings are compared with what is known, so that unloaded libraries are noticed.
const MAPPINGS_CHECK: Duration = Duration::from_secs(1);
/// Comparing the live tables may take at most one part in this many of the time, too.
const REPAIR_DUTY: u32 = 10;
/// Most live blocks that get their memory in advance.
const MAX_RESERVED_BLOCKS: usize = 1 << 20;
/// Most module files kept open for the symbolizer.
const MAX_OPEN_MODULES: usize = 4096;

/// What the pipeline is told.
pub(crate) enum Control {
    /// A process has ended.
    Exited(ProcessKey),
    /// Something else to be taken in.
    Input(Input<'static>),
    /// An allocator is probed.
    Allocator(FoundAllocator),
    /// All probes are out: take what is left in the ring and stop.
    Stop {
        /// What the probes have cost, if that is known.
        overhead: Option<OverheadFigures>,
    },
}

/// Figures for the progress display, written by the pipeline.
#[derive(Default)]
pub(crate) struct Progress {
    /// Events taken from the ring.
    pub(crate) events: AtomicU64,
    /// Their bytes.
    pub(crate) event_bytes: AtomicU64,
    /// Allocations lost for any reason.
    pub(crate) lost: AtomicU64,
}

/// The ring and the state that its events go into.
pub(crate) struct Pipeline {
    ring: RingBuf<MapData>,
    ring_bytes: usize,
    /// Bytes taken since it was last empty.
    taken_bytes: usize,
    intake: Intake,
}

/// The core's state and its other sources.
pub(crate) struct Intake {
    tables: KernelTables,
    bound: LiveBound,
    session: Session,
    sources: Sources,
    recorder: Option<Recorder>,
    lives: Lives,
    progress: Arc<Progress>,
    lags: Lags,
    /// Free events lost when the tables were last compared, and when that may be done again.
    repaired: (u64, Instant),
}

/// What is known of the processes, and read of them.
struct Sources {
    modules: ModuleFiles,
    mappings: Mappings,
    memory: ProcessMemoryReader,
}

/// What a finished pipeline leaves.
pub(crate) struct Finished {
    /// The session, at its end.
    pub(crate) session: Session,
    /// The modules' open files, for the symbolizer.
    pub(crate) modules: ModuleFiles,
    /// The recording, to be completed with symbols.
    pub(crate) recorder: Option<Recorder>,
    /// What went wrong on the way: the session is good, but ended early.
    pub(crate) failure: Option<anyhow::Error>,
}

/// A running pipeline.
pub(crate) struct Running {
    /// Where to send control messages.
    pub(crate) control: SyncSender<Control>,
    thread: JoinHandle<Finished>,
}

impl Running {
    /// Tells the pipeline to stop and waits for it.
    pub(crate) fn stop(self, overhead: Option<OverheadFigures>) -> Result<Finished> {
        // One that has ended already has panicked.
        let _ = self.control.send(Control::Stop { overhead });
        self.thread.join().map_err(|_| anyhow!("the event thread panicked"))
    }
}

impl Pipeline {
    /// A pipeline over a ring and a prepared intake.
    pub(crate) fn new(ring: RingBuf<MapData>, ring_bytes: u32, intake: Intake) -> Self {
        Self { ring, ring_bytes: ring_bytes as usize, taken_bytes: 0, intake }
    }

    /// Starts draining the ring in a thread of its own.
    pub(crate) fn start(self) -> Result<Running> {
        let (control, controls) = sync_channel(1024);
        let thread = std::thread::Builder::new()
            .name("memprof-events".into())
            .spawn(move || self.run(&controls))
            .context("starting the event thread")?;
        Ok(Running { control, thread })
    }

    fn run(mut self, controls: &Receiver<Control>) -> Finished {
        raise_priority();
        let (overhead, failure) = match self.work(controls) {
            Ok(overhead) => (overhead, None),
            Err(error) => (self.give_up(controls), Some(error)),
        };
        // The probes are out: nothing new comes.
        while !self.drain_some() {}
        self.drain_present();
        self.intake.finish(overhead, failure)
    }

    /// Takes events and does what it is told until the probes are out: what they have cost.
    fn work(&mut self, controls: &Receiver<Control>) -> Result<Option<OverheadFigures>> {
        let mut next_check = Instant::now() + MAPPINGS_CHECK;
        loop {
            let emptied = self.drain_some();
            if let ControlFlow::Break(overhead) = self.obey(controls) {
                return Ok(overhead);
            }
            self.intake.lives.flush();
            if Instant::now() >= next_check {
                self.intake.check_mappings();
                if self.intake.report_losses() {
                    self.drain_present();
                    self.intake.repair_lost_frees(Intake::ingest)?;
                }
                next_check = Instant::now() + MAPPINGS_CHECK;
            }
            self.keep_bound()?;
            if emptied {
                self.wait()?;
            }
        }
    }

    /// Asks for the end after something went wrong, and takes what comes until the probes are out.
    fn give_up(&mut self, controls: &Receiver<Control>) -> Option<OverheadFigures> {
        self.intake.lives.close();
        loop {
            let emptied = self.drain_some();
            if let ControlFlow::Break(overhead) = self.obey(controls) {
                return overhead;
            }
            if emptied {
                std::thread::sleep(POLL);
            }
        }
    }

    /// Thins the live tables when they are nearly full, and goes on with what the last time has left.
    fn keep_bound(&mut self) -> Result<()> {
        let Intake { bound, session, tables, .. } = &mut self.intake;
        if let Some(interval) = bound.raise_interval(session, &tables.live)? {
            self.drain_present();
            self.intake.thin(interval);
        }
        self.intake.release_some()
    }

    /// Does what it is told, perhaps to stop: with what the probes have cost, if they are out.
    fn obey(&mut self, controls: &Receiver<Control>) -> ControlFlow<Option<OverheadFigures>> {
        loop {
            match controls.try_recv() {
                Ok(Control::Exited(key)) => {
                    self.drain_present();
                    self.intake.exited(key);
                }
                Ok(Control::Allocator(found)) => self.intake.add_allocator(found),
                Ok(Control::Input(input)) => self.intake.ingest(input),
                Ok(Control::Stop { overhead }) => return ControlFlow::Break(overhead),
                Err(TryRecvError::Disconnected) => return ControlFlow::Break(None),
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
            }
        }
    }

    /// Takes events from the ring, a limited number at once. Whether it is empty now.
    fn drain_some(&mut self) -> bool {
        for _ in 0..EVENTS_PER_ROUND {
            let Some(item) = self.ring.next() else {
                if self.intake.bound.waits_for_events() {
                    self.drain_present();
                }
                return true;
            };
            self.taken_bytes += ENTRY_HEADER + item.len();
            self.intake.take(&item);
        }
        false
    }

    /// Takes all events that are in the ring now; those that come meanwhile may stay. An event that is still
    /// being written hides those behind it, so it is waited for.
    fn drain_present(&mut self) {
        let mut taken = 0;
        let mut unfinished = None;
        while taken < self.ring_bytes {
            if let Some(item) = self.ring.next() {
                taken += ENTRY_HEADER + item.len();
                self.intake.take(&item);
                unfinished = None;
            } else if self.is_empty() || unfinished.get_or_insert_with(Instant::now).elapsed() > UNFINISHED {
                break;
            } else {
                std::thread::sleep(UNFINISHED / 20);
            }
        }
        self.intake.settle();
    }

    /// Whether the ring holds nothing. Events that are still being written count, unlike for `next`.
    fn is_empty(&self) -> bool {
        let fd = self.ring.as_fd();
        matches!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())), Ok(0))
    }

    /// Waits for events. While they come they are left to gather; only when none has come the kernel is asked to
    /// say when one does.
    fn wait(&mut self) -> Result<()> {
        let taken = std::mem::take(&mut self.taken_bytes);
        if (1..self.ring_bytes / BUSY_PART).contains(&taken) {
            std::thread::sleep(GATHER);
            return Ok(());
        }
        let fd = self.ring.as_fd();
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("waiting for events"),
        }
    }
}

impl Intake {
    /// An intake that has seen nothing yet.
    pub(crate) fn new(
        tables: KernelTables,
        bound: LiveBound,
        recorder: Option<Recorder>,
        notices: mpsc::Sender<Notice>,
        progress: Arc<Progress>,
    ) -> Self {
        let mut session = Session::new();
        session.reserve_blocks(bound.capacity().min(MAX_RESERVED_BLOCKS));
        Self {
            tables,
            bound,
            session,
            sources: Sources {
                modules: ModuleFiles::new(MAX_OPEN_MODULES),
                mappings: Mappings::new(),
                memory: ProcessMemoryReader::new(recorder.is_some()),
            },
            recorder,
            lives: Lives::new(notices),
            progress,
            lags: Lags::default(),
            repaired: (0, Instant::now()),
        }
    }

    /// Tells stacks apart by the names of their threads.
    pub(crate) fn tell_threads(&mut self) {
        self.session.tell_threads();
    }

    /// Hands one input to the core and to the recording.
    pub(crate) fn ingest(&mut self, input: Input<'static>) {
        // Only an event can ask for mappings.
        let _done = self.session.ingest(&input);
        if let Some(recorder) = &mut self.recorder {
            recorder.record(input);
        }
    }

    /// As [`Intake::ingest`], but waits for a recording that is behind: after the run there is time.
    fn ingest_surely(&mut self, input: Input<'static>) {
        let _done = self.session.ingest(&input);
        if let Some(recorder) = &self.recorder {
            recorder.record_surely(input);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let turn = Turn::of(bytes, &self.session);
        self.progress.events.fetch_add(1, Ordering::Relaxed);
        self.progress.event_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let done = self.session.ingest_event(bytes, false, &mut self.sources.memory);
        if let Ingested::NeedsMappings { tgid, address } = done {
            self.read_mappings_for(tgid, address);
            let _done = self.session.ingest_event(bytes, true, &mut self.sources.memory);
        }
        let reads = self.sources.memory.finish_event();
        if let Some(recorder) = &mut self.recorder {
            if let Some(reads) = reads {
                recorder.record(Input::Memory(reads));
            }
            recorder.record(Input::Event(Cow::Owned(bytes.to_vec())));
        }
        if let Some(time) = event_time(bytes) {
            self.lags.add(monotonic_ns().saturating_sub(time));
        }
        match turn {
            Some(Turn::Exec { header, held_blocks }) => self.exec(&header, held_blocks),
            Some(Turn::Fork(event)) => self.forked(&event),
            None => {}
        }
    }

    /// Thins the core's table; the kernel's follows in rounds.
    fn thin(&mut self, interval: u64) {
        let before = self.session.live_len();
        self.ingest(LiveBound::thin(interval));
        self.bound.release(self.session.take_thinned());
        present::message(&format!(
            "the live table was nearly full: sampling every {} from here on, {} of {before} blocks kept",
            ByteSize(interval),
            self.session.live_len()
        ));
    }

    fn release_some(&mut self) -> Result<()> {
        self.bound.release_some(&mut self.tables.live)
    }

    /// Everything that was in the ring has been taken.
    fn settle(&mut self) {
        if let Some(settled) = self.bound.settled() {
            self.ingest(settled);
        }
    }

    /// Reports losses to the progress display. Whether the live tables should be compared.
    fn report_losses(&self) -> bool {
        let Ok(Counts { counters, .. }) = self.tables.counters.read() else { return false };
        let lost = [Counter::RingFullAllocs, Counter::LiveTableFullAllocs, Counter::InFlightFull];
        let sum = lost.iter().map(|&counter| counters[counter as usize]).sum();
        self.progress.lost.store(sum, Ordering::Relaxed);
        let (repaired, next) = self.repaired;
        counters[Counter::RingFullFrees as usize] > repaired && Instant::now() >= next
    }

    /// Lost free events would look like leaks; the kernel's table knows which blocks are gone. Right
    /// only when the ring has just been drained: every block that the core knows is in the kernel's table
    /// then, unless its free is lost or on its way.
    fn repair_lost_frees(&mut self, ingest: fn(&mut Self, Input<'static>)) -> Result<()> {
        let started = Instant::now();
        let Counts { counters, .. } = self.tables.counters.read()?;
        ingest(self, Input::Counters(counters.to_vec()));
        let lost = counters[Counter::RingFullFrees as usize];
        if lost > self.repaired.0 {
            let blocks = self.tables.live.blocks()?;
            ingest(self, Input::LiveBlocks(blocks));
            self.bound.unsettle();
            self.repaired = (lost, Instant::now() + started.elapsed() * REPAIR_DUTY);
        }
        Ok(())
    }

    fn finish(mut self, overhead: Option<OverheadFigures>, failure: Option<anyhow::Error>) -> Finished {
        if let Err(error) = self.repair_lost_frees(Self::ingest_surely) {
            log::warn!("{error:#}");
            let kind = RunEventKind::LossesUnknown;
            self.ingest_surely(Input::RunEvent(RunEvent { time: monotonic_ns(), kind }));
        }
        if let Some(inputs) = self.recorder.as_ref().map(Recorder::lost).filter(|&lost| lost != 0) {
            self.ingest_surely(Input::RecordingLost { inputs });
        }
        self.ingest_surely(Input::Figures(RunFigures {
            memory: self.bound.figures(&self.session),
            overhead,
            lag: self.lags.figures(),
        }));
        self.ingest_surely(Input::End { time: monotonic_ns() });
        Finished { session: self.session, modules: self.sources.modules, recorder: self.recorder, failure }
    }
}

/// Bytes of the kernel's own before each entry of the ring.
const ENTRY_HEADER: usize = 8;

/// The time of an event: the last field of its header.
fn event_time(bytes: &[u8]) -> Option<u64> {
    let time = bytes.get(size_of::<EventHeader>() - 8..size_of::<EventHeader>())?;
    time.try_into().ok().map(u64::from_ne_bytes)
}

/// Lets the calling thread run before the threads that fill the ring: what it does not take in time
/// is lost. Fails without CAP_SYS_NICE, which only makes losses likelier, and those are counted.
pub(crate) fn raise_priority() {
    if let Err(error) = rustix::process::nice(-10) {
        log::debug!("raising a thread's priority: {error}");
    }
}
