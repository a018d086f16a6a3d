//! bcc's memleak, the peer: Debian's bpfcc-tools, and kernel headers that it compiles against.
//!
//! memleak compiles its probes when it starts and wants the running kernel's headers. The headers of
//! Debian's own kernel are enough for this tool, whatever kernel runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Report;
use crate::run::{find_program, stdout_of};
use crate::workspace::Workspace;

/// An installed memleak.
pub(crate) struct Memleak {
    /// The program.
    pub(crate) program: PathBuf,
    /// A tree of kernel headers.
    pub(crate) kernel_source: PathBuf,
}

impl Memleak {
    /// Finds memleak and headers, and installs what is missing.
    pub(crate) fn prepare(workspace: &Workspace, report: &Report) -> Result<Self> {
        if find_program("memleak-bpfcc").is_none() {
            report.step("install bpfcc-tools", || {
                stdout_of(apt("apt-get").args([
                    "install",
                    "--yes",
                    "--no-install-recommends",
                    "bpfcc-tools",
                ]))?;
                Ok(String::new())
            })?;
        }
        let program = find_program("memleak-bpfcc").context("bpfcc-tools brought no memleak-bpfcc")?;
        let kernel_source = workspace.target.join("xtask").join("kernel-headers");
        if !kernel_source.join("include").exists() {
            report.step("unpack kernel headers", || unpack_headers(&kernel_source))?;
        }
        Ok(Self { program, kernel_source })
    }
}

/// Downloads the headers that Debian's current kernel package depends on, and lays the two packages
/// of which they consist over each other.
fn unpack_headers(target: &Path) -> Result<String> {
    let own = dependency("linux-headers-amd64", "linux-headers-")?;
    let common = dependency(&own, "-common")?;
    let packages = target.with_extension("packages");
    let unpacked = packages.join("unpacked");
    fs::create_dir_all(&unpacked).with_context(|| format!("creating {}", unpacked.display()))?;
    stdout_of(apt("apt-get").current_dir(&packages).args(["download", &own, &common]))?;
    for entry in fs::read_dir(&packages).context("listing downloaded packages")? {
        let path = entry.context("listing downloaded packages")?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            stdout_of(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(&unpacked))?;
        }
    }
    fs::create_dir_all(target).with_context(|| format!("creating {}", target.display()))?;
    for package in [&common, &own] {
        let source = unpacked.join("usr/src").join(package).join(".");
        stdout_of(
            Command::new("cp").args(["--recursive", "--symbolic-link", "--force"]).arg(source).arg(target),
        )?;
    }
    Ok(own)
}

/// The first dependency of a package whose name contains `part`.
fn dependency(package: &str, part: &str) -> Result<String> {
    let text = stdout_of(apt("apt-cache").args(["depends", package]))?;
    let found = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.contains(part));
    match found {
        Some(name) => Ok(name.to_owned()),
        None => bail!("package {package} depends on nothing like {part} (run apt-get update?)"),
    }
}

fn apt(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    command
}
