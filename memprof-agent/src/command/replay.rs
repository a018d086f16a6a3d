//! `replay`: a recording through the same core, without root and without its target.

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use memprof_core::encode::units;
use memprof_core::input::Input;
use memprof_core::profile::ValueKind;
use memprof_core::recording::RecordingReader;
use memprof_core::session::Session;

use crate::cli::ReplayArgs;
use crate::output::{Format, OpenOutput};
use crate::present;

/// Replays a recording and writes what was asked for.
pub(crate) fn run(args: &ReplayArgs) -> Result<ExitCode> {
    let view = &args.view;
    if view.value == ValueKind::InuseGrowth && args.from.is_none() {
        bail!("growth since when? give --from");
    }
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from >= to
    {
        bail!("--from must lie before --to");
    }
    if view.output.iter().any(|output| output.format == Format::Recording) {
        bail!("a replay writes no recording: copy {} instead", args.recording.display());
    }
    let name = args.recording.display();
    let file = File::open(&args.recording).with_context(|| format!("opening {name}"))?;
    let mut reader = RecordingReader::new(BufReader::new(file)).with_context(|| format!("reading {name}"))?;
    let outputs: Vec<OpenOutput> = view.output.iter().map(|output| output.create()).collect::<Result<_>>()?;

    let mut session = Session::of_part(nanoseconds(args.from)?, nanoseconds(args.to)?);
    if view.threads {
        session.tell_threads();
    }
    let mut whole = true;
    for input in reader.by_ref() {
        match input {
            // Only a live event can ask for mappings.
            Ok(input) => _ = session.ingest(&input),
            // What came before the damage is still worth having.
            Err(error) => {
                present::message(&format!("{name} is replayed in part: {error}"));
                whole = false;
            }
        }
    }
    if reader.is_truncated() {
        present::message(&format!("{name} ends early (was its recorder killed?): this is what it holds"));
        whole = false;
    }
    if !whole {
        // How many are missing cannot be known; that some are must be in the result, too.
        _ = session.ingest(&Input::RecordingLost { inputs: 1 });
    }
    let profile = session.snapshot(u64::try_from(view.min_age.as_nanos())?);
    check_within("--from", args.from, profile.duration())?;
    check_within("--to", args.to, profile.duration())?;
    for output in outputs {
        output.write(&profile, session.symbols(), view.value)?;
    }
    present::result(&profile, session.symbols(), view)?;
    Ok(ExitCode::SUCCESS)
}

fn nanoseconds(time: Option<Duration>) -> Result<Option<u64>> {
    time.map(|time| u64::try_from(time.as_nanos()).context("a time is too long")).transpose()
}

/// Refuses a moment behind the end of the recording, where there is nothing to compare.
fn check_within(option: &str, time: Option<Duration>, length: u64) -> Result<()> {
    match time {
        Some(time) if time.as_nanos() > u128::from(length) => {
            bail!("{option} lies behind the end of the recording, which is {} long", units::duration(length))
        }
        _ => Ok(()),
    }
}
