//! Privileged tests say that they are, and what tests read exists.

use std::path::Path;

use super::Violation;
use super::source::SourceFile;
use crate::workspace::Workspace;

/// The one reason for which a test of the agent is left out by a plain `cargo test`.
const PRIVILEGED: &str = "#[ignore = \"needs root: cargo xtask test\"]";

/// The attribute that leaves a test out. In pieces, or this file would be taken for a test.
const IGNORE: &str = concat!("#[", "ignore");

/// The directory of recorded inputs, as it appears in paths.
const FIXTURES: &str = concat!("fixtures", "/");

/// Checks one file.
pub(super) fn check(source: &SourceFile, workspace: &Workspace) -> Vec<Violation> {
    if !source.is_rust() {
        return Vec::new();
    }
    let mut violations = check_marks(source);
    let crate_directory = workspace.root.join(source.top_directory());
    violations.extend(check_fixtures(source, &crate_directory));
    violations
}

fn check_marks(source: &SourceFile) -> Vec<Violation> {
    let privileged = source.path().starts_with("memprof-agent/tests/");
    let ignored = source.text().lines().enumerate().filter(|(_, line)| line.trim_start().starts_with(IGNORE));
    ignored
        .filter(|(_, line)| privileged && line.trim() != PRIVILEGED)
        .map(|(index, _)| {
            Violation::new(source.line(index), format!("a test that is left out says {PRIVILEGED}"))
        })
        .collect()
}

/// Every file that a string literal names below a `fixtures` directory must exist.
fn check_fixtures(source: &SourceFile, crate_directory: &Path) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in source.text().lines().enumerate() {
        for literal in line.split('"').skip(1).step_by(2) {
            let Some(at) = literal.find(FIXTURES) else { continue };
            let path = &literal[at..];
            // A pattern is completed at run time.
            if path.contains(['{', '*']) || path == FIXTURES {
                continue;
            }
            let found = [crate_directory.to_path_buf(), crate_directory.join("tests")]
                .iter()
                .any(|directory| directory.join(path).exists());
            if !found {
                violations.push(Violation::new(source.line(index), format!("there is no {path}")));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_test_says_so() {
        let good = format!("#[test]\n{PRIVILEGED}\nfn exact() {{}}\n");
        assert_eq!(check_marks(&SourceFile::for_test("memprof-agent/tests/exact.rs", &good)), []);
        let bad = format!("#[test]\n{IGNORE}]\nfn exact() {{}}\n");
        assert_eq!(check_marks(&SourceFile::for_test("memprof-agent/tests/exact.rs", &bad)).len(), 1);
    }

    #[test]
    fn a_fixture_must_exist() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        let named = |path: &str| format!("let bytes = include_bytes!(\"{FIXTURES}{path}\");\n");
        let source = SourceFile::for_test("xtask/src/x.rs", &named("none.bin"));
        assert_eq!(check_fixtures(&source, directory).len(), 1);
        let source = SourceFile::for_test("xtask/src/x.rs", &named("{name}.bin"));
        assert_eq!(check_fixtures(&source, directory).len(), 0);
    }
}
