//! `cargo xtask setup`: checks what building and testing need, and installs what is missing.

mod bpf_linker;
mod jdks;
mod packages;
mod rust_src;
mod tools;

use anyhow::{Result, bail};
use clap::Args;

use crate::report::Report;
use crate::toolchain::Toolchain;

pub(crate) use bpf_linker::BpfLinker;
pub(crate) use jdks::Jdks;

/// What to do about something that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Say so.
    Check,
    /// Install it.
    Install,
}

/// What the machine is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// To build memprof.
    Build,
    /// To build it and to run all of its tests.
    Test,
}

/// Options of `cargo xtask setup`.
#[derive(Args)]
pub(crate) struct SetupArgs {
    /// Only report what is missing; exit code 1 when something is
    #[arg(long)]
    check: bool,
}

/// Something that must be on the machine.
trait Requirement {
    /// Its name.
    fn name(&self) -> String;
    /// Details when it is there; `None` when it is missing.
    fn present(&self) -> Result<Option<String>>;
    /// What [`Requirement::install`] does, as a command that a person could type.
    fn recipe(&self) -> String;
    /// Installs it.
    fn install(&self, report: &Report) -> Result<()>;
}

/// Runs the task.
pub(crate) fn run(args: &SetupArgs, report: &Report) -> Result<()> {
    ensure(if args.check { Mode::Check } else { Mode::Install }, Purpose::Test, report)
}

/// Makes sure that the machine is fit for `purpose`.
///
/// # Errors
/// When something is missing and is not to be, or cannot be, installed.
pub(crate) fn ensure(mode: Mode, purpose: Purpose, report: &Report) -> Result<()> {
    let toolchain = Toolchain::detect()?;
    println!("setup: rustc {} (LLVM {}) … ok", toolchain.release, toolchain.llvm_major);
    let mut requirements: Vec<Box<dyn Requirement>> = vec![
        Box::new(packages::Packages::needed_for(purpose)),
        Box::new(rust_src::RustSrc::new(&toolchain)),
        Box::new(BpfLinker::new(&toolchain)?),
    ];
    if purpose == Purpose::Test {
        requirements.push(Box::new(Jdks::new()?));
    }
    let mut missing = Vec::new();
    for requirement in &requirements {
        if !ensure_one(requirement.as_ref(), mode, report)? {
            missing.push(requirement.name());
        }
    }
    if !missing.is_empty() {
        bail!("missing: {}; `cargo xtask setup` installs it", missing.join(", "));
    }
    Ok(())
}

/// Whether the requirement is met in the end.
fn ensure_one(requirement: &dyn Requirement, mode: Mode, report: &Report) -> Result<bool> {
    let name = requirement.name();
    if let Some(detail) = requirement.present()? {
        println!("setup: {name} … ok: {detail}");
        return Ok(true);
    }
    if mode == Mode::Check {
        println!("setup: {name} … missing; setup would run: {}", requirement.recipe());
        return Ok(false);
    }
    println!("setup: {name} … missing; running: {}", requirement.recipe());
    report.step(&format!("install {name}"), || {
        requirement.install(report)?;
        match requirement.present()? {
            Some(detail) => Ok(detail),
            None => bail!("{name} is still missing after `{}`", requirement.recipe()),
        }
    })?;
    Ok(true)
}
