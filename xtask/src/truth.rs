//! `cargo xtask truth`: how many Java stacks are right, on several versions of Java run in many ways.
//!
//! This is the test `java_truth` with all combinations and more stacks; its table is printed.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::agent::cargo_with_object;
use crate::ebpf;
use crate::report::Report;
use crate::run::{is_root, run_logged};
use crate::setup::{self, Jdks, Mode, Purpose};
use crate::tests::PROFILE;
use crate::workspace::Workspace;

/// Options of `cargo xtask truth`.
#[derive(Args)]
pub(crate) struct TruthArgs {
    /// Stacks of each combination
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    stacks: u32,
    /// Run only combinations whose name (`21 virtual threads`) contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Keep recordings of combinations with faults in this directory. They hold parts of stacks
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
}

/// Runs the task.
///
/// # Errors
/// When a stack is wrong, or too many are cut off.
pub(crate) fn run(args: &TruthArgs, workspace: &Workspace, report: &Report) -> Result<()> {
    if !is_root() {
        bail!("the profiler attaches probes: run this task as root");
    }
    setup::ensure(Mode::Install, Purpose::Test, report)?;
    let object = ebpf::build(workspace, report)?;
    let mut command = cargo_with_object(workspace, &object);
    command.args(["test", "--profile", PROFILE, "--package", "memprof-agent", "--test", "java_truth"]);
    command.args(["--", "--ignored", "--nocapture"]);
    command.env("MEMPROF_JDKS", Jdks::new()?.directory());
    command.env("MEMPROF_TRUTH_BLOCKS", args.stacks.to_string());
    command.env("MEMPROF_TRUTH_FILTER", &args.filter);
    if let Some(keep) = &args.keep {
        std::fs::create_dir_all(keep)?;
        command.env("MEMPROF_TRUTH_KEEP", keep.canonicalize()?);
    }
    let log = report.log_file("truth");
    let status = run_logged(command, &log, |line| println!("{line}"))?;
    if !status.success() {
        bail!("not all stacks are true; the whole output is in {}", log.display());
    }
    Ok(())
}
