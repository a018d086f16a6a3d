//! Licences and origins of all dependencies, by the rules in deny.toml. `cargo deny` reads the same file.

use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{Violation, spdx};
use crate::workspace::{Metadata, Package, Workspace};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct DenyFile {
    licenses: Licences,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

/// Licences that one package alone may have.
#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    package: String,
    allow: Vec<String>,
}

/// Checks every package of the dependency graph.
///
/// # Errors
/// When deny.toml cannot be read.
pub(super) fn check(workspace: &Workspace, metadata: &Metadata) -> Result<Vec<Violation>> {
    let path = workspace.root.join("deny.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let rules: DenyFile = toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    Ok(metadata.packages.iter().flat_map(|package| check_package(package, &rules.licenses)).collect())
}

fn check_package(package: &Package, rules: &Licences) -> Vec<Violation> {
    let mut violations = Vec::new();
    let place = format!("{} {}", package.name, package.version);
    let own = rules.exceptions.iter().filter(|exception| exception.package == package.name);
    let allowed = |id: &str| {
        rules
            .allow
            .iter()
            .chain(own.clone().flat_map(|exception| &exception.allow))
            .any(|allowed| allowed == id)
    };
    match package.license.as_deref().map(|expression| (expression, spdx::is_satisfied(expression, &allowed)))
    {
        None => violations.push(Violation::new(&place, "declares no licence")),
        Some((_, Err(error))) => violations.push(Violation::new(&place, error.to_string())),
        Some((expression, Ok(false))) => {
            violations
                .push(Violation::new(&place, format!("licence {expression} is not allowed by deny.toml")));
        }
        Some((_, Ok(true))) => {}
    }
    if package.source.as_deref().is_some_and(|source| source != CRATES_IO) {
        violations.push(Violation::new(place, "does not come from crates.io"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(name: &str, license: Option<&str>, source: &str) -> usize {
        let rules: DenyFile = toml::from_str(
            "[licenses]\nallow = [\"MIT\"]\nexceptions = [{ crate = \"inferno\", allow = [\"CDDL-1.0\"] }]\n",
        )
        .unwrap();
        let package = Package {
            id: String::new(),
            name: name.into(),
            version: "1.0.0".into(),
            license: license.map(str::to_owned),
            source: Some(source.into()),
            dependencies: Vec::new(),
        };
        check_package(&package, &rules.licenses).len()
    }

    #[test]
    fn allows_only_what_is_listed() {
        assert_eq!(broken("a", Some("MIT OR GPL-3.0-only"), CRATES_IO), 0);
        assert_eq!(broken("a", Some("GPL-3.0-only"), CRATES_IO), 1);
        assert_eq!(broken("a", None, CRATES_IO), 1);
        assert_eq!(broken("a", Some("MIT"), "git+https://example.org/a"), 1);
    }

    #[test]
    fn an_exception_is_for_one_package() {
        assert_eq!(broken("inferno", Some("CDDL-1.0"), CRATES_IO), 0);
        assert_eq!(broken("other", Some("CDDL-1.0"), CRATES_IO), 1);
    }
}
