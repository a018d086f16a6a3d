//! `cargo xtask bench java`: what stacks with Java frames cost, and what the target feels of it.
//! `cargo xtask bench soak`: a JVM that redeploys its classes all the time, recorded for long.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::recording::Recording;
use super::{number, summary};
use crate::report::Report;
use crate::run::stdout_of;
use crate::workspace::Workspace;

/// Rounds of the load in a second, each of which allocates five blocks that are all recorded.
const ROUNDS_PER_SECOND: u32 = 200;
/// How long each measurement takes.
const MEASURED: Duration = Duration::from_secs(10);
/// Milliseconds between two redeployments of the soak.
const REDEPLOY_MILLIS: u32 = 200;

/// Everything is recorded, with stacks as deep as they come.
const EVERYTHING: [&str; 4] = ["--sample-interval", "1", "--stack-size", "64KiB"];

/// A running load.
struct JavaLoad {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// What the load did since it was last asked.
struct Done {
    longest_gap_us: f64,
    rounds: f64,
    redeployments: f64,
}

impl JavaLoad {
    fn start(workspace: &Workspace, redeploy_millis: u32) -> Result<Self> {
        let directory = workspace.target.join("xtask").join("bench");
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let source = workspace.root.join("xtask/bench/JavaLoad.java");
        stdout_of(Command::new("javac").args(["--release", "11", "-d"]).arg(&directory).arg(&source))?;
        let arguments = [ROUNDS_PER_SECOND.to_string(), redeploy_millis.to_string()];
        let mut child = Command::new("java")
            .arg("-cp")
            .arg(&directory)
            .arg("JavaLoad")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the Java load")?;
        let stdin = child.stdin.take().context("the load has no standard input")?;
        let stdout = BufReader::new(child.stdout.take().context("the load has no standard output")?);
        let mut this = Self { child, stdin, stdout };
        match this.line()?.as_str() {
            "ready" => Ok(this),
            other => bail!("the load said {other:?} instead of ready"),
        }
    }

    fn done(&mut self) -> Result<Done> {
        writeln!(self.stdin).context("asking the load")?;
        let line = self.line()?;
        let numbers: Vec<f64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        match numbers[..] {
            [longest_gap_us, rounds, redeployments] => Ok(Done { longest_gap_us, rounds, redeployments }),
            _ => bail!("the load said {line:?}"),
        }
    }

    /// What it does in so much time.
    fn measure(&mut self, time: Duration) -> Result<Done> {
        self.done()?;
        std::thread::sleep(time);
        self.done()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).context("reading from the load")? == 0 {
            bail!("the load has ended");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for JavaLoad {
    fn drop(&mut self) {
        // It may have ended by itself; either way it must not be left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures and gives the figures as text.
pub(super) fn run(agent: &Path, workspace: &Workspace, rounds: u32, report: &Report) -> Result<String> {
    let mut text = String::new();
    report.step("load", || {
        text = steady(agent, workspace, rounds)?;
        Ok(format!("{rounds} rounds"))
    })?;
    report.step("unwind", || {
        let recording = workspace.target.join("xtask/bench/java.mprec");
        let path = recording.to_str().context("the target directory's path is no text")?.to_owned();
        let mut load = JavaLoad::start(workspace, 0)?;
        load.measure(MEASURED)?;
        let running = Recording::start(agent, load.child.id(), &[&EVERYTHING[..], &["-o", &path]].concat())?;
        load.measure(MEASURED)?;
        running.stop()?;
        let arguments = ["bench", "-q", "-p", "memprof-core", "--bench", "unwind", "--"];
        text +=
            &stdout_of(Command::new("cargo").args(arguments).arg(&recording).current_dir(&workspace.root))?;
        Ok(String::new())
    })?;
    Ok(text)
}

/// Samples at a steady rate: what the agent uses, and the gaps that the target sees, in turn with and without.
fn steady(agent: &Path, workspace: &Workspace, rounds: u32) -> Result<String> {
    let mut load = JavaLoad::start(workspace, 0)?;
    // Until its code is compiled.
    load.measure(MEASURED)?;
    let (mut without, mut with, mut cpu, mut rate, mut lags) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        without.push(load.measure(MEASURED)?.longest_gap_us);
        let recording = Recording::start(agent, load.child.id(), &EVERYTHING)?;
        load.measure(Duration::from_secs(2))?;
        let (before, started) = (recording.cpu_ns()?, Instant::now());
        let done = load.measure(MEASURED)?;
        let seconds = started.elapsed().as_secs_f64();
        cpu.push((recording.cpu_ns()? - before) as f64 / 1e9 / seconds * 100.0);
        with.push(done.longest_gap_us);
        let report = recording.stop()?;
        rate.push(number(&report, "/coverage/samples")? / number(&report, "/duration_seconds")?);
        lags.push(number(&report, "/lag/percentile_99_us")?);
        ensure!(done.rounds > 0.0, "the load has stood still");
    }
    Ok(format!(
        "\nat {:.0} samples a second (median): the agent uses {:.2} % of a core (min), {:.2} % (median); \
         99th percentile of the lag {:.0} µs (median)\n\
         longest gap in a busy Java thread of the target in {} s: {:.0} µs without (median), {:.0} µs while recorded\n",
        summary(&rate).1,
        summary(&cpu).0,
        summary(&cpu).1,
        summary(&lags).1,
        MEASURED.as_secs(),
        summary(&without).1,
        summary(&with).1,
    ))
}

/// Records a JVM that redeploys, prints the agent's memory every minute, and how the stacks ended.
pub(super) fn soak(agent: &Path, workspace: &Workspace, minutes: u32) -> Result<()> {
    let mut load = JavaLoad::start(workspace, REDEPLOY_MILLIS)?;
    let recording = Recording::start(agent, load.child.id(), &EVERYTHING)?;
    for minute in 1..=minutes {
        let done = load.measure(Duration::from_secs(60))?;
        println!(
            "minute {minute}: the agent has {:.1} MiB of its own, {:.0} rounds, {:.0} redeployments",
            recording.resident_bytes()? as f64 / f64::from(1 << 20),
            done.rounds,
            done.redeployments
        );
    }
    let report = recording.stop()?;
    println!("stacks: {}\nlosses: {}", report["coverage"], report["losses"]);
    Ok(())
}
