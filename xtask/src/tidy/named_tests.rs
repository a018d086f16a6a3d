//! A document that names tests names tests that exist.

use super::Violation;
use super::source::SourceFile;

/// The document that says which test shows what.
const DOCUMENT: &str = "docs/cases.md";

/// Checks all tests named as `` `file::test` `` in the document against the agent's test programs.
pub(super) fn check(sources: &[SourceFile]) -> Vec<Violation> {
    let Some(document) = sources.iter().find(|source| source.path() == DOCUMENT) else {
        return vec![Violation::new(DOCUMENT, "the table of cases is missing")];
    };
    let mut violations = Vec::new();
    for (index, line) in document.text().lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2) {
            if let Some((file, test)) = name.split_once("::")
                && !has_test(sources, file, test)
            {
                violations.push(Violation::new(document.line(index), format!("there is no test {name}")));
            }
        }
    }
    violations
}

fn has_test(sources: &[SourceFile], file: &str, test: &str) -> bool {
    let path = format!("memprof-agent/tests/{file}.rs");
    let function = format!("fn {test}() {{");
    sources.iter().any(|source| source.path() == path && source.text().contains(&function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_test_must_exist() {
        let tests = SourceFile::for_test("memprof-agent/tests/kill.rs", "#[test]\nfn survives() {\n}\n");
        let sources = |document: &str| [SourceFile::for_test(DOCUMENT, document), tests.clone()];
        assert_eq!(check(&sources("| `kill::survives` | and `code` |\n")), []);
        assert_eq!(check(&sources("`kill::dies`, `other::survives`\n")).len(), 2);
        assert_eq!(check(&[tests]).len(), 1, "no document");
    }
}
