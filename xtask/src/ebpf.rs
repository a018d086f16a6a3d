//! `cargo xtask build-ebpf`: the kernel side, compiled by stable Rust to a BPF object.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::cargo::isolated_cargo;
use crate::report::Report;
use crate::setup::BpfLinker;
use crate::toolchain::Toolchain;
use crate::workspace::Workspace;

const TARGET: &str = "bpfel-unknown-none";

/// Compiles `memprof-ebpf` and returns the path of the object.
///
/// # Errors
/// When the build fails.
pub(crate) fn build(workspace: &Workspace, report: &Report) -> Result<PathBuf> {
    // A directory of its own: the host build of the same crate must not wait for this one's lock.
    let target_directory = workspace.target.join("ebpf");
    let linker = BpfLinker::new(&Toolchain::detect()?)?;
    let mut command = isolated_cargo(&workspace.root.join("memprof-ebpf"));
    // Stable Rust lacks a compiled `core` for BPF. The variable allows `-Z build-std` on it.
    command.env("RUSTC_BOOTSTRAP", "1");
    command.env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", linker.program());
    command.env("CARGO_ENCODED_RUSTFLAGS", ["-C", "debuginfo=2", "-C", "link-arg=--btf"].join("\x1f"));
    command.args(["build", "--release", "-Z", "build-std=core", "--target", TARGET, "--target-dir"]);
    command.arg(&target_directory);
    report.command("build-ebpf", command)?;
    let object = target_directory.join(TARGET).join("release/memprof");
    if !object.is_file() {
        bail!("the build made no {}", object.display());
    }
    Ok(object)
}
