//! This repository: where it is, where it builds, and what `cargo metadata` says about it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cargo::cargo;
use crate::run::stdout_of;

/// The target triple that memprof runs on.
pub(crate) const HOST: &str = "x86_64-unknown-linux-gnu";

/// The root of the repository and its build directory.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// The directory of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target directory (`CARGO_TARGET_DIR` is honoured).
    pub(crate) target: PathBuf,
}

/// What tidy needs of `cargo metadata`.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    /// Our crates and everything they depend on, on [`HOST`].
    pub(crate) packages: Vec<Package>,
    /// Ids of our crates.
    pub(crate) workspace_members: Vec<String>,
    target_directory: PathBuf,
}

/// A package of the dependency graph.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Its unique id.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Its SPDX licence expression.
    pub(crate) license: Option<String>,
    /// Where it comes from; `None` for a path in this repository.
    pub(crate) source: Option<String>,
    /// Its direct dependencies of every kind.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A direct dependency.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// Name of the package.
    pub(crate) name: String,
}

impl Workspace {
    /// Finds the workspace that this xtask belongs to.
    pub(crate) fn find() -> Result<Self> {
        let root = root();
        let json = stdout_of(cargo(&root).args(["metadata", "--format-version=1", "--no-deps"]))?;
        let metadata: Metadata =
            serde_json::from_str(&json).context("reading the output of cargo metadata")?;
        Ok(Self { root, target: metadata.target_directory })
    }

    /// The whole dependency graph.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let mut command = cargo(&self.root);
        command.args(["metadata", "--format-version=1", "--filter-platform", HOST]);
        serde_json::from_str(&stdout_of(&mut command)?).context("reading the output of cargo metadata")
    }
}

fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run` and `cargo test`; the built-in value serves a bare start.
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest_dir.parent().map_or_else(|| manifest_dir.clone(), PathBuf::from)
}
