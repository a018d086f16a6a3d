//! The memprof agent: attaches to running processes and records their native memory.

mod bpf;
mod budget;
mod cli;
mod command;
mod detacher;
mod forecast;
mod governor;
mod host;
mod lag;
mod launch;
mod live_bound;
mod look;
mod output;
mod pipeline;
mod present;
mod probes;
mod recorder;
mod scope;
mod symbolizer;
mod target;
mod watch;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(cli.verbose);
    let outcome = match cli.command {
        Command::Record(args) => command::record::run(args),
        Command::Replay(args) => command::replay::run(&args),
        Command::Explain(args) => command::explain::run(&args),
        Command::Trim(args) => command::trim::run(&args),
        Command::Floor(args) => command::floor::run(&args),
        Command::Doctor(args) => command::doctor::run(args.pid, args.json, bpf::attach::probe_modes),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            present::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// The log goes to stderr: warnings, more with `-v`, or what `RUST_LOG` says.
fn start_log(verbose: u8) {
    let level = match verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        2 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    };
    env_logger::Builder::new().filter_level(level).parse_default_env().init();
}

/// Whether the reader of our output has gone, which is its right and no error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
