//! Who may depend on whom.

use super::Violation;
use crate::workspace::{Metadata, Package};

/// Our crates and which of our crates each may depend on. Arrows run one way.
const ARROWS: [(&str, &[&str]); 5] = [
    ("memprof-common", &[]),
    ("memprof-ebpf", &["memprof-common"]),
    ("memprof-core", &["memprof-common"]),
    ("memprof-agent", &["memprof-common", "memprof-core"]),
    ("xtask", &[]),
];

/// What a crate must not depend on directly, because it must not do what that package does. A name that
/// ends in `*` stands for all that begin with it.
const FORBIDDEN: [(&str, &[&str], &str); 2] = [
    ("memprof-common", &["*"], "it is shared with the kernel side and depends on nothing"),
    (
        "memprof-core",
        &[
            "aya*",
            "blazesym*",
            "chrono",
            "getrandom",
            "libc",
            "mio",
            "nix",
            "procfs",
            "rand*",
            "rayon",
            "rustix",
            "tempfile",
            "time",
            "tokio*",
        ],
        "the core is pure: no files, sockets, clocks, threads or randomness",
    ),
];

/// Checks the direct dependencies of every workspace member, tests' and build scripts' included.
pub(super) fn check(metadata: &Metadata) -> Vec<Violation> {
    let members: Vec<&Package> =
        metadata.packages.iter().filter(|package| metadata.workspace_members.contains(&package.id)).collect();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    members.iter().flat_map(|member| check_member(member, &names)).collect()
}

fn check_member(member: &Package, members: &[&str]) -> Vec<Violation> {
    let place = format!("{}/Cargo.toml", member.name);
    let Some((_, arrows)) = ARROWS.iter().find(|(name, _)| *name == member.name) else {
        return vec![Violation::new(place, "a new crate: add it and its arrows to xtask/src/tidy/crates.rs")];
    };
    let forbidden = FORBIDDEN.iter().filter(|(name, ..)| *name == member.name);
    let mut violations = Vec::new();
    for dependency in &member.dependencies {
        let name = dependency.name.as_str();
        if members.contains(&name) && !arrows.contains(&name) {
            violations.push(Violation::new(&place, format!("must not depend on {name}: no such arrow")));
        }
        for (_, patterns, reason) in forbidden.clone() {
            if patterns.iter().any(|pattern| matches(pattern, name)) {
                violations.push(Violation::new(&place, format!("must not depend on {name}: {reason}")));
            }
        }
    }
    violations
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn member(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|name| Dependency { name: (*name).into() }).collect();
        Package {
            id: name.into(),
            name: name.into(),
            version: "0.1.0".into(),
            license: None,
            source: None,
            dependencies,
        }
    }

    fn broken(name: &str, dependencies: &[&str]) -> usize {
        let members = ["memprof-common", "memprof-core", "memprof-agent", "xtask"];
        check_member(&member(name, dependencies), &members).len()
    }

    #[test]
    fn arrows_run_one_way() {
        assert_eq!(broken("memprof-agent", &["memprof-core", "memprof-common", "aya"]), 0);
        assert_eq!(broken("memprof-core", &["memprof-agent"]), 1);
        assert_eq!(broken("xtask", &["memprof-core"]), 1);
    }

    #[test]
    fn the_core_is_pure() {
        assert_eq!(broken("memprof-core", &["memprof-common", "procfs-core"]), 0);
        assert_eq!(broken("memprof-core", &["aya-obj", "tokio", "libc"]), 3);
        assert_eq!(broken("memprof-common", &["serde"]), 1);
    }

    #[test]
    fn a_new_crate_must_be_declared() {
        assert_eq!(broken("memprof-extra", &[]), 1);
    }
}
