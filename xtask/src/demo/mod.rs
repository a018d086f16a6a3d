//! `cargo xtask demo`: records a leaking sample program and draws what it holds.

mod profile;
mod workload;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::agent;
use crate::report::Report;
use crate::run::as_root;
use crate::setup::{self, Mode, Purpose};
use crate::workspace::Workspace;
use profile::Profile;
use workload::{Language, Workload};

/// How long the recorder may take to finish its files after a signal.
const GRACE: Duration = Duration::from_secs(10);

/// How often the recorder is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Options of `cargo xtask demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Seconds to record
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=300))]
    seconds: u64,
    /// Use the Java sample program
    #[arg(long, conflicts_with = "c")]
    java: bool,
    /// Use the C sample program
    #[arg(long)]
    c: bool,
    /// The flame graph to write
    #[arg(long, value_name = "FILE", default_value = "memprof-demo.svg")]
    out: PathBuf,
}

/// Runs the task.
///
/// # Errors
/// When the build, the sample program or the recording fails, or when nothing was found.
pub(crate) fn run(args: &DemoArgs, workspace: &Workspace, report: &Report) -> Result<()> {
    setup::ensure(Mode::Install, Purpose::Build, report)?;
    let agent = agent::build(true, workspace, report)?;
    let interrupted = watch_for_signals()?;
    let language = Language::choose(args.java, args.c)?;
    // The sample program outlives the recording by a minute at most, even if this process is killed.
    let workload = Workload::start(language, args.seconds + 60, workspace, &interrupted)?;
    println!("recording pid {} ({}) for {} s", workload.pid(), workload.description(), args.seconds);
    let json = record(args, &agent, workload.pid(), workspace, &interrupted)?;
    drop(workload);
    let profile = Profile::from_json(&json)?;
    println!("{}", profile.biggest_site()?);
    let picture = fs::canonicalize(&args.out)
        .with_context(|| format!("the recording left no {}", args.out.display()))?;
    println!("{}", picture.display());
    Ok(())
}

/// From now on SIGINT and SIGTERM set the flag and do not end this process, so that the sample program
/// is always stopped.
fn watch_for_signals() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).context("catching signals")?;
    }
    Ok(flag)
}

/// Records the process; returns the agent's JSON document.
fn record(
    args: &DemoArgs,
    agent: &Path,
    pid: u32,
    workspace: &Workspace,
    interrupted: &AtomicBool,
) -> Result<String> {
    let document = workspace.target.join("xtask/demo.json");
    let stdout = fs::File::create(&document).with_context(|| format!("creating {}", document.display()))?;
    let mut command: Command = as_root(OsStr::new(agent))?;
    command.args(["record", "-p", &pid.to_string(), "--duration", &format!("{}s", args.seconds)]);
    command.arg("--json").arg("-o").arg(&args.out).stdout(stdout);
    // sudo asks for a password on the terminal, not on standard input.
    let mut recorder = command.stdin(Stdio::null()).spawn().context("starting the agent")?;
    wait_for(&mut recorder, interrupted)?;
    fs::read_to_string(&document).with_context(|| format!("reading {}", document.display()))
}

/// Waits for the recorder. Ctrl-C reaches it as well: it ends early and still writes its files.
fn wait_for(recorder: &mut Child, interrupted: &AtomicBool) -> Result<()> {
    let mut signalled_at = None;
    loop {
        if let Some(status) = recorder.try_wait().context("waiting for the agent")? {
            if !status.success() {
                let reason = if signalled_at.is_some() { "interrupted" } else { "see above" };
                bail!("the recording failed ({status}): {reason}");
            }
            return Ok(());
        }
        if interrupted.load(Ordering::Relaxed)
            && signalled_at.get_or_insert_with(Instant::now).elapsed() > GRACE
        {
            // Not possible when it runs under sudo; then it ends by itself after its duration.
            let _ = recorder.kill();
        }
        sleep(POLL);
    }
}
