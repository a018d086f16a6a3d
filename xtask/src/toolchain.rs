//! The Rust compiler in use, as `rustc -vV` describes it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::stdout_of;

/// The oldest supported compiler.
const OLDEST: (u32, u32) = (1, 95);

/// Facts about the compiler in use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Toolchain {
    /// Release, like `1.95.0`.
    pub(crate) release: String,
    /// Commit, abbreviated to nine digits.
    pub(crate) commit: String,
    /// Major version of its LLVM.
    pub(crate) llvm_major: u32,
    /// Its sysroot.
    pub(crate) sysroot: PathBuf,
}

impl Toolchain {
    /// Asks `rustc`.
    ///
    /// # Errors
    /// When there is no usable `rustc`, or one older than memprof supports.
    pub(crate) fn detect() -> Result<Self> {
        let version = stdout_of(Command::new("rustc").arg("-vV"))?;
        let sysroot = stdout_of(Command::new("rustc").args(["--print", "sysroot"]))?;
        let toolchain = Self::parse(&version, sysroot.trim())?;
        toolchain.require_supported()?;
        Ok(toolchain)
    }

    fn parse(verbose_version: &str, sysroot: &str) -> Result<Self> {
        let field = |name: &str| {
            verbose_version
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                .with_context(|| format!("rustc -vV says nothing about its {name}"))
        };
        let llvm = field("LLVM version")?;
        let llvm_major = llvm.split('.').next().and_then(|major| major.parse().ok());
        Ok(Self {
            release: field("release")?.to_owned(),
            commit: field("commit-hash")?.chars().take(9).collect(),
            llvm_major: llvm_major.with_context(|| format!("rustc has an LLVM of unknown version {llvm}"))?,
            sysroot: sysroot.into(),
        })
    }

    fn require_supported(&self) -> Result<()> {
        let mut numbers = self.release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version < OLDEST {
            let (major, minor) = OLDEST;
            bail!(
                "rustc {} is too old: memprof needs {major}.{minor} or newer (rustup update)",
                self.release
            );
        }
        Ok(())
    }

    /// The LLVM library that the compiler itself is linked to, when it is a shared one.
    pub(crate) fn llvm_library(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.sysroot.join("lib")).ok()?;
        let is_llvm = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("libLLVM.so.{}.", self.llvm_major))
        };
        entries.filter_map(Result::ok).map(|entry| entry.path()).filter(is_llvm).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STABLE: &str = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
        commit-hash: 59807616e1fa2540724bfbac14d7976d7e4a3860\ncommit-date: 2026-04-14\n\
        host: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";

    #[test]
    fn reads_rustc_version() {
        let toolchain = Toolchain::parse(STABLE, "/sysroot").unwrap();
        assert_eq!(toolchain.release, "1.95.0");
        assert_eq!(toolchain.commit, "59807616e");
        assert_eq!(toolchain.llvm_major, 22);
        toolchain.require_supported().unwrap();
    }

    #[test]
    fn refuses_an_old_compiler() {
        let toolchain = Toolchain::parse(&STABLE.replace("1.95.0", "1.94.1"), "/sysroot").unwrap();
        let error = toolchain.require_supported().unwrap_err().to_string();
        assert_eq!(error, "rustc 1.94.1 is too old: memprof needs 1.95 or newer (rustup update)");
    }

    #[test]
    fn accepts_a_nightly() {
        Toolchain::parse(&STABLE.replace("1.95.0", "1.99.0-nightly"), "/s")
            .and_then(|toolchain| toolchain.require_supported())
            .unwrap();
    }
}
