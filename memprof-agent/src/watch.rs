//! Waiting for whatever ends or changes a recording: time, signals, the targets' end, an exec.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use aya_log::EbpfLogger;
use bytesize::ByteSize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::pipeline::{Control, Notice, Progress};
use crate::present::{self, ProgressLine};
use crate::probes::Probes;
use crate::target::Target;

/// How long after an exec the new program's allocator is looked for: its loader has to map it first.
const EXEC_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked for.
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
}

type KernelLogger = EbpfLogger<&'static dyn log::Log>;

/// What is waited for.
pub(crate) struct Watch {
    names: String,
    probes: Probes,
    control: SyncSender<Control>,
    noticed: mpsc::Receiver<Notice>,
    kernel_log: AsyncFd<KernelLogger>,
    exits: JoinSet<Result<u32>>,
    execs: Vec<PendingExec>,
    interrupt: Signal,
    terminate: Signal,
}

/// A process whose new program's allocator has not been found yet.
struct PendingExec {
    tgid: u32,
    by_leader: bool,
    deadline: Instant,
}

impl Watch {
    /// Prepares to wait for these processes.
    pub(crate) fn new(
        targets: Vec<Target>,
        probes: Probes,
        control: SyncSender<Control>,
        noticed: mpsc::Receiver<Notice>,
        kernel_log: KernelLogger,
    ) -> Result<Self> {
        let names: Vec<String> =
            targets.iter().map(|target| format!("{} ({})", target.tgid(), target.info.comm)).collect();
        let mut exits = JoinSet::new();
        for target in targets {
            exits.spawn(wait_for_exit(target.tgid(), target.pidfd));
        }
        Ok(Self {
            names: names.join(", "),
            probes,
            control,
            noticed,
            kernel_log: readable(kernel_log).context("watching the probes' log")?,
            exits,
            execs: Vec::new(),
            interrupt: signal(SignalKind::interrupt()).context("handling SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("handling SIGTERM")?,
        })
    }

    /// What is being recorded and how, in words.
    pub(crate) fn description(&self, sample_interval: u64, duration: Option<Duration>) -> String {
        let plan = &self.probes.plan;
        let sites = &plan.probes.sites;
        let interval = if sample_interval == 1 {
            "every block".into()
        } else {
            format!("one sample per {}", ByteSize(sample_interval))
        };
        let until = duration.map_or_else(
            || "until it ends".into(),
            |duration| format!("for {}", humantime::format_duration(duration)),
        );
        let mut text = format!(
            "recording {} {until}, {interval}; {} probes by {} in {} ({})",
            self.names,
            sites.len(),
            self.probes.mode,
            plan.path,
            plan.allocator
        );
        for site in sites.iter().filter(|site| !site.emulated) {
            text += &format!(
                "; {} is single-stepped at `{}`, which costs several times as much",
                site.symbol, site.instruction
            );
        }
        text
    }

    /// Waits for the end. Reports execs and exits on the way.
    pub(crate) async fn until_end(&mut self, duration: Option<Duration>, progress: &Progress) -> Result<End> {
        let started = Instant::now();
        let time_up = sleep(duration.unwrap_or_default());
        tokio::pin!(time_up);
        let mut line = ProgressLine::default();
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut exec_ticks = interval(EXEC_RETRY);
        exec_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut time_up, if duration.is_some() => return Ok(End::Time),
                _ = self.interrupt.recv() => return Ok(End::Signal),
                _ = self.terminate.recv() => return Ok(End::Signal),
                Some(exited) = self.exits.join_next() => {
                    let tgid = exited.context("waiting for a process to end")??;
                    self.probes.remove(tgid);
                    self.control.send(Control::Exited { tgid }).context("the event thread has ended")?;
                    if self.exits.is_empty() {
                        return Ok(End::TargetsGone);
                    }
                }
                Some(Notice::Exec { tgid, by_leader }) = self.noticed.recv() => {
                    self.execs.retain(|pending| pending.tgid != tgid);
                    self.execs.push(PendingExec { tgid, by_leader, deadline: Instant::now() + EXEC_PATIENCE });
                }
                _ = exec_ticks.tick(), if !self.execs.is_empty() => self.follow_execs(),
                guard = self.kernel_log.readable_mut() => {
                    let mut guard = guard.context("reading the probes' log")?;
                    guard.get_inner_mut().flush();
                    guard.clear_ready();
                }
                _ = ticks.tick() => line.show(&progress_text(started.elapsed(), duration, progress)),
            }
        }
    }

    fn follow_execs(&mut self) {
        let probes = &mut self.probes;
        self.execs.retain(|pending| match probes.follow_exec(pending.tgid, pending.by_leader) {
            Ok(()) => false,
            Err(_) if Instant::now() < pending.deadline => true,
            Err(error) => {
                present::message(&format!("process {} replaced its program: {error:#}", pending.tgid));
                false
            }
        });
    }

    /// Takes the probes out and reports what the kernel side still has to say.
    pub(crate) fn take_out_probes(self) -> Result<()> {
        self.probes.take_out()?;
        self.kernel_log.into_inner().flush();
        Ok(())
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

async fn wait_for_exit(tgid: u32, pidfd: OwnedFd) -> Result<u32> {
    let pidfd = readable(pidfd).with_context(|| format!("watching for the end of process {tgid}"))?;
    // The descriptor becomes readable when the process ends, and stays so.
    let _ready = pidfd.readable().await.with_context(|| format!("waiting for the end of process {tgid}"))?;
    Ok(tgid)
}

fn progress_text(elapsed: Duration, duration: Option<Duration>, progress: &Progress) -> String {
    let of = duration.map_or_else(String::new, |duration| format!(" of {}", duration.as_secs()));
    let events = progress.events.load(Ordering::Relaxed);
    let lost = progress.lost.load(Ordering::Relaxed);
    let losses = if lost == 0 { String::new() } else { format!(", {lost} allocations lost") };
    format!("{}{of} s, {events} events{losses}; Ctrl-C ends early", elapsed.as_secs())
}
