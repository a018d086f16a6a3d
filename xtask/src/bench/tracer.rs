//! What is attached to the measured loop.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::memleak::Memleak;
use crate::run::{described, stdout_of};

/// A way to attach to a process.
pub(crate) struct Tracer {
    program: PathBuf,
    before_pid: Vec<String>,
    after_pid: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    /// How the line starts that says that the probes are in place, and whether it is on stdout.
    ready: (&'static str, bool),
}

impl Tracer {
    /// Empty probes.
    pub(crate) fn floor(agent: &Path) -> Self {
        Self {
            program: agent.to_owned(),
            before_pid: vec!["floor".into(), "--pid".into()],
            after_pid: Vec::new(),
            environment: Vec::new(),
            ready: ("memprof: empty probes", false),
        }
    }

    /// memprof at a sampling interval.
    pub(crate) fn record(agent: &Path, interval: &str) -> Self {
        Self {
            program: agent.to_owned(),
            before_pid: vec!["record".into(), "--pid".into()],
            after_pid: ["--duration", "1h", "--max-overhead", "none", "--sample-interval", interval]
                .map(Into::into)
                .into(),
            environment: Vec::new(),
            ready: ("memprof: recording", false),
        }
    }

    /// bcc's memleak.
    pub(crate) fn memleak(memleak: &Memleak) -> Self {
        Self {
            program: memleak.program.clone(),
            before_pid: vec!["--pid".into()],
            after_pid: vec!["3600".into()],
            environment: vec![("BCC_KERNEL_SOURCE", memleak.kernel_source.clone())],
            ready: ("Attaching to pid", true),
        }
    }

    /// Attaches to a process and waits until the probes are in place.
    pub(crate) fn start(&self, pid: u32) -> Result<Running> {
        let (ready, on_stdout) = self.ready;
        let mut command = Command::new(&self.program);
        command.args(&self.before_pid).arg(pid.to_string()).args(&self.after_pid);
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).env("PYTHONUNBUFFERED", "1");
        command.stdin(Stdio::null());
        command.stdout(if on_stdout { Stdio::piped() } else { Stdio::null() });
        command.stderr(if on_stdout { Stdio::null() } else { Stdio::piped() });
        let mut child = command.spawn().with_context(|| format!("starting {}", described(&command)))?;
        let stream: Box<dyn Read + Send> = if on_stdout {
            Box::new(child.stdout.take().context("no standard output")?)
        } else {
            Box::new(child.stderr.take().context("no standard error")?)
        };
        let mut running = Running { child, output: BufReader::new(stream) };
        running.wait_for(ready).with_context(|| described(&command))?;
        if on_stdout {
            wait_for_probes(pid)?;
        }
        Ok(running)
    }
}

/// memleak says that it attaches before it does: its probes are there when the first instruction of
/// `malloc` in the process is a breakpoint, which shows as a page of the library that is no longer clean.
fn wait_for_probes(pid: u32) -> Result<()> {
    let maps = format!("/proc/{pid}/smaps");
    for _ in 0..200 {
        let text = std::fs::read_to_string(&maps).with_context(|| format!("reading {maps}"))?;
        if private_dirty_code(&text) {
            // The last of its probes follows within milliseconds.
            std::thread::sleep(std::time::Duration::from_secs(1));
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    bail!("no probe appeared in process {pid} within 10 seconds")
}

/// Whether the C library's code has pages of its own in this process: those with breakpoints.
fn private_dirty_code(smaps: &str) -> bool {
    let mut in_code = false;
    smaps.lines().any(|line| {
        if line.contains("-") && line.split_whitespace().nth(1).is_some_and(|flags| flags.len() == 4) {
            in_code = line.contains(" r-xp ") && line.ends_with("libc.so.6");
        }
        in_code && line.starts_with("Anonymous:") && !line.ends_with(" 0 kB")
    })
}

/// A tracer at work.
pub(crate) struct Running {
    child: Child,
    output: BufReader<Box<dyn Read + Send>>,
}

impl Running {
    fn wait_for(&mut self, start: &str) -> Result<()> {
        let mut seen = String::new();
        let mut line = String::new();
        while self.output.read_line(&mut line).context("reading from the tracer")? > 0 {
            if line.starts_with(start) {
                return Ok(());
            }
            seen += &line;
            line.clear();
        }
        bail!("it ended without attaching: {}", seen.trim())
    }

    /// Ends it by SIGINT and waits for it.
    pub(crate) fn stop(mut self) -> Result<()> {
        stdout_of(Command::new("kill").args(["-INT", &self.child.id().to_string()]))?;
        // Its last words: nobody may block on a pipe that is not read.
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).context("reading from the tracer")?;
        self.child.wait().context("waiting for the tracer")?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already gone after `stop`; otherwise an error is on its way and must leave no probe behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
