//! `cargo xtask bench tables`: what the live tables cost. Memory per live block, events that one core of
//! the agent takes, their lag, and what a lookup in the kernel's table adds to a `free`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::recording::Recording;
use super::target::PairLoop;
use super::{number, summary};
use crate::report::Report;
use crate::workspace::Workspace;

/// Blocks that are held to measure what each takes; the default budget has room for them.
const BLOCKS: u32 = 200_000;
/// Their size, in bytes, where every block is recorded.
const SMALL: u32 = 64;
/// Interval and size, in bytes, where held blocks are recorded and those of the pairs (64 bytes) rarely: one
/// in 256.
const LARGE: u32 = 16 << 10;
/// Pairs and repeats for the lookup.
const PAIRS: (u32, u32) = (20_000, 15);

/// Figures of one recording of a burst.
struct Burst {
    kernel_bytes: f64,
    agent_bytes: f64,
    events_per_second: f64,
    report: Value,
}

/// Measures and gives the figures as text.
pub(super) fn run(agent: &Path, workspace: &Workspace, rounds: u32, report: &Report) -> Result<String> {
    let mut text = String::new();
    report.step("burst", || {
        let burst = burst(agent, workspace)?;
        text = format!(
            "\nlive block: {:.0} bytes in the kernel, {:.0} in the agent ({BLOCKS} blocks)\n\
             events: {:.0} a second on one core of the agent (allocations with short stacks)\n\
             lag of events in a burst of {BLOCKS}: {}\n",
            burst.kernel_bytes,
            burst.agent_bytes,
            burst.events_per_second,
            lag(&burst.report)?
        );
        Ok(String::new())
    })?;
    report.step("paced", || {
        text += &format!("lag of events at a steady rate: {}\n", lag(&paced(agent, workspace)?)?);
        Ok(String::new())
    })?;
    report.step("lookup", || {
        text += &lookup(agent, workspace, rounds)?;
        Ok(format!("{rounds} rounds"))
    })?;
    Ok(text)
}

/// Every one of many blocks is recorded and held.
fn burst(agent: &Path, workspace: &Workspace) -> Result<Burst> {
    let mut target = PairLoop::start(workspace)?;
    // The ring holds the whole burst, so that nothing is lost however slow the machine is.
    let recording =
        Recording::start(agent, target.pid(), &["--sample-interval", "1", "--ring-size", "512MiB"])?;
    target.keep(100, SMALL)?;
    std::thread::sleep(Duration::from_millis(500));
    let (bytes, busy) = (recording.resident_bytes()?, recording.event_thread_ns()?);
    target.keep(BLOCKS, SMALL)?;
    wait_until_idle(&recording)?;
    let bytes = recording.resident_bytes()? - bytes;
    let busy = recording.event_thread_ns()? - busy;
    let report = recording.stop()?;
    let live = number(&report, "/memory/live_blocks")?;
    ensure!(live >= f64::from(BLOCKS), "only {live} of {BLOCKS} blocks were recorded");
    Ok(Burst {
        kernel_bytes: map_bytes(&report, "LIVE")? / number(&report, "/memory/live_capacity")?,
        agent_bytes: bytes as f64 / f64::from(BLOCKS),
        events_per_second: f64::from(BLOCKS) * 1e9 / busy as f64,
        report,
    })
}

/// One pair of 256 is recorded.
fn paced(agent: &Path, workspace: &Workspace) -> Result<Value> {
    let mut target = PairLoop::start(workspace)?;
    let recording = Recording::start(agent, target.pid(), &["--sample-interval", &LARGE.to_string()])?;
    target.measure(PAIRS.0, 20 * PAIRS.1)?;
    recording.stop()
}

/// What pairs cost with an empty live table and with one that holds many blocks, each beside the loop's own
/// time with the same heap.
fn lookup(agent: &Path, workspace: &Workspace, rounds: u32) -> Result<String> {
    let (mut bare, mut empty, mut bare_full, mut full) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        let mut target = PairLoop::start(workspace)?;
        bare.extend(target.measure(PAIRS.0, PAIRS.1)?);
        let recording = Recording::start(agent, target.pid(), &["--sample-interval", &LARGE.to_string()])?;
        empty.extend(target.measure(PAIRS.0, PAIRS.1)?);
        target.keep(BLOCKS, LARGE)?;
        wait_until_idle(&recording)?;
        full.extend(target.measure(PAIRS.0, PAIRS.1)?);
        let live = number(&recording.stop()?, "/memory/live_blocks")?;
        ensure!(live >= f64::from(BLOCKS), "only {live} of {BLOCKS} blocks were in the table");
        bare_full.extend(target.measure(PAIRS.0, PAIRS.1)?);
    }
    let added = |with: &[f64], without: &[f64]| {
        let ((min, median), (bare_min, bare_median)) = (summary(with), summary(without));
        (min - bare_min, median - bare_median)
    };
    let (empty, full) = (added(&empty, &bare), added(&full, &bare_full));
    Ok(format!(
        "pair (one in 256 recorded), live table empty: {:.0} ns added (min), {:.0} (median)\n\
         pair, live table of {BLOCKS} blocks:           {:.0} ns added (min), {:.0} (median)\n\
         so a lookup in the full table costs {:.0} ns more (min), {:.0} (median): {:.2} and {:.2} times the pair\n",
        empty.0,
        empty.1,
        full.0,
        full.1,
        full.0 - empty.0,
        full.1 - empty.1,
        full.0 / empty.0,
        full.1 / empty.1
    ))
}

/// Waits until the agent has taken all events: its event thread does next to nothing any more.
fn wait_until_idle(recording: &Recording) -> Result<()> {
    let mut before = recording.event_thread_ns()?;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = recording.event_thread_ns()?;
        if now - before < 10_000_000 {
            return Ok(());
        }
        before = now;
    }
}

fn lag(report: &Value) -> Result<String> {
    Ok(format!(
        "median {:.0} µs, 99th percentile {:.0} µs",
        number(report, "/lag/median_us")?,
        number(report, "/lag/percentile_99_us")?
    ))
}

fn map_bytes(report: &Value, name: &str) -> Result<f64> {
    let maps = report.pointer("/memory/kernel_maps").and_then(Value::as_array);
    let map = maps.into_iter().flatten().find(|map| map[0] == name);
    map.and_then(|map| map[1].as_f64()).with_context(|| format!("the report has no map {name}"))
}
