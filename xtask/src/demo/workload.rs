//! The sample program: leaks native memory at one place while it does honest work elsewhere.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::run::{find_program, stdout_of};
use crate::workspace::Workspace;

/// How long the sample program may take until it says that it works.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What the sample program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Java,
    C,
}

impl Language {
    /// The one asked for; else Java where a JDK exists.
    pub(crate) fn choose(java: bool, c: bool) -> Result<Self> {
        if c {
            return Ok(Self::C);
        }
        match java_compiler() {
            Ok(()) => Ok(Self::Java),
            Err(error) if java => Err(error),
            Err(error) => {
                println!("demo: using the C sample program: {error:#}");
                Ok(Self::C)
            }
        }
    }
}

/// Whether `java` can run a source file: it is a JDK of version 11 or newer, not a bare JRE.
fn java_compiler() -> Result<()> {
    let Some(java) = find_program("java") else { bail!("there is no java in PATH") };
    let modules = stdout_of(Command::new(java).arg("--list-modules")).context("java is too old")?;
    if !modules.lines().any(|module| module.starts_with("jdk.compiler@")) {
        bail!("java in PATH is a JRE without a compiler");
    }
    Ok(())
}

/// A running sample program. It is killed when this value goes.
pub(crate) struct Workload {
    language: Language,
    child: Child,
}

impl Workload {
    /// Starts the program and waits until it works. It ends by itself after `lifetime` seconds.
    pub(crate) fn start(
        language: Language,
        lifetime: u64,
        workspace: &Workspace,
        interrupted: &AtomicBool,
    ) -> Result<Self> {
        let sources = workspace.root.join("xtask/demo");
        let mut command = match language {
            Language::Java => java(&sources),
            Language::C => compiled_c(&sources, &workspace.target.join("xtask"))?,
        };
        command.arg(lifetime.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
        // A process group of its own: Ctrl-C is for the recorder, which reads the program's memory maps
        // until the end.
        command.process_group(0);
        let child = command.spawn().context("starting the sample program")?;
        let mut workload = Self { language, child };
        workload.wait_until_ready(interrupted)?;
        Ok(workload)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it is, in words.
    pub(crate) fn description(&self) -> &'static str {
        match self.language {
            Language::Java => "a Java server that never ends its Deflaters",
            Language::C => "a C server that keeps the buffers of closed sessions",
        }
    }

    fn wait_until_ready(&mut self, interrupted: &AtomicBool) -> Result<()> {
        let stdout = self.child.stdout.take().context("the sample program has no output")?;
        let ready = first_line(stdout);
        let started = Instant::now();
        while started.elapsed() < START_LIMIT {
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            match ready.recv_timeout(Duration::from_millis(100)) {
                Ok(line) if line.trim_end() == "ready" => return Ok(()),
                Ok(line) => bail!("the sample program did not start: {line:?}"),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the sample program ended at once"),
            }
        }
        bail!("the sample program did not start within {} s", START_LIMIT.as_secs())
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // It may have ended by itself; then both calls fail and nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the first line in a thread, so that waiting for it can have a limit.
fn first_line(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if BufReader::new(stdout).read_line(&mut line).is_ok_and(|length| length > 0) {
            // The receiver is gone when the start took too long.
            let _ = sender.send(line);
        }
    });
    receiver
}

/// A JVM with default flags, which compiles the source file itself.
fn java(sources: &Path) -> Command {
    let mut command = Command::new("java");
    command.arg(sources.join("LeakyServer.java"));
    command
}

fn compiled_c(sources: &Path, build_directory: &Path) -> Result<Command> {
    let program = build_directory.join("leaky-server");
    fs::create_dir_all(build_directory).with_context(|| format!("creating {}", build_directory.display()))?;
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-g", "-Wall", "-pthread", "-o"]).arg(&program).arg(sources.join("leaky_server.c"));
    stdout_of(&mut compile)?;
    Ok(Command::new(program))
}
