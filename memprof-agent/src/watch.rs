//! Waiting for whatever ends or changes a recording: time, signals, the targets' end, an exec.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use aya_log::EbpfLogger;
use bytesize::ByteSize;
use memprof_core::figures::OverheadFigures;
use memprof_core::input::{Input, ProcessKey};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::governor::{self, Governor, TooMuch};
use crate::host::clock::monotonic_ns;
use crate::pipeline::{Control, Notice, Progress};
use crate::present::{self, ProgressLine};
use crate::probes::Probes;
use crate::target::Target;

/// How long after an exec the new program's allocator is looked for: its loader has to map it first.
const EXEC_PATIENCE: Duration = Duration::from_secs(5);
/// How long after the first one other allocators are looked for: a loader maps library by library.
const EXEC_SETTLES: Duration = Duration::from_millis(50);
/// How long a child, or a process that has loaded a library, is looked at again when that fails: it may be
/// about to replace its program, which is told of then.
const CHANGE_PATIENCE: Duration = Duration::from_millis(200);
/// How many failures to put probes in are told one by one.
const TOLD_FAILURES: usize = 10;
/// How often they are looked for.
const EXEC_RETRY: Duration = Duration::from_millis(5);
/// How often the progress line changes.
const PROGRESS: Duration = Duration::from_secs(1);

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its time was up.
    Time,
    /// A signal asked for it.
    Signal,
    /// No watched process is left.
    TargetsGone,
    /// The probes cost too much.
    TooDear(TooMuch),
    /// The event thread cannot go on; it has an error to tell.
    EventsFailed,
}

type KernelLogger = EbpfLogger<&'static dyn log::Log>;

/// What is waited for.
pub(crate) struct Watch {
    names: String,
    probes: Probes,
    governor: Governor,
    control: SyncSender<Control>,
    noticed: mpsc::Receiver<Notice>,
    kernel_log: AsyncFd<KernelLogger>,
    running: Running,
    pending: Pending,
    interrupt: Signal,
    terminate: Signal,
}

/// The processes that have not ended.
#[derive(Default)]
struct Running {
    exits: JoinSet<Result<ProcessKey>>,
    /// Start times by process id: an id may come to another process before its first one's end is heard of.
    started: HashMap<u32, u64>,
    /// Processes whose end the pipeline has been told of and has not confirmed: their children may still
    /// become known.
    unconfirmed: usize,
}

/// The processes that are looked at again.
#[derive(Default)]
struct Pending {
    looks: Vec<PendingLook>,
    /// Those given up.
    failures: usize,
}

impl Pending {
    /// Looks at a process from now on.
    fn start(&mut self, tgid: u32, what: &'static str, by_leader: bool, patience: Duration) {
        self.looks.retain(|look| look.tgid != tgid);
        let deadline = Instant::now() + patience;
        self.looks.push(PendingLook { tgid, what, by_leader, deadline, settled: None });
    }

    fn contains(&self, tgid: u32) -> bool {
        self.looks.iter().any(|look| look.tgid == tgid)
    }
}

/// A process whose new allocators may not have been found yet.
struct PendingLook {
    tgid: u32,
    /// What it did.
    what: &'static str,
    /// Whether its first thread did it.
    by_leader: bool,
    deadline: Instant,
    /// When its loader has mapped all libraries, once the first allocator was found.
    settled: Option<Instant>,
}

impl Watch {
    /// Prepares to wait for these processes.
    pub(crate) fn new(
        targets: Vec<Target>,
        probes: Probes,
        governor: Governor,
        control: SyncSender<Control>,
        noticed: mpsc::Receiver<Notice>,
        kernel_log: KernelLogger,
    ) -> Result<Self> {
        let names: Vec<String> =
            targets.iter().map(|target| format!("{} ({})", target.tgid(), target.info.comm)).collect();
        let mut running = Running::default();
        for target in targets {
            running.started.insert(target.tgid(), target.info.key.start_time);
            running.exits.spawn(wait_for_exit(target.info.key, target.pidfd));
        }
        Ok(Self {
            names: names.join(", "),
            probes,
            governor,
            control,
            noticed,
            kernel_log: readable(kernel_log).context("watching the probes' log")?,
            running,
            pending: Pending::default(),
            interrupt: signal(SignalKind::interrupt()).context("handling SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("handling SIGTERM")?,
        })
    }

    /// What is being recorded and how, in words.
    pub(crate) fn description(&self, sample_interval: u64, duration: Option<Duration>) -> String {
        let interval = if sample_interval == 1 {
            "every block".into()
        } else {
            format!("one sample per {}", ByteSize(sample_interval))
        };
        let until = duration.map_or_else(
            || "until it ends".into(),
            |duration| format!("for {}", humantime::format_duration(duration)),
        );
        format!("recording {} {until}, {interval}; {}", self.names, self.probes.summary())
    }

    /// Waits for the end. Reports execs and exits on the way.
    pub(crate) async fn until_end(&mut self, duration: Option<Duration>, progress: &Progress) -> Result<End> {
        let started = Instant::now();
        let time_up = sleep(duration.unwrap_or_default());
        tokio::pin!(time_up);
        let mut line = ProgressLine::default();
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut looks = interval(governor::LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut exec_ticks = interval(EXEC_RETRY);
        exec_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut time_up, if duration.is_some() => return Ok(End::Time),
                _ = self.interrupt.recv() => return Ok(End::Signal),
                _ = self.terminate.recv() => return Ok(End::Signal),
                Some(exited) = self.running.exits.join_next() => {
                    self.ended(exited.context("waiting for a process to end")??)?;
                }
                notice = self.noticed.recv() => {
                    let Some(notice) = notice else { return Ok(End::EventsFailed) };
                    self.heed(notice)?;
                    if self.running.exits.is_empty() && self.running.unconfirmed == 0 {
                        return Ok(End::TargetsGone);
                    }
                }
                _ = exec_ticks.tick(), if !self.pending.looks.is_empty() => self.follow_execs()?,
                guard = self.kernel_log.readable_mut() => {
                    let mut guard = guard.context("reading the probes' log")?;
                    guard.get_inner_mut().flush();
                    guard.clear_ready();
                }
                _ = looks.tick() => {
                    // Those that have ended cost nothing any more.
                    self.governor.price(|kind| self.probes.are_stepped(kind))?;
                    if let Some(too_much) = self.governor.look(progress.event_bytes.load(Ordering::Relaxed))? {
                        return Ok(End::TooDear(too_much));
                    }
                }
                _ = ticks.tick() => {
                    let overhead = self.governor.overhead();
                    line.show(&progress_text(started.elapsed(), duration, progress, overhead));
                }
            }
        }
    }

    fn heed(&mut self, notice: Notice) -> Result<()> {
        match notice {
            Notice::Exec { tgid, by_leader } => {
                self.pending.start(tgid, "replaced its program", by_leader, EXEC_PATIENCE);
                Ok(())
            }
            Notice::Mapped { tgid } => self.mapped(tgid),
            Notice::Forked { child, shares_memory } => self.forked(child, shares_memory),
            Notice::Ended => {
                self.running.unconfirmed -= 1;
                Ok(())
            }
        }
    }

    /// A process maps other code than before, perhaps with an allocator of its own.
    fn mapped(&mut self, tgid: u32) -> Result<()> {
        // A new program may not have loaded its allocator yet; it is looked at again.
        if self.pending.contains(tgid) || !self.probes.are_in(tgid) {
            return Ok(());
        }
        if let Err(error) = self.probes.refresh(tgid) {
            log::info!("process {tgid} maps other files than before: {error:#}");
            self.pending.start(tgid, "maps other files than before", true, CHANGE_PATIENCE);
        }
        self.probes_changed()
    }

    /// A process has ended.
    fn ended(&mut self, key: ProcessKey) -> Result<()> {
        if self.running.started.get(&key.tgid) == Some(&key.start_time) {
            self.running.started.remove(&key.tgid);
            self.probes.remove(key.tgid);
            self.pending.looks.retain(|look| look.tgid != key.tgid);
        }
        self.running.unconfirmed += 1;
        self.tell(Control::Exited(key))
    }

    /// A watched process has a child. One in its parent's memory gets its probes when it has left it.
    fn forked(&mut self, child: ProcessKey, shares_memory: bool) -> Result<()> {
        self.running.started.insert(child.tgid, child.start_time);
        let target = match Target::open(child.tgid) {
            Ok(target) if target.info.key == child => target,
            // It has ended already.
            _ => return self.ended(child),
        };
        self.running.exits.spawn(wait_for_exit(child, target.pidfd));
        if shares_memory {
            return Ok(());
        }
        match self.probes.add_child(child.tgid) {
            Ok(()) => self.tell_of_probes(child.tgid),
            Err(error) => {
                // Mostly because it has just ended.
                log::info!("child process {}: {error:#}", child.tgid);
                self.pending.start(child.tgid, "is a new child", true, CHANGE_PATIENCE);
                Ok(())
            }
        }
    }

    fn follow_execs(&mut self) -> Result<()> {
        let mut put_in = Vec::new();
        let probes = &mut self.probes;
        let failures = &mut self.pending.failures;
        self.pending.looks.retain_mut(|look| match probes.follow_exec(look.tgid, look.by_leader) {
            Ok(new) => {
                if new && look.settled.is_none() {
                    put_in.push(look.tgid);
                }
                // Only once: the probes are bound to the process as it is now.
                look.by_leader = true;
                let settled = *look.settled.get_or_insert_with(|| Instant::now() + EXEC_SETTLES);
                Instant::now() < settled
            }
            Err(_) if Instant::now() < look.deadline => true,
            Err(error) => {
                *failures += 1;
                if *failures <= TOLD_FAILURES {
                    present::message(&format!("process {} {}: {error:#}", look.tgid, look.what));
                }
                false
            }
        });
        put_in.into_iter().try_for_each(|tgid| self.tell_of_probes(tgid))?;
        self.probes_changed()
    }

    /// Probes have just been put into a process.
    fn tell_of_probes(&mut self, tgid: u32) -> Result<()> {
        self.tell(Control::Input(Input::ProbesInPlace { tgid, time: monotonic_ns() }))?;
        self.probes_changed()
    }

    /// Prices the probes as they are now, and tells of the allocators that have been found.
    fn probes_changed(&mut self) -> Result<()> {
        self.governor.price(|kind| self.probes.are_stepped(kind))?;
        self.probes.take_found().into_iter().try_for_each(|found| self.tell(Control::Allocator(found)))
    }

    fn tell(&self, control: Control) -> Result<()> {
        self.control.send(control).context("the event thread has ended")
    }

    /// Takes the probes out and reports what the kernel side still has to say. What they have cost.
    pub(crate) fn take_out_probes(mut self, progress: &Progress) -> Result<OverheadFigures> {
        let untold = self.pending.failures.saturating_sub(TOLD_FAILURES);
        if untold > 0 {
            present::message(&format!("{untold} more times no probes could be put into a process"));
        }
        let looked = self.governor.look(progress.event_bytes.load(Ordering::Relaxed));
        self.probes.take_out()?;
        looked?;
        self.kernel_log.into_inner().flush();
        Ok(self.governor.figures())
    }
}

/// Lets the runtime wait until `source` becomes readable.
fn readable<T: OwnsFd>(source: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: the source owns its descriptor (see `OwnsFd`), so it stays open and the same while the
    // AsyncFd holds it.
    unsafe { AsyncFd::register_with_interest(source, Interest::READABLE) }.map_err(io::Error::from)
}

/// Sources that own one descriptor for all their life.
trait OwnsFd: AsRawFd {}
impl OwnsFd for OwnedFd {}
impl OwnsFd for KernelLogger {}

async fn wait_for_exit(key: ProcessKey, pidfd: OwnedFd) -> Result<ProcessKey> {
    let tgid = key.tgid;
    let pidfd = readable(pidfd).with_context(|| format!("watching for the end of process {tgid}"))?;
    // The descriptor becomes readable when the process ends, and stays so.
    let _ready = pidfd.readable().await.with_context(|| format!("waiting for the end of process {tgid}"))?;
    Ok(key)
}

fn progress_text(
    elapsed: Duration,
    duration: Option<Duration>,
    progress: &Progress,
    overhead: u64,
) -> String {
    let of = duration.map_or_else(String::new, |duration| format!(" of {}", duration.as_secs()));
    let events = progress.events.load(Ordering::Relaxed);
    let lost = progress.lost.load(Ordering::Relaxed);
    let losses = if lost == 0 { String::new() } else { format!(", {lost} allocations lost") };
    let cost = governor::percent(overhead);
    format!("{}{of} s, {events} events{losses}, {cost} % of a core; Ctrl-C ends early", elapsed.as_secs())
}
