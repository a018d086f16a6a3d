//! Repository tasks: `cargo xtask <task>`. It runs the crates of this repository and links none.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

mod agent;
mod bench;
mod cargo;
mod demo;
mod ebpf;
mod report;
mod run;
mod setup;
mod tests;
mod tidy;
mod toolchain;
mod truth;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::report::Report;
use crate::workspace::Workspace;

/// Tasks of the memprof repository
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Check what building and testing need, and install what is missing
    Setup(setup::SetupArgs),
    /// Compile the kernel side; prints the path of the BPF object
    BuildEbpf,
    /// Build the agent with the kernel side in it; prints its path
    Build(agent::BuildArgs),
    /// Set up, check and run all tests, those that need root included
    Test(tests::TestArgs),
    /// Set up, build, and draw the native memory of a leaking sample program
    Demo(demo::DemoArgs),
    /// Measure what probes cost a target, beside a floor and a peer (as root)
    Bench(bench::BenchArgs),
    /// Check Java stacks against a program that knows its own, on all versions and in all ways (as root)
    Truth(truth::TruthArgs),
    /// Check crate dependencies, licences and file rules
    Tidy,
}

fn main() -> ExitCode {
    match run(&Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    let workspace = Workspace::find()?;
    let report = Report::new(&workspace)?;
    match task {
        Task::Setup(args) => setup::run(args, &report),
        Task::BuildEbpf => {
            println!("{}", ebpf::build(&workspace, &report)?.display());
            Ok(())
        }
        Task::Build(args) => agent::run(args, &workspace, &report),
        Task::Test(args) => tests::run(args, &workspace, &report),
        Task::Demo(args) => demo::run(args, &workspace, &report),
        Task::Bench(args) => bench::run(args, &workspace, &report),
        Task::Truth(args) => truth::run(args, &workspace, &report),
        Task::Tidy => tidy::run(&workspace),
    }
}
