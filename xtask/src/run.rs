//! Child processes: run one, read what it says.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// Standard output of a command that must succeed; its standard error is part of the error.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {}", described(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed ({}): {}", described(command), output.status, stderr.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} printed no UTF-8", described(command)))
}

/// Runs a command, copies both of its output streams to `log` and hands each line to `on_line`.
pub(crate) fn run_logged(
    mut command: Command,
    log: &Path,
    mut on_line: impl FnMut(&str),
) -> Result<ExitStatus> {
    let mut log_file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
    writeln!(log_file, "$ {}", described(&command))?;
    let (reader, writer) = io::pipe().context("making a pipe")?;
    let stderr = writer.try_clone().context("making a pipe")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(stderr)
        .spawn()
        .with_context(|| format!("starting {}", described(&command)))?;
    // The command holds the pipe's write end; the read below would never end.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("reading a child's output")? > 0 {
        log_file.write_all(&line)?;
        on_line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    child.wait().context("waiting for a child")
}

/// The command line, for messages.
pub(crate) fn described(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The first executable of this name in `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(name)).find(|path| {
        fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    // Files in /proc/self belong to the effective user.
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// `program` as root: as it is for root, through sudo for others.
pub(crate) fn as_root(program: &OsStr) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    let Some(sudo) = find_program("sudo") else {
        bail!("{} needs root: run this task as root, or install sudo", program.display());
    };
    let mut command = Command::new(sudo);
    command.arg(program);
    Ok(command)
}
