//! One line per step, on standard output: `[ 12.3s] clippy … ok`.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::run::run_logged;
use crate::workspace::Workspace;

/// Lines of a failed command's output that are shown.
const TAIL: usize = 60;

/// Prints steps and keeps the full output of their commands in log files.
pub(crate) struct Report {
    log_directory: PathBuf,
}

impl Report {
    /// Logs go to `target/xtask`.
    pub(crate) fn new(workspace: &Workspace) -> Result<Self> {
        let log_directory = workspace.target.join("xtask");
        fs::create_dir_all(&log_directory)
            .with_context(|| format!("creating {}", log_directory.display()))?;
        Ok(Self { log_directory })
    }

    /// Runs `work` as the step `name` and prints its outcome; the text that `work` returns is printed
    /// after `ok`.
    pub(crate) fn step(&self, name: &str, work: impl FnOnce() -> Result<String>) -> Result<()> {
        let started = Instant::now();
        announce(name);
        let outcome = work();
        withdraw();
        let seconds = started.elapsed().as_secs_f64();
        match &outcome {
            Ok(detail) if detail.is_empty() => println!("[{seconds:5.1}s] {name} … ok"),
            Ok(detail) => println!("[{seconds:5.1}s] {name} … ok: {detail}"),
            Err(_) => println!("[{seconds:5.1}s] {name} … FAILED"),
        }
        outcome.map(drop)
    }

    /// Runs a command as the step `name`; when it fails, shows the end of its output.
    pub(crate) fn command(&self, name: &str, command: Command) -> Result<()> {
        self.step(name, || self.logged(name, command).map(|()| String::new()))
    }

    /// Runs a command, logging its output; when it fails, shows the end of its output.
    pub(crate) fn logged(&self, name: &str, command: Command) -> Result<()> {
        let mut lines = Vec::new();
        let log = self.log_file(name);
        let status = run_logged(command, &log, |line| lines.push(line.to_owned()))?;
        if status.success() {
            return Ok(());
        }
        show_tail(&lines);
        bail!("{name} failed ({status}); the whole output is in {}", log.display())
    }

    /// The log file of a step.
    pub(crate) fn log_file(&self, name: &str) -> PathBuf {
        let file_name: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        self.log_directory.join(file_name).with_extension("log")
    }
}

/// Prints a line on standard output while a step is running.
pub(crate) fn print_within_step(line: &str) {
    withdraw();
    println!("{line}");
}

/// Prints the last lines of a failed command.
pub(crate) fn show_tail(lines: &[String]) {
    for line in &lines[lines.len().saturating_sub(TAIL)..] {
        print_within_step(&format!("    {line}"));
    }
}

/// Says on a terminal what is being done. The line is overwritten by the next one.
fn announce(name: &str) {
    if io::stderr().is_terminal() {
        eprint!("{name} …");
        // Cosmetic: a terminal that cannot be written shows no progress.
        let _ = io::stderr().flush();
    }
}

fn withdraw() {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[2K");
    }
}
