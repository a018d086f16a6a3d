//! Starting a command so that it can be recorded from its first instruction: the child waits before
//! its exec until the probes are in place. They go by inode and so stay valid in the new program.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use rustix::pipe::{PipeFlags, pipe_with};

/// A command whose process exists and waits.
pub(crate) struct Waiting {
    /// Its process id, which the command keeps.
    pub(crate) pid: u32,
    go: File,
    spawn: JoinHandle<io::Result<Child>>,
    name: String,
}

impl Waiting {
    /// Creates the process. With `stdout_to_stderr` its output does not mix with ours.
    pub(crate) fn start(command: &[OsString], stdout_to_stderr: bool) -> Result<Self> {
        let (program, arguments) = command.split_first().ok_or_else(|| anyhow!("no command was given"))?;
        let name = program.to_string_lossy().into_owned();
        let file_name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
        let (mut pid_reader, pid_writer) = pipe()?;
        let (go_reader, go) = pipe()?;
        let mut command = Command::new(program);
        command.args(arguments);
        if stdout_to_stderr {
            let stderr = rustix::io::dup(rustix::stdio::stderr()).context("duplicating stderr")?;
            command.stdout(Stdio::from(stderr));
        }
        // SAFETY: between fork and exec the closure only calls getpid, write and read, which are
        // async-signal-safe, and touches nothing that another thread may have locked.
        unsafe {
            command.pre_exec(move || wait_for_go(&pid_writer, &go_reader));
        }
        // `spawn` returns only after the exec, so it needs a thread of its own.
        let spawn = std::thread::Builder::new()
            // The waiting process inherits the thread's name, so it already goes by that of its command.
            .name(file_name.into())
            .spawn(move || command.spawn())
            .context("starting the launcher thread")?;
        let mut pid = [0; 4];
        pid_reader.read_exact(&mut pid).with_context(|| format!("starting {name}"))?;
        Ok(Self { pid: u32::from_ne_bytes(pid), go, spawn, name })
    }

    /// Lets the command run.
    pub(crate) fn release(mut self) -> Result<Child> {
        self.go.write_all(b"g").with_context(|| format!("starting {}", self.name))?;
        self.spawn
            .join()
            .map_err(|_| anyhow!("the launcher thread panicked"))?
            .with_context(|| format!("starting {}", self.name))
    }
}

/// In the child: tells its process id and waits for one byte. Should the agent die meanwhile, the
/// child dies with it, because the command must not run unrecorded.
fn wait_for_go(pid_writer: &File, go_reader: &File) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    rustix::io::write(pid_writer, &std::process::id().to_ne_bytes())?;
    let mut byte = [0; 1];
    while let Err(error) = rustix::io::read(go_reader, &mut byte) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    rustix::process::set_parent_process_death_signal(None)?;
    Ok(())
}

fn pipe() -> Result<(File, File)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).context("creating a pipe")?;
    Ok((reader.into(), writer.into()))
}
