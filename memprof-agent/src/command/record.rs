//! `record`: probes in, events until the time is up, probes out, results.
//!
//! One task waits for whatever ends or changes the recording (time, signals, the targets' end, an
//! exec); the pipeline thread does the work.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use bytesize::ByteSize;
use memprof_common::settings::KernelOffsets;
use memprof_core::figures::MemoryFigures;
use memprof_core::input::{Input, RunInfo};
use memprof_core::profile::ValueKind;
use memprof_core::run_event::{RunEvent, RunEventKind};
use tokio::sync::mpsc;

use crate::bpf::calibrate::hit_costs;
use crate::bpf::counters::KernelCounters;
use crate::bpf::kernel_side::{KernelSide, LoadOptions};
use crate::budget::Budget;
use crate::cli::{ProbeArgs, RecordArgs, ViewArgs};
use crate::forecast::forecast;
use crate::governor::{Governor, Prices, TooMuch};
use crate::host::btf::{KERNEL_BTF, KernelLayout};
use crate::host::clock::monotonic_ns;
use crate::launch::Waiting;
use crate::live_bound::LiveBound;
use crate::output::{Format, OpenOutput};
use crate::pipeline::{Control, Finished, Intake, Pipeline, Progress};
use crate::present;
use crate::probes::Probes;
use crate::recorder::Recorder;
use crate::scope;
use crate::symbolizer::Symbolizer;
use crate::target::{self, Target};
use crate::watch::{End, Watch};

/// How long a recording of running processes takes unless told.
const DEFAULT_DURATION: Duration = Duration::from_secs(30);
/// Execs that may wait to be looked at.
const MAX_NOTICES: usize = 1024;

/// Records and writes what was asked for.
pub(crate) fn run(args: RecordArgs) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(record(args))
}

async fn record(args: RecordArgs) -> Result<ExitCode> {
    if args.view.value == ValueKind::InuseGrowth {
        bail!("growth needs two moments: record to a .mprec file and replay it with --from");
    }
    target::check_namespace()?;
    let (outputs, recording) = open_outputs(&args.view)?;
    let (targets, waiting) = open_targets(&args)?;
    let budget = args.probes.budget();
    let options = load_options(&args.probes, &budget);
    scope::prepare(options.scope, &options.kernel)?;
    let mut kernel_side = KernelSide::load(options)?;
    let memory = MemoryFigures {
        budget: budget.total,
        kernel_maps: std::mem::take(&mut kernel_side.memory),
        live_capacity: budget.max_live_blocks.into(),
        live_blocks: 0,
    };
    report_memory(&memory);
    let logger = kernel_side.take_logger()?;
    let ring = kernel_side.take_events()?;
    let counters = KernelCounters::another(&kernel_side.ebpf)?;
    let tables = kernel_side.take_tables()?;
    let bound = LiveBound::new(kernel_side.settings.clone(), memory);
    let tgids: Vec<u32> = targets.iter().map(Target::tgid).collect();
    let costs = hit_costs(&kernel_side.object);
    if waiting.is_none() {
        forecast(&kernel_side, costs, &args.probes, &tgids)?;
    }
    let mut probes = Probes::attach(kernel_side, &args.probes, &tgids)?;
    let prices = Prices::new(costs, |kind| probes.are_stepped(kind));
    let governor = Governor::new(counters, prices, args.probes.max_overhead)?;
    let recorder = recording.map(Recorder::start).transpose()?;

    let (notices, noticed) = mpsc::channel(MAX_NOTICES);
    let progress = Arc::new(Progress::default());
    let mut intake = Intake::new(tables, bound, recorder, notices, Arc::clone(&progress));
    if args.view.threads {
        intake.tell_threads();
    }
    intake.ingest(Input::Run(run_info(&args.probes, &probes)?));
    intake.ingest(Input::Scope(scope::of(&args.probes)));
    for target in &targets {
        intake.add_process(target.info.clone());
        intake.read_mappings(target.tgid())?;
    }
    for found in probes.take_found() {
        intake.add_allocator(found);
    }
    intake.ingest(Input::Limits { stack_bytes: budget.stack_bytes });
    let running = Pipeline::new(ring, budget.ring_bytes, intake).start()?;
    let duration = args.duration.or_else(|| waiting.is_none().then_some(DEFAULT_DURATION));
    let mut watch = Watch::new(targets, probes, governor, running.control.clone(), noticed, logger)?;
    present::message(&watch.description(args.probes.sample_interval, duration));
    let child = waiting.map(Waiting::release).transpose()?;

    // Whatever went wrong: the probes come out, and what was recorded until then is written.
    let ended = watch.until_end(duration, &progress).await;
    let overhead = watch.take_out_probes(&progress);
    if let Ok(End::TooDear(too_much)) = ended {
        // An event thread that has ended has an error of its own to tell.
        let _ = running.control.send(taken_out(too_much));
    }
    finish(running.stop(overhead.as_ref().ok().cloned())?, outputs, &args.view)?;
    overhead?;
    match (ended?, child) {
        (End::TargetsGone, Some(mut child)) => {
            let status = child.wait().context("waiting for the command")?;
            if !status.success() {
                present::message(&format!("the command ended with {status}"));
            }
        }
        (End::Time | End::TooDear(_), Some(child)) => {
            present::message(&format!("the command runs on as process {}", child.id()))
        }
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that the probes were taken out, and tells the core.
fn taken_out(too_much: TooMuch) -> Control {
    let TooMuch { overhead, limit } = too_much;
    let kind = RunEventKind::ProbesTakenOut { overhead, limit };
    present::message(&kind.to_string());
    Control::Input(Input::RunEvent(RunEvent { time: monotonic_ns(), kind }))
}

/// Creates all output files; the recording apart.
fn open_outputs(view: &ViewArgs) -> Result<(Vec<OpenOutput>, Option<OpenOutput>)> {
    let opened: Vec<OpenOutput> = view.output.iter().map(|output| output.create()).collect::<Result<_>>()?;
    let (mut recordings, outputs): (Vec<_>, Vec<_>) =
        opened.into_iter().partition(|output| output.format() == Format::Recording);
    if recordings.len() > 1 {
        bail!("one recording (.mprec) per run: copy it if you need two");
    }
    let recording = recordings.pop();
    if recording.is_some() {
        present::message(
            "the recording will contain parts of the target's stacks; it is readable by you only",
        );
    }
    Ok((outputs, recording))
}

/// Finds the processes, or creates the one of the command.
fn open_targets(args: &RecordArgs) -> Result<(Vec<Target>, Option<Waiting>)> {
    if args.targets.command.is_empty() {
        let targets = target::find(&args.targets)?;
        for target in &targets {
            target::check_seccomp(target.tgid(), args.probes.force)?;
        }
        return Ok((targets, None));
    }
    let waiting = Waiting::start(&args.targets.command, args.view.json)?;
    Ok((vec![Target::open(waiting.pid)?], Some(waiting)))
}

fn load_options(args: &ProbeArgs, budget: &Budget) -> LoadOptions {
    LoadOptions {
        sample_interval: args.sample_interval,
        stack_limit: args.stack_size,
        max_live_blocks: budget.max_live_blocks,
        ring_bytes: budget.ring_bytes,
        max_calls: budget.max_calls,
        kernel: kernel_offsets(),
        scope: scope::of(args),
    }
}

/// Says what the probes' maps take of the kernel's memory.
fn report_memory(memory: &MemoryFigures) {
    let all: u64 = memory.kernel_maps.iter().map(|(_, bytes)| bytes).sum();
    present::message(&format!(
        "{} of kernel memory for the probes (room for {} live blocks) of a budget of {}",
        ByteSize(all),
        memory.live_capacity,
        ByteSize(memory.budget)
    ));
    for (name, bytes) in &memory.kernel_maps {
        log::debug!("kernel memory of {name}: {}", ByteSize(*bytes));
    }
}

/// Where the probes find things in the kernel. Without them they still work, but snapshots of stacks
/// end at the size limit instead of the stack's end.
fn kernel_offsets() -> KernelOffsets {
    match KernelLayout::read(Path::new(KERNEL_BTF)) {
        Ok(layout) => {
            if !layout.missing.is_empty() {
                log::warn!("this kernel lacks {}: stacks may be cut short", layout.missing.join(", "));
            }
            layout.offsets
        }
        Err(error) => {
            log::warn!("{error}; stacks may be cut short");
            KernelOffsets::NONE
        }
    }
}

fn run_info(args: &ProbeArgs, probes: &Probes) -> Result<RunInfo> {
    Ok(RunInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        sample_interval: args.sample_interval,
        attach_mode: probes.mode.to_string(),
        started_at: monotonic_ns(),
        started_at_unix: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("the clock is before 1970")?
            .as_secs(),
        scope: scope::of(args),
    })
}

/// Names the frames, writes the files, prints the result.
fn finish(finished: Finished, outputs: Vec<OpenOutput>, view: &ViewArgs) -> Result<()> {
    let Finished { mut session, modules, recorder, failure } = finished;
    let profile = session.snapshot(u64::try_from(view.min_age.as_nanos())?);
    let symbols = Input::Symbols(Symbolizer::new().symbolize(&profile.symbol_keys(), &modules));
    // Only an event can ask for mappings.
    let _done = session.ingest(&symbols);
    // Every file gets its chance, and the result is printed, before the first error is reported.
    let mut outcomes: Vec<Result<()>> = failure.map(Err).into_iter().collect();
    if let Some(recorder) = recorder {
        recorder.record_surely(symbols);
        outcomes.push(recorder.finish());
    }
    for output in outputs {
        outcomes.push(output.write(&profile, session.symbols(), view.value));
    }
    outcomes.push(present::result(&profile, session.symbols(), view));
    outcomes.into_iter().collect()
}
