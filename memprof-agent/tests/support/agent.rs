//! Running `memprof-agent`.

use std::ffi::OsStr;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;
use super::lines::Lines;
use super::program::{Target, wait_for_exit};
use super::report::Report;

/// The agent under test.
pub(crate) const AGENT: &str = env!("CARGO_BIN_EXE_memprof-agent");

/// The line by which the agent says that its probes are in place.
const RECORDING: &str = "memprof: recording";

/// A recording of `target` with the given sample interval; `Recorder::start` begins it.
pub(crate) struct Recorder(Command);

impl Recorder {
    /// A recording without a target yet, at any cost: test programs do little else than allocate.
    pub(crate) fn new(sample_interval: &str) -> Self {
        Self::limited(sample_interval, "none")
    }

    /// A recording without a target yet, whose probes may cost `max_overhead` percent of a core.
    pub(crate) fn limited(sample_interval: &str, max_overhead: &str) -> Self {
        let mut command = Command::new(AGENT);
        // The environment of the person who runs the tests must not change what the agent logs.
        command.env_remove("RUST_LOG");
        command.args(["record", "--duration", "60s", "--sample-interval", sample_interval]);
        command.args(["--max-overhead", max_overhead]);
        Self(command)
    }

    /// Every block of `target`, as JSON: what most tests want.
    pub(crate) fn exact(target: &Target) -> Self {
        Self::new("1").pid(target).args(["--json"])
    }

    /// One more process to watch.
    pub(crate) fn pid(self, target: &Target) -> Self {
        self.args(["-p", &target.pid().to_string()])
    }

    /// More arguments.
    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.0.args(arguments);
        self
    }

    /// A variable of the agent's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Starts the agent and waits until its probes are in place.
    pub(crate) fn start(self) -> Recording {
        let mut recording = self.start_without_waiting();
        recording.stderr.as_mut().expect("not taken yet").wait_for(RECORDING, PATIENCE);
        recording
    }

    /// Starts the agent.
    pub(crate) fn start_without_waiting(mut self) -> Recording {
        let mut child = self
            .0
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cannot start memprof-agent");
        let stdout = Lines::new("memprof-agent", child.stdout.take().expect("stdout is piped"));
        let stderr = Lines::new("memprof-agent (stderr)", child.stderr.take().expect("stderr is piped"));
        Recording { child, stdout: Some(stdout), stderr: Some(stderr) }
    }
}

/// A running agent. It is killed when this value goes.
pub(crate) struct Recording {
    child: Child,
    stdout: Option<Lines>,
    stderr: Option<Lines>,
}

impl Recording {
    /// The agent's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the agent.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the agent is gone");
    }

    /// Stops the agent, as if the machine had no time for it, and waits until all its threads stand still.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + PATIENCE;
        while !self.stands_still() {
            assert!(Instant::now() < deadline, "the agent does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets the agent go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn stands_still(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the agent is gone");
        tasks.filter_map(Result::ok).all(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("State:") && line.contains("T (stopped)"))
        })
    }

    /// Ends the recording as Ctrl-C does and waits for the result.
    pub(crate) fn stop(self) -> Finished {
        self.signal(Signal::INT);
        self.wait()
    }

    /// Ends the recording and gives the report of a run that must have gone well.
    pub(crate) fn report(self) -> Report {
        self.stop().report()
    }

    /// Waits for a line on stderr that starts with `start`.
    pub(crate) fn wait_for(&mut self, start: &str) -> String {
        self.stderr.as_mut().expect("not taken yet").wait_for(start, PATIENCE)
    }

    /// Waits until the agent ends by itself.
    pub(crate) fn wait(mut self) -> Finished {
        let status = wait_for_exit(&mut self.child, PATIENCE);
        let stdout = self.stdout.take().expect("taken only here").all(PATIENCE);
        let stderr = self.stderr.take().expect("taken only here").all(PATIENCE);
        Finished { status, stdout, stderr }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Both fail when the agent has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Everything it wrote to stdout.
    pub(crate) stdout: String,
    /// Everything it wrote to stderr.
    pub(crate) stderr: String,
}

impl Finished {
    /// The JSON report of a run that must have gone well.
    pub(crate) fn report(&self) -> Report {
        self.assert_success();
        Report::parse(&self.stdout)
    }

    /// The agent must have ended without an error.
    pub(crate) fn assert_success(&self) -> &Self {
        assert!(self.status.success(), "memprof-agent ended with {}: {}", self.status, self.stderr);
        self
    }

    /// The agent must have ended with `code` and exactly one error line, which is returned.
    pub(crate) fn assert_error(&self, code: i32) -> &str {
        assert_eq!(self.status.code(), Some(code), "wrong exit code; stderr: {}", self.stderr);
        let mut errors = self.stderr.lines().filter(|line| line.starts_with("memprof-agent: error: "));
        let error = errors.next().unwrap_or_else(|| panic!("no error line: {}", self.stderr));
        assert_eq!(errors.next(), None, "more than one error line: {}", self.stderr);
        error
    }
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            status: output.status,
            stdout: String::from_utf8(output.stdout).expect("stdout is not UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is not UTF-8"),
        }
    }
}

/// Runs the agent with `arguments` to its end.
pub(crate) fn run(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Finished {
    let mut command = Command::new(AGENT);
    command.env_remove("RUST_LOG").args(arguments).stdin(Stdio::null());
    command.output().expect("cannot start memprof-agent").into()
}
