//! `cargo xtask build`: the agent with the kernel side embedded.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::cargo::cargo;
use crate::ebpf;
use crate::report::Report;
use crate::setup::{self, Mode, Purpose};
use crate::workspace::Workspace;

/// Names the BPF object for the agent's build script.
const OBJECT_VARIABLE: &str = "MEMPROF_EBPF_OBJECT";

/// Options of `cargo xtask build`.
#[derive(Args)]
pub(crate) struct BuildArgs {
    /// Build the agent without optimisation
    #[arg(long)]
    debug: bool,
}

/// Runs the task and prints the agent's path.
pub(crate) fn run(args: &BuildArgs, workspace: &Workspace, report: &Report) -> Result<()> {
    setup::ensure(Mode::Check, Purpose::Build, report)?;
    println!("{}", build(!args.debug, workspace, report)?.display());
    Ok(())
}

/// Builds the kernel side and the agent around it; returns the agent's path.
pub(crate) fn build(release: bool, workspace: &Workspace, report: &Report) -> Result<PathBuf> {
    let object = ebpf::build(workspace, report)?;
    let mut command = cargo_with_object(workspace, &object);
    command.args(["build", "--package", "memprof-agent"]);
    if release {
        command.arg("--release");
    }
    report.command("build agent", command)?;
    let profile = if release { "release" } else { "debug" };
    Ok(workspace.target.join(profile).join("memprof-agent"))
}

/// Cargo at the root, with `object` to be embedded into the agent.
pub(crate) fn cargo_with_object(workspace: &Workspace, object: &Path) -> Command {
    let mut command = cargo(&workspace.root);
    command.env(OBJECT_VARIABLE, object);
    command
}
