//! `cargo xtask test`: every check and every test tier, one line per step.

mod tally;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::agent::cargo_with_object;
use crate::report::{Report, print_within_step, show_tail};
use crate::run::{is_root, run_logged};
use crate::setup::{self, Jdks, Mode, Purpose};
use crate::workspace::Workspace;
use crate::{ebpf, tidy};
use tally::Tally;

/// Both tiers are built once, as fast as a release and with the checks of a debug build.
pub(crate) const PROFILE: &str = "checked";

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct TestArgs {
    /// Run only tests whose name contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Leave out the tests that need root
    #[arg(long)]
    unprivileged: bool,
}

/// One run of the task: what was tested, and what failed besides tests.
struct Run<'a> {
    args: &'a TestArgs,
    workspace: &'a Workspace,
    report: &'a Report,
    object: PathBuf,
    jdks: Jdks,
    failures: Vec<String>,
}

/// Runs the task.
///
/// # Errors
/// When a check or a test fails, when no test ran, or when a privileged test skipped itself.
pub(crate) fn run(args: &TestArgs, workspace: &Workspace, report: &Report) -> Result<()> {
    if !args.unprivileged && !is_root() {
        bail!("the privileged tests need root: run as root, or leave them out with --unprivileged");
    }
    setup::ensure(Mode::Install, Purpose::Test, report)?;
    let object = ebpf::build(workspace, report)?;
    let mut run = Run { args, workspace, report, object, jdks: Jdks::new()?, failures: Vec::new() };
    run.check();
    let unprivileged = run.test_tier("unprivileged tests", &[])?;
    let privileged = if args.unprivileged {
        println!("THE PRIVILEGED TESTS DID NOT RUN (--unprivileged): the probes are not tested");
        None
    } else {
        Some(run.privileged_tier()?)
    };
    run.conclude(&unprivileged, privileged.as_ref())
}

impl Run<'_> {
    /// Rules, format and lints. A failure is noted, and the tests run all the same.
    fn check(&mut self) {
        let tidy = self.report.step("tidy", || tidy::check(self.workspace));
        self.note(tidy);
        let mut format = crate::cargo::cargo(&self.workspace.root);
        // rustfmt colours its output even when nobody sees it.
        format.args(["fmt", "--all", "--check", "--", "--color", "never"]);
        self.note(self.report.command("fmt", format));
        let mut clippy = self.cargo();
        // In the tests' profile, so that build scripts and macros are compiled once.
        clippy.args(["clippy", "--profile", PROFILE, "--workspace", "--all-targets", "--", "-D", "warnings"]);
        self.note(self.report.command("clippy", clippy));
    }

    fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            println!("    {error:#}");
            self.failures.push(format!("{error:#}"));
        }
    }

    fn cargo(&self) -> Command {
        let mut cargo = cargo_with_object(self.workspace, &self.object);
        cargo.env("MEMPROF_JDKS", self.jdks.directory());
        cargo
    }

    fn privileged_tier(&mut self) -> Result<Tally> {
        // One at a time: the tests measure, and probes on one libc disturb each other. The same crates as
        // in the first tier, so that nothing is compiled again; documentation tests need no root.
        let tally = self.test_tier("privileged tests", &["--ignored", "--test-threads=1"])?;
        if tally.ran() == 0 && self.args.filter.is_none() {
            self.failures.push("no privileged test ran".into());
        }
        for test in tally.skipped_tests() {
            println!("skipped: {test}");
            self.failures.push(format!("the privileged test {test} skipped itself"));
        }
        Ok(tally)
    }

    /// Runs the tests of all crates; `harness` goes to the test programs.
    fn test_tier(&mut self, name: &str, harness: &[&str]) -> Result<Tally> {
        let mut command = self.cargo();
        command.args(["test", "--workspace", "--no-fail-fast", "--profile", PROFILE]);
        if !harness.is_empty() {
            command.args(["--lib", "--bins", "--tests"]);
        }
        command.arg("--").args(harness).arg("--show-output").args(&self.args.filter);
        let mut tally = Tally::default();
        let log = self.report.log_file(name);
        let outcome = self.report.step(name, || {
            tested(name, command, &log, &mut tally)?;
            Ok(format!("{} passed", tally.passed()))
        });
        self.note(outcome);
        Ok(tally)
    }

    fn conclude(&self, unprivileged: &Tally, privileged: Option<&Tally>) -> Result<()> {
        let none = Tally::default();
        let privileged = privileged.unwrap_or(&none);
        let passed = unprivileged.passed() + privileged.passed();
        let failed = unprivileged.failed() + privileged.failed();
        // The first tier ignores what the second one runs.
        let left_out = unprivileged.ignored().saturating_sub(privileged.ran());
        let skipped = unprivileged.skipped() + privileged.skipped() + privileged.ignored() + left_out;
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if failed > 0 || !self.failures.is_empty() {
            bail!("not all checks and tests passed");
        }
        if passed == 0 {
            bail!("no test ran");
        }
        Ok(())
    }
}

/// Runs a test command, counting its results and showing them as they come.
fn tested(name: &str, command: Command, log: &Path, tally: &mut Tally) -> Result<()> {
    let mut lines = Vec::new();
    let status = run_logged(command, log, |line| {
        if tally.read(line) {
            print_within_step(line);
        }
        lines.push(line.to_owned());
    })?;
    if status.success() {
        return Ok(());
    }
    if tally.failure_details().is_empty() {
        show_tail(&lines);
    }
    for line in tally.failure_details() {
        print_within_step(&format!("    {line}"));
    }
    bail!("{name} failed ({status}); the whole output is in {}", log.display())
}
