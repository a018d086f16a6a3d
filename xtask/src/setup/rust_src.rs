//! The source of the Rust standard library: `core` is compiled for the BPF target from it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use super::Requirement;
use crate::report::Report;
use crate::run::find_program;
use crate::toolchain::Toolchain;

pub(crate) struct RustSrc {
    library: PathBuf,
}

impl RustSrc {
    pub(crate) fn new(toolchain: &Toolchain) -> Self {
        Self { library: toolchain.sysroot.join("lib/rustlib/src/rust/library") }
    }
}

impl Requirement for RustSrc {
    fn name(&self) -> String {
        "rust-src".into()
    }

    fn present(&self) -> Result<Option<String>> {
        Ok(self.library.join("core/src/lib.rs").is_file().then(|| self.library.display().to_string()))
    }

    fn recipe(&self) -> String {
        "rustup component add rust-src".into()
    }

    fn install(&self, report: &Report) -> Result<()> {
        let Some(rustup) = find_program("rustup") else {
            bail!(
                "this Rust toolchain does not come from rustup: install its library source to {}, or use rustup",
                self.library.display()
            );
        };
        let mut command = Command::new(rustup);
        command.args(["component", "add", "rust-src"]);
        report.logged("rust-src", command)
    }
}
