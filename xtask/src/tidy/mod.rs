//! `cargo xtask tidy`: the rules of this repository that no compiler checks.
//!
//! ```text
//! crates    who may depend on whom                    (ARCHITECTURE.md, "Crates")
//! licences  what a dependency may be licensed under   (deny.toml)
//! files     names, lengths, forbidden text
//! purity    what the core may not touch
//! structs   at most ten fields
//! tests     privileged tests say so, fixtures exist, and so do the tests that the table of cases names
//! ```

mod crates;
mod files;
mod licences;
mod named_tests;
mod purity;
mod source;
mod spdx;
mod structs;
mod test_marks;

use std::fmt;

use anyhow::{Result, bail};

use crate::workspace::Workspace;
use source::SourceFile;

/// A broken rule, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    place: String,
    rule: String,
}

impl Violation {
    fn new(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { place: place.into(), rule: rule.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.rule)
    }
}

/// Runs the task.
///
/// # Errors
/// When a rule is broken.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    println!("tidy … ok: {}", check(workspace)?);
    Ok(())
}

/// Checks all rules; returns a summary.
///
/// # Errors
/// When a rule is broken, with one line for each place.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let metadata = workspace.metadata()?;
    let sources = source::all(workspace)?;
    let mut violations = crates::check(&metadata);
    violations.extend(licences::check(workspace, &metadata)?);
    for source in &sources {
        violations.extend(files::check(source));
        violations.extend(purity::check(source));
        violations.extend(structs::check(source));
        violations.extend(test_marks::check(source, workspace));
    }
    violations.extend(files::check_required(&sources));
    violations.extend(named_tests::check(&sources));
    if !violations.is_empty() {
        violations.sort();
        let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
        bail!("{} broken rules\n    {}", lines.len(), lines.join("\n    "));
    }
    let long: Vec<&str> =
        sources.iter().filter(|source| files::is_long(source)).map(SourceFile::path).collect();
    let mut summary = format!("{} files, {} packages", sources.len(), metadata.packages.len());
    if !long.is_empty() {
        summary.push_str(&format!("; getting long: {}", long.join(", ")));
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        check(&Workspace::find().unwrap()).unwrap();
    }
}
