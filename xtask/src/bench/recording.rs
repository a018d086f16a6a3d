//! A recording of the measured program whose report and whose agent are looked at.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::stdout_of;

/// A running agent.
pub(crate) struct Recording {
    child: Child,
}

impl Recording {
    /// Records `pid` with these further options and waits until the probes are in place.
    pub(crate) fn start(agent: &Path, pid: u32, options: &[&str]) -> Result<Self> {
        let mut command = Command::new(agent);
        command.args(["record", "--json", "--duration", "1h", "--max-overhead", "none", "--pid"]);
        command.arg(pid.to_string()).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting the agent")?;
        let mut stderr = BufReader::new(child.stderr.take().context("no standard error")?);
        let this = Self { child };
        let (mut line, mut said) = (String::new(), String::new());
        while stderr.read_line(&mut line).context("reading from the agent")? > 0 {
            if line.starts_with("memprof: recording") {
                // Its further words go nowhere, but must not fill the pipe.
                std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
                return Ok(this);
            }
            said += &line;
            line.clear();
        }
        bail!("the agent ended without attaching: {}", said.trim())
    }

    /// The agent's own memory in bytes: what is neither shared nor a file.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let kib = text.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next());
        Ok(kib.with_context(|| format!("no RssAnon in {path}"))?.parse::<u64>()? * 1024)
    }

    /// Nanoseconds of CPU time that all its threads have used.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        Ok(self.threads()?.iter().map(|(_, cpu_ns)| cpu_ns).sum())
    }

    /// Nanoseconds of CPU time that the thread which takes the events has used.
    pub(crate) fn event_thread_ns(&self) -> Result<u64> {
        let threads = self.threads()?;
        let events = threads.iter().find(|(name, _)| name == "memprof-events");
        events.map(|(_, cpu_ns)| *cpu_ns).context("the agent has no thread memprof-events")
    }

    /// Its threads: name and nanoseconds of CPU time.
    fn threads(&self) -> Result<Vec<(String, u64)>> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let listing = fs::read_dir(&tasks).with_context(|| format!("listing {tasks}"))?;
        let thread = |task: std::io::Result<fs::DirEntry>| {
            let task = task.with_context(|| format!("listing {tasks}"))?.path();
            let read = |name: &str| {
                let path = task.join(name);
                fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
            };
            let (name, schedstat) = (read("comm")?, read("schedstat")?);
            let cpu_ns =
                schedstat.split(' ').next().unwrap_or_default().parse().context("reading schedstat")?;
            Ok((name.trim().to_owned(), cpu_ns))
        };
        listing.map(thread).collect()
    }

    /// Ends it by SIGINT and gives its report.
    pub(crate) fn stop(mut self) -> Result<Value> {
        stdout_of(Command::new("kill").args(["-INT", &self.child.id().to_string()]))?;
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().context("no standard output")?;
        stdout.read_to_string(&mut text).context("reading the agent's report")?;
        self.child.wait().context("waiting for the agent")?;
        serde_json::from_str(&text).context("parsing the agent's report")
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Gone already after `stop`; otherwise an error is on its way and must leave no probe behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
