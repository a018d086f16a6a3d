//! The thread that owns the core's state: it drains the ring, answers the core's requests for
//! mappings, and keeps the recording.
//!
//! ```text
//! ring ──► take ──► session.ingest_event ──► done
//!                        │ needs mappings
//!                        └─► read /proc/PID/maps, new modules ──► session ──► once more, last try
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use aya::maps::{MapData, RingBuf};
use memprof_common::counter::Counter;
use memprof_common::event::EventHeader;
use memprof_core::decode::{Event, decode};
use memprof_core::input::Input;
use memprof_core::session::{Ingested, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

use crate::bpf::kernel_side::KernelTables;
use crate::host::module_file::ModuleFiles;
use crate::host::proc_fs;
use crate::recorder::Recorder;

/// Longest wait for an event before control messages are looked at.
const POLL: Duration = Duration::from_millis(20);
/// How often mappings are compared with what is known, so that unloaded libraries are noticed.
const MAPPINGS_CHECK: Duration = Duration::from_secs(1);
/// Reading mappings may take at most one part in this many of the time: a target whose stacks point
/// into code that nobody can name must not be asked again for every one of them.
const MAPPINGS_DUTY: u32 = 10;
/// Most module files kept open for the symbolizer.
const MAX_OPEN_MODULES: usize = 4096;

/// What the pipeline is told.
pub(crate) enum Control {
    /// A process has ended.
    Exited {
        /// Its id.
        tgid: u32,
    },
    /// All probes are out: take what is left in the ring and stop.
    Stop,
}

/// What the pipeline tells.
pub(crate) enum Notice {
    /// A process has replaced its program.
    Exec {
        /// Its id.
        tgid: u32,
        /// Whether its first thread did it.
        by_leader: bool,
    },
}

/// Figures for the progress display, written by the pipeline.
#[derive(Default)]
pub(crate) struct Progress {
    /// Events taken from the ring.
    pub(crate) events: AtomicU64,
    /// Allocations lost for any reason.
    pub(crate) lost: AtomicU64,
}

/// The ring and the state that its events go into.
pub(crate) struct Pipeline {
    ring: RingBuf<MapData>,
    intake: Intake,
}

/// The core's state and its other sources.
pub(crate) struct Intake {
    tables: KernelTables,
    session: Session,
    modules: ModuleFiles,
    mappings: HashMap<u32, KnownMappings>,
    recorder: Option<Recorder>,
    notices: mpsc::Sender<Notice>,
    progress: Arc<Progress>,
}

/// What is known of one process's mappings.
struct KnownMappings {
    text: String,
    /// Earliest moment at which the core's request makes them read again.
    next_read: Instant,
}

/// What a finished pipeline leaves.
pub(crate) struct Finished {
    /// The session, at its end.
    pub(crate) session: Session,
    /// The modules' open files, for the symbolizer.
    pub(crate) modules: ModuleFiles,
    /// The recording, to be completed with symbols.
    pub(crate) recorder: Option<Recorder>,
}

/// A running pipeline.
pub(crate) struct Running {
    /// Where to send control messages.
    pub(crate) control: SyncSender<Control>,
    thread: JoinHandle<Result<Finished>>,
}

impl Running {
    /// Tells the pipeline to stop and waits for it.
    pub(crate) fn stop(self) -> Result<Finished> {
        // A pipeline that has ended already has an error to tell.
        let _ = self.control.send(Control::Stop);
        self.thread.join().map_err(|_| anyhow!("the pipeline thread panicked"))?
    }
}

impl Pipeline {
    /// A pipeline over a ring and a prepared intake.
    pub(crate) fn new(ring: RingBuf<MapData>, intake: Intake) -> Self {
        Self { ring, intake }
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

    fn run(mut self, controls: &Receiver<Control>) -> Result<Finished> {
        raise_priority();
        let mut next_check = Instant::now() + MAPPINGS_CHECK;
        loop {
            self.drain();
            match controls.try_recv() {
                Ok(Control::Exited { tgid }) => {
                    self.drain();
                    self.intake.exited(tgid);
                }
                Ok(Control::Stop) | Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {}
            }
            if Instant::now() >= next_check {
                self.intake.check_mappings();
                self.intake.report_losses();
                next_check = Instant::now() + MAPPINGS_CHECK;
            }
            self.wait()?;
        }
        self.drain();
        self.intake.finish()
    }

    /// Takes all events that are in the ring.
    fn drain(&mut self) {
        while let Some(item) = self.ring.next() {
            self.intake.take(&item);
        }
    }

    fn wait(&self) -> Result<()> {
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
        recorder: Option<Recorder>,
        notices: mpsc::Sender<Notice>,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            tables,
            session: Session::new(),
            modules: ModuleFiles::new(MAX_OPEN_MODULES),
            mappings: HashMap::new(),
            recorder,
            notices,
            progress,
        }
    }

    /// Hands one input to the core and to the recording.
    pub(crate) fn ingest(&mut self, input: Input<'static>) {
        // Only an event can ask for mappings.
        let _done = self.session.ingest(&input);
        if let Some(recorder) = &mut self.recorder {
            recorder.record(input);
        }
    }

    /// Reads a process's mappings; when they are the known ones nothing happens.
    pub(crate) fn read_mappings(&mut self, tgid: u32) -> Result<()> {
        let started = Instant::now();
        let text = proc_fs::maps_text(tgid.cast_signed())?;
        // Looking at new modules takes longer, but happens once for each.
        let read_in = started.elapsed();
        if text.is_empty() {
            // It has just ended. Events of it may still be in the ring: they need what was known.
            return Ok(());
        }
        let known = self.mappings.get(&tgid).is_some_and(|known| known.text == text);
        if !known {
            for image in self.modules.discover(tgid.cast_signed(), &text) {
                self.ingest(Input::Module(image));
            }
            self.ingest(Input::Mappings { tgid, text: Cow::Owned(text.clone()) });
        }
        let next_read = Instant::now() + read_in * MAPPINGS_DUTY;
        self.mappings.insert(tgid, KnownMappings { text, next_read });
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) {
        self.progress.events.fetch_add(1, Ordering::Relaxed);
        if let Ingested::NeedsMappings { tgid } = self.session.ingest_event(bytes, false) {
            let due = self.mappings.get(&tgid).is_none_or(|known| Instant::now() >= known.next_read);
            // A process that is gone keeps the mappings it had.
            if due && let Err(error) = self.read_mappings(tgid) {
                log::debug!("mappings of process {tgid}: {error:#}");
            }
            let _done = self.session.ingest_event(bytes, true);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.record(Input::Event(Cow::Owned(bytes.to_vec())));
        }
        if let Ok(Event::Exec(event)) = decode(bytes) {
            self.exec(&event.header);
        }
    }

    /// A process has replaced its program: it has a new name and nothing of what it had.
    fn exec(&mut self, header: &EventHeader) {
        let EventHeader { tgid, tid, time, .. } = *header;
        self.mappings.remove(&tgid);
        match proc_fs::process_info(tgid.cast_signed()) {
            Ok(info) => self.ingest(Input::Process(info)),
            Err(error) => log::debug!("process {tgid} after its exec: {error:#}"),
        }
        if let Err(error) = self.tables.forget_blocks(tgid, time) {
            log::warn!("live table after the exec of process {tgid}: {error:#}");
        }
        if self.notices.try_send(Notice::Exec { tgid, by_leader: tid == tgid }).is_err() {
            log::warn!("process {tgid} replaced its program too often; allocators of its own are not probed");
        }
    }

    fn exited(&mut self, tgid: u32) {
        self.mappings.remove(&tgid);
        // While its blocks can still be corrected.
        if let Err(error) = self.repair_lost_frees() {
            log::warn!("{error:#}");
        }
        self.ingest(Input::Exit { tgid, time: monotonic_ns() });
    }

    fn check_mappings(&mut self) {
        let tgids: Vec<u32> = self.mappings.keys().copied().collect();
        for tgid in tgids {
            if let Err(error) = self.read_mappings(tgid) {
                log::debug!("mappings of process {tgid}: {error:#}");
            }
        }
    }

    fn report_losses(&self) {
        if let Ok(counters) = self.tables.counters() {
            let lost = [Counter::RingFullAllocs, Counter::LiveTableFullAllocs, Counter::InFlightFull];
            let sum = lost.iter().map(|&counter| counters[counter as usize]).sum();
            self.progress.lost.store(sum, Ordering::Relaxed);
        }
    }

    /// Lost free events would look like leaks; the kernel's table knows which blocks are gone. Right
    /// only when the ring has just been drained.
    fn repair_lost_frees(&mut self) -> Result<()> {
        let counters = self.tables.counters()?;
        self.ingest(Input::Counters(counters));
        if counters[Counter::RingFullFrees as usize] != 0 {
            let blocks = self.tables.live_blocks()?;
            self.ingest(Input::LiveBlocks(blocks));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Finished> {
        self.repair_lost_frees()?;
        if let Some(inputs) = self.recorder.as_ref().map(Recorder::lost).filter(|&lost| lost != 0) {
            self.ingest(Input::RecordingLost { inputs });
        }
        self.ingest(Input::End { time: monotonic_ns() });
        Ok(Finished { session: self.session, modules: self.modules, recorder: self.recorder })
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of the probes' events.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The monotonic clock starts at boot and is never negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Lets the calling thread run before the threads that fill the ring: what it does not take in time
/// is lost. Fails without CAP_SYS_NICE, which only makes losses likelier, and those are counted.
pub(crate) fn raise_priority() {
    if let Err(error) = rustix::process::nice(-10) {
        log::debug!("raising a thread's priority: {error}");
    }
}
