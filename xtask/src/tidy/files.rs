//! Names, lengths and forbidden text of files.

use super::Violation;
use super::source::SourceFile;

/// A Rust file with more lines is too long to be one concept.
const MAX_LINES: usize = 500;

/// A Rust file with more lines is named in the report.
const LONG_LINES: usize = 400;

/// File names (without extension) that say nothing about what is in the file.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "helpers", "helper", "common", "misc"];

/// Text that belongs to one machine or workplace. In pieces, or this file would break its own rule.
const FORBIDDEN_TEXT: [&str; 2] = [concat!("/wor", "k/"), concat!("/.lib", "rary")];

/// Lines that a file must hold.
const REQUIRED_LINES: [(&str, &str); 1] = [("memprof-core/src/lib.rs", "#![forbid(unsafe_code)]")];

/// Checks one file.
pub(super) fn check(source: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    if source.is_rust() {
        violations.extend(check_rust(source));
    }
    if source.name() == "Cargo.lock" || source.path().ends_with(".svg") {
        return violations;
    }
    for (index, line) in source.text().lines().enumerate() {
        for forbidden in FORBIDDEN_TEXT {
            if line.contains(forbidden) {
                violations.push(Violation::new(source.line(index), format!("must not mention {forbidden}")));
            }
        }
        if mentions_issue(prose(source, line)) {
            violations.push(Violation::new(source.line(index), "must not mention an issue by number"));
        }
    }
    violations
}

fn check_rust(source: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let stem = source.name().trim_end_matches(".rs");
    if EMPTY_NAMES.contains(&stem) {
        violations.push(Violation::new(source.path(), "a file is named for the one concept it holds"));
    }
    let lines = source.text().lines().count();
    if lines > MAX_LINES {
        let rule = format!("{lines} lines, more than {MAX_LINES}: split it by concept");
        violations.push(Violation::new(source.path(), rule));
    }
    violations
}

/// Whether a Rust file approaches the limit.
pub(super) fn is_long(source: &SourceFile) -> bool {
    source.is_rust() && source.text().lines().count() > LONG_LINES
}

/// Checks that the lines are there without which a promise of the architecture is not kept.
pub(super) fn check_required(sources: &[SourceFile]) -> Vec<Violation> {
    let holds = |path: &str, wanted: &str| {
        sources.iter().any(|source| source.path() == path && source.text().lines().any(|line| line == wanted))
    };
    REQUIRED_LINES
        .iter()
        .filter(|(path, wanted)| !holds(path, wanted))
        .map(|(path, wanted)| Violation::new(*path, format!("must hold the line {wanted}")))
        .collect()
}

/// The part of a line that is addressed to a reader: all of a document, the comment of a line of code.
fn prose<'a>(source: &SourceFile, line: &'a str) -> &'a str {
    let is_code = [".rs", ".c", ".cc", ".cpp", ".h", ".java"].iter().any(|end| source.path().ends_with(end));
    if is_code { line.find("//").map_or("", |at| &line[at..]) } else { line }
}

/// Whether a line speaks of an issue: the word or the number sign, and digits. Colours and other words
/// with more than digits after the sign do not count.
fn mentions_issue(line: &str) -> bool {
    let lower = line.to_lowercase();
    let after =
        |marker: &str| lower.match_indices(marker).map(|(at, _)| (at, at + marker.len())).collect::<Vec<_>>();
    let number_at = |at: usize| {
        let rest = &lower[at..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        (1..=5).contains(&digits) && !rest[digits..].starts_with(|c: char| c.is_alphanumeric())
    };
    let word_before = |at: usize| lower[..at].ends_with(|c: char| c.is_alphanumeric() || c == '&');
    after("#").into_iter().any(|(at, end)| !word_before(at) && number_at(end))
        || after("issue ").into_iter().any(|(_, end)| number_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_issue_numbers() {
        let number = 12;
        assert!(mentions_issue(&format!("// see #{number}")));
        assert!(mentions_issue(&format!("fixes Issue {number}.")));
        assert!(!mentions_issue("fill: #123456; color: #1a2b3c"));
        assert!(!mentions_issue("# 1. Crates"));
        assert!(!mentions_issue("#[derive(Debug)] 12 r#\"x\"#"));
        assert!(!mentions_issue("&#39; is an apostrophe"));
    }

    #[test]
    fn code_is_no_prose() {
        let rust = SourceFile::for_test("a/src/x.rs", "");
        assert_eq!(prose(&rust, "let a = \"x\"; // see there"), "// see there");
        assert_eq!(prose(&rust, "print(\"rank\")"), "");
        assert_eq!(prose(&SourceFile::for_test("README.md", ""), "all of it"), "all of it");
    }

    #[test]
    fn knows_empty_names_and_long_files() {
        assert_eq!(check(&SourceFile::for_test("a/src/utils.rs", "")).len(), 1);
        assert_eq!(check(&SourceFile::for_test("a/src/live.rs", &"\n".repeat(501))).len(), 1);
        assert_eq!(check(&SourceFile::for_test("a/src/live.rs", &"\n".repeat(500))).len(), 0);
    }

    #[test]
    fn knows_required_lines() {
        assert_eq!(check_required(&[]).len(), 1);
        let core = SourceFile::for_test("memprof-core/src/lib.rs", "//! x\n#![forbid(unsafe_code)]\n");
        assert_eq!(check_required(&[core]).len(), 0);
    }
}
