//! The measured program, on a private copy of the C library.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::stdout_of;
use crate::workspace::Workspace;

/// The x86-64 loader, where the psABI puts it.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// A running loop of malloc+free pairs.
pub(crate) struct PairLoop {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl PairLoop {
    /// Compiles and starts it, pinned to one CPU.
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let directory = workspace.target.join("xtask").join("bench");
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let program = directory.join("pairs");
        let source = workspace.root.join("xtask/bench/pairs.c");
        stdout_of(Command::new("cc").args(["-O2", "-fno-builtin", "-o"]).arg(&program).arg(&source))?;
        copy_c_library(&directory)?;
        let mut child = Command::new("taskset")
            .args(["-c", "0", LOADER, "--library-path"])
            .arg(&directory)
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the measured loop")?;
        let stdin = child.stdin.take().context("the loop has no standard input")?;
        let stdout = BufReader::new(child.stdout.take().context("the loop has no standard output")?);
        let mut this = Self { child, stdin, stdout };
        match this.line()?.as_str() {
            "ready" => Ok(this),
            other => bail!("the loop said {other:?} instead of ready"),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Nanoseconds of CPU time per pair, once per repeat.
    pub(crate) fn measure(&mut self, pairs: u32, repeats: u32) -> Result<Vec<f64>> {
        writeln!(self.stdin, "{pairs} {repeats}").context("asking the loop to run")?;
        self.line()?.split(' ').map(|word| word.parse().context("reading the loop's figures")).collect()
    }

    /// Makes it allocate further blocks of `size` bytes and keep them.
    pub(crate) fn keep(&mut self, blocks: u32, size: u32) -> Result<()> {
        writeln!(self.stdin, "-{blocks} {size}").context("asking the loop to allocate")?;
        self.line().map(drop)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).context("reading from the loop")? == 0 {
            bail!("the measured loop has ended");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for PairLoop {
    fn drop(&mut self) {
        // It may have ended by itself; either way it must not be left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies the C library into `directory`, where the loader is told to look first.
fn copy_c_library(directory: &Path) -> Result<()> {
    let path = stdout_of(Command::new("cc").arg("-print-file-name=libc.so.6"))?;
    let source = PathBuf::from(path.trim());
    fs::copy(&source, directory.join("libc.so.6"))
        .with_context(|| format!("copying {}", source.display()))?;
    Ok(())
}
