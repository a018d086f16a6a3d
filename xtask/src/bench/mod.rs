//! `cargo xtask bench overhead`: what a malloc+free pair costs under memprof, beside probes that do
//! nothing at the same places (the floor) and beside bcc's memleak.
//!
//! `cargo xtask bench tables`: what the live tables cost, see there.
//!
//! `cargo xtask bench java` and `soak`: a JVM, see there.
//!
//! All cases are measured in turn, several rounds in one run, each between two measurements of the
//! bare loop. The loop runs on a private copy of the C library: uprobes go by inode, so tracers of
//! other processes on the machine cannot disturb it.

mod java;
mod memleak;
mod recording;
mod tables;
mod target;
mod tracer;

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::Value;

use self::memleak::Memleak;
use self::target::PairLoop;
use self::tracer::Tracer;
use crate::agent;
use crate::report::Report;
use crate::run::is_root;
use crate::setup::{self, Mode, Purpose};
use crate::workspace::Workspace;

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

/// Which benchmark.
#[derive(Subcommand)]
enum Bench {
    /// Nanoseconds that probes add to a malloc+free pair
    Overhead {
        /// Rounds through all cases
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Leave out bcc's memleak (a Debian package and kernel headers that are installed for it)
        #[arg(long)]
        no_memleak: bool,
    },
    /// Memory per live block, events per second, their lag, and the cost of a lookup
    Tables {
        /// Rounds of the lookup
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
    },
    /// Microseconds per stack with Java frames, the agent's CPU time, and gaps in the target
    Java {
        /// Rounds of the steady load
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
    },
    /// A JVM that redeploys its classes, recorded for long: memory of the agent, ends of the stacks
    Soak {
        /// How long
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        minutes: u32,
    },
}

/// A case of the benchmark and its measurements, in nanoseconds per pair.
struct Case {
    name: &'static str,
    tracer: Tracer,
    pairs: u32,
    nanoseconds: Vec<f64>,
}

/// Pairs per repeat of the bare loop.
const BARE_PAIRS: u32 = 1_000_000;
/// Pairs per repeat of a case: two samples at the default interval.
const CASE_PAIRS: u32 = 20_000;
/// Pairs per repeat under memleak, which takes ten times as long.
const MEMLEAK_PAIRS: u32 = 5_000;
/// Repeats per case and round.
const REPEATS: u32 = 9;

/// Runs the benchmark and prints its table.
pub(crate) fn run(args: &BenchArgs, workspace: &Workspace, report: &Report) -> Result<()> {
    if !is_root() {
        anyhow::bail!("the benchmark attaches probes: run it as root");
    }
    setup::ensure(Mode::Install, Purpose::Test, report)?;
    let agent = agent::build(true, workspace, report)?;
    match args.bench {
        Bench::Overhead { rounds, no_memleak } => overhead(&agent, workspace, rounds, no_memleak, report),
        Bench::Tables { rounds } => {
            print!("{}", tables::run(&agent, workspace, rounds, report)?);
            Ok(())
        }
        Bench::Java { rounds } => {
            print!("{}", java::run(&agent, workspace, rounds, report)?);
            Ok(())
        }
        Bench::Soak { minutes } => java::soak(&agent, workspace, minutes),
    }
}

fn overhead(
    agent: &Path,
    workspace: &Workspace,
    rounds: u32,
    no_memleak: bool,
    report: &Report,
) -> Result<()> {
    let mut cases = vec![
        Case::new("floor: empty probe pair", Tracer::floor(agent), CASE_PAIRS),
        Case::new("memprof, nothing sampled (1 GiB)", Tracer::record(agent, "1GiB"), CASE_PAIRS),
        Case::new("memprof, default (512 KiB)", Tracer::record(agent, "512KiB"), CASE_PAIRS),
    ];
    if !no_memleak {
        let memleak = Memleak::prepare(workspace, report)?;
        cases.push(Case::new("memleak-bpfcc", Tracer::memleak(&memleak), MEMLEAK_PAIRS));
    }
    let mut bare = Vec::new();
    report.step("measure", || {
        let mut target = PairLoop::start(workspace)?;
        for _ in 0..rounds {
            for case in &mut cases {
                bare.extend(target.measure(BARE_PAIRS, REPEATS)?);
                let running = case.tracer.start(target.pid()).context(case.name)?;
                case.nanoseconds.extend(target.measure(case.pairs, REPEATS)?);
                running.stop().context(case.name)?;
            }
        }
        bare.extend(target.measure(BARE_PAIRS, REPEATS)?);
        Ok(format!("{rounds} rounds"))
    })?;
    print!("{}", table(&bare, &cases));
    Ok(())
}

impl Case {
    fn new(name: &'static str, tracer: Tracer, pairs: u32) -> Self {
        Self { name, tracer, pairs, nanoseconds: Vec::new() }
    }
}

/// A number of the agent's report.
fn number(report: &Value, pointer: &str) -> Result<f64> {
    report.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("the report has no {pointer}"))
}

/// Minimum and median.
fn summary(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2])
}

fn table(bare: &[f64], cases: &[Case]) -> String {
    let (bare_min, bare_median) = summary(bare);
    let (floor_min, floor_median) = summary(&cases[0].nanoseconds);
    let added = |value: f64, bare: f64| value - bare;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nnanoseconds of CPU time added per malloc+free pair of 64 bytes, and as a ratio to the floor"
    );
    let _ = writeln!(text, "{:<36}{:>12}{:>12}{:>10}{:>10}", "", "min", "median", "min ×", "median ×");
    let _ = writeln!(text, "{:<36}{bare_min:>12.1}{bare_median:>12.1}", "(bare loop, its own time)");
    for case in cases {
        let (min, median) = summary(&case.nanoseconds);
        let _ = writeln!(
            text,
            "{:<36}{:>12.0}{:>12.0}{:>10.2}{:>10.2}",
            case.name,
            added(min, bare_min),
            added(median, bare_median),
            added(min, bare_min) / added(floor_min, bare_min),
            added(median, bare_median) / added(floor_median, bare_median),
        );
    }
    text
}
