//! The text files of the repository.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::stdout_of;
use crate::workspace::Workspace;

/// A text file.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    path: String,
    text: String,
}

impl SourceFile {
    /// Path relative to the root, with `/`.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Name without directories.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The directory of the crate, or the first directory at all; empty for files at the root.
    pub(super) fn top_directory(&self) -> &str {
        self.path.split_once('/').map_or("", |(directory, _)| directory)
    }

    /// Content.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is Rust code.
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// A place in this file, for messages.
    pub(super) fn line(&self, index: usize) -> String {
        format!("{}:{}", self.path, index + 1)
    }

    #[cfg(test)]
    pub(super) fn for_test(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// All text files that are tracked, or would be with the next `git add`; sorted by path. Outside of a
/// git repository: all files except those in hidden and build directories.
pub(super) fn all(workspace: &Workspace) -> Result<Vec<SourceFile>> {
    let mut git = Command::new("git");
    git.current_dir(&workspace.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut paths: Vec<String> = match stdout_of(&mut git) {
        Ok(list) => list.split_terminator('\0').map(str::to_owned).collect(),
        Err(_) => {
            let mut paths = Vec::new();
            walk(&workspace.root, "", &workspace.target, &mut paths)?;
            paths
        }
    };
    paths.sort();
    paths.dedup();
    let mut sources = Vec::new();
    for path in paths {
        // A tracked file may have been deleted; a file that is no UTF-8 is no text.
        if let Ok(text) = fs::read_to_string(workspace.root.join(&path)) {
            sources.push(SourceFile { path, text });
        }
    }
    Ok(sources)
}

fn walk(root: &Path, directory: &str, target: &Path, paths: &mut Vec<String>) -> Result<()> {
    let absolute = root.join(directory);
    if absolute == target {
        return Ok(());
    }
    let entries = fs::read_dir(&absolute).with_context(|| format!("listing {}", absolute.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("listing {}", absolute.display()))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
        let file_type = entry.file_type().with_context(|| format!("looking at {path}"))?;
        if file_type.is_dir() && !name.starts_with('.') && name != "target" {
            walk(root, &path, target, paths)?;
        } else if file_type.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}
