//! bpf-linker, built against the LLVM of the Rust compiler in use.
//!
//! It reads the compiler's bitcode, so its LLVM must be as new as the compiler's. Most Rust toolchains
//! bring that LLVM along as a shared library; then no LLVM package is needed. The tool is keyed by the
//! compiler's version and shared by all clones of this repository.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::packages::{apt_get_install, has_apt};
use super::tools::{lock, tools_directory};
use super::{Requirement, Toolchain};
use crate::cargo::isolated_cargo;
use crate::report::Report;
use crate::run::stdout_of;

/// The version that is installed.
const VERSION: &str = "0.13.0";

/// LLVM major versions that this version of bpf-linker has a feature for.
const LLVM_MAJORS: [u32; 3] = [21, 22, 23];

/// The linker for the BPF target.
pub(crate) struct BpfLinker {
    directory: PathBuf,
    llvm_major: u32,
    rustc_llvm: Option<PathBuf>,
}

/// Where an LLVM is: what `LLVM_PREFIX` must say, and where its library is found at run time.
struct Llvm {
    prefix: PathBuf,
    library_directory: PathBuf,
}

impl BpfLinker {
    /// The linker that belongs to `toolchain`, whether installed or not.
    pub(crate) fn new(toolchain: &Toolchain) -> Result<Self> {
        let directory = tools_directory()?.join(format!("{}-{}", toolchain.release, toolchain.commit));
        let rustc_llvm = toolchain.llvm_library();
        Ok(Self { directory, llvm_major: toolchain.llvm_major, rustc_llvm })
    }

    /// The program.
    pub(crate) fn program(&self) -> PathBuf {
        self.directory.join("bin/bpf-linker")
    }

    fn feature(&self) -> String {
        format!("llvm-{}", self.llvm_major)
    }

    /// Finds the LLVM to link to; installs Debian's when the compiler has no shared one.
    fn llvm(&self, report: &Report) -> Result<Llvm> {
        if let Some(library) = &self.rustc_llvm {
            let prefix = self.directory.join("llvm");
            link_as_plain_llvm(library, &prefix)?;
            let library_directory = library.parent().unwrap_or(Path::new("/")).into();
            return Ok(Llvm { prefix, library_directory });
        }
        let prefix = PathBuf::from(format!("/usr/lib/llvm-{}", self.llvm_major));
        let library_directory = prefix.join("lib");
        if !library_directory.join("libLLVM.so").exists() {
            let package = format!("llvm-{}-dev", self.llvm_major);
            if !has_apt() {
                bail!("rustc has no shared LLVM: install LLVM {} with headers", self.llvm_major);
            }
            apt_get_install(&[&package], report)
                .with_context(|| format!("rustc has no shared LLVM, and {package} cannot be installed"))?;
        }
        Ok(Llvm { prefix, library_directory })
    }

    fn cargo_install(&self, llvm: &Llvm) -> Command {
        // An absolute path instead of this repository: cargo reads the configuration of where it runs.
        let mut command = isolated_cargo(&self.directory);
        // The separator of the encoded form is not a blank, which a path may contain.
        let rpath = format!("-C\x1flink-arg=-Wl,-rpath,{}", llvm.library_directory.display());
        command.env("LLVM_PREFIX", &llvm.prefix).env("CARGO_ENCODED_RUSTFLAGS", rpath);
        command.args(["install", "bpf-linker", "--version", VERSION, "--locked", "--force"]);
        command.args(["--no-default-features", "--features", &self.feature()]);
        command.arg("--root").arg(&self.directory);
        command
    }
}

impl Requirement for BpfLinker {
    fn name(&self) -> String {
        format!("bpf-linker {VERSION}")
    }

    fn present(&self) -> Result<Option<String>> {
        let program = self.program();
        if !program.is_file() {
            return Ok(None);
        }
        // A linker that does not start (its LLVM has gone) or has another version is built anew.
        let version = stdout_of(Command::new(&program).arg("--version")).unwrap_or_default();
        Ok(version.split_whitespace().any(|word| word == VERSION).then(|| program.display().to_string()))
    }

    fn recipe(&self) -> String {
        let llvm = match &self.rustc_llvm {
            Some(library) => library.display().to_string(),
            None => format!("/usr/lib/llvm-{}", self.llvm_major),
        };
        format!(
            "cargo install bpf-linker --version {VERSION} --no-default-features --features {} --root {} \
             (linked to {llvm}; takes some minutes)",
            self.feature(),
            self.directory.display()
        )
    }

    fn install(&self, report: &Report) -> Result<()> {
        if !LLVM_MAJORS.contains(&self.llvm_major) {
            bail!("bpf-linker {VERSION} knows no LLVM {}: use another Rust toolchain", self.llvm_major);
        }
        let _lock = lock(&self.directory)?;
        if self.present()?.is_some() {
            // Another clone has built it while this one waited for the lock.
            return Ok(());
        }
        let llvm = self.llvm(report)?;
        report.logged("bpf-linker", self.cargo_install(&llvm))
    }
}

/// Makes `prefix` look like an installed LLVM: the linker's build asks for a `libLLVM.so` there.
fn link_as_plain_llvm(library: &Path, prefix: &Path) -> Result<()> {
    let directory = prefix.join("lib");
    let link = directory.join("libLLVM.so");
    let make = || {
        fs::create_dir_all(&directory)?;
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        symlink(library, &link)
    };
    make().with_context(|| format!("linking {} to {}", link.display(), library.display()))
}
