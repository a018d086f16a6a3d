//! `record`: probes in, events until the time is up, probes out, results.
//!
//! One task waits for whatever ends or changes the recording (time, signals, the targets' end, an
//! exec); the pipeline thread does the work.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use memprof_common::settings::KernelOffsets;
use memprof_core::input::{Input, RunInfo};
use tokio::sync::mpsc;

use crate::bpf::kernel_side::{KernelSide, LoadOptions};
use crate::cli::{ProbeArgs, RecordArgs, ViewArgs};
use crate::host::btf::{KERNEL_BTF, KernelLayout};
use crate::launch::Waiting;
use crate::output::{Format, OpenOutput};
use crate::pipeline::{Finished, Intake, Pipeline, Progress, monotonic_ns};
use crate::present;
use crate::probes::Probes;
use crate::recorder::Recorder;
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
    target::check_namespace()?;
    let (outputs, recording) = open_outputs(&args.view)?;
    let (targets, waiting) = open_targets(&args)?;
    let mut kernel_side = KernelSide::load(load_options(&args.probes))?;
    let logger = kernel_side.take_logger()?;
    let ring = kernel_side.take_events()?;
    let tables = kernel_side.take_tables()?;
    let tgids: Vec<u32> = targets.iter().map(Target::tgid).collect();
    let probes = Probes::attach(kernel_side, &args.probes, &tgids)?;
    let recorder = recording.map(Recorder::start).transpose()?;

    let (notices, noticed) = mpsc::channel(MAX_NOTICES);
    let progress = Arc::new(Progress::default());
    let mut intake = Intake::new(tables, recorder, notices, Arc::clone(&progress));
    intake.ingest(Input::Run(run_info(&args.probes, &probes)?));
    for target in &targets {
        intake.ingest(Input::Process(target.info.clone()));
        intake.read_mappings(target.tgid())?;
    }
    let running = Pipeline::new(ring, intake).start()?;
    let duration = args.duration.or_else(|| waiting.is_none().then_some(DEFAULT_DURATION));
    let mut watch = Watch::new(targets, probes, running.control.clone(), noticed, logger)?;
    present::message(&watch.description(args.probes.sample_interval, duration));
    let child = waiting.map(Waiting::release).transpose()?;

    let end = watch.until_end(duration, &progress).await?;
    watch.take_out_probes()?;
    finish(running.stop()?, outputs, &args.view)?;
    match (end, child) {
        (End::TargetsGone, Some(mut child)) => {
            let status = child.wait().context("waiting for the command")?;
            if !status.success() {
                present::message(&format!("the command ended with {status}"));
            }
        }
        (End::Time, Some(child)) => {
            present::message(&format!("the command runs on as process {}", child.id()))
        }
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
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
            target.check_seccomp(args.probes.force)?;
        }
        return Ok((targets, None));
    }
    let waiting = Waiting::start(&args.targets.command, args.view.json)?;
    Ok((vec![Target::open(waiting.pid)?], Some(waiting)))
}

fn load_options(args: &ProbeArgs) -> LoadOptions {
    LoadOptions {
        sample_interval: args.sample_interval,
        stack_limit: args.stack_size,
        max_live_blocks: args.max_live_blocks,
        ring_bytes: args.ring_size,
        kernel: kernel_offsets(),
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
    })
}

/// Names the frames, writes the files, prints the result.
fn finish(finished: Finished, outputs: Vec<OpenOutput>, view: &ViewArgs) -> Result<()> {
    let Finished { mut session, modules, recorder } = finished;
    let profile = session.snapshot(u64::try_from(view.min_age.as_nanos())?);
    let symbols = Input::Symbols(Symbolizer::new().symbolize(&profile.symbol_keys(), &modules));
    // Only an event can ask for mappings.
    let _done = session.ingest(&symbols);
    // Every file gets its chance, and the result is printed, before the first error is reported.
    let mut outcomes = Vec::new();
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
