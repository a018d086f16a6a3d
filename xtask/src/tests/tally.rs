//! Counts test results in the output of `cargo test`.
//!
//! A test that finds its machine unfit prints a line `skipped: <reason>` and returns. The test harness
//! calls that passed; here it is taken out of the passed ones. The output of passed tests is shown by the
//! harness (`--show-output`) as
//! ```text
//! successes:
//!
//! ---- name_of_the_test stdout ----
//! skipped: the kernel has no session probes
//! ```

use std::collections::BTreeSet;

/// Most lines that are kept of the failure messages of one test program.
const MAX_FAILURE_LINES: usize = 200;

/// Results of all test programs of one `cargo test`.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    reported: Counts,
    skipped: BTreeSet<String>,
    failure_details: Vec<String>,
    section: Section,
    current_test: String,
    section_lines: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Progress,
    Successes,
    Failures,
}

/// Numbers of a `test result:` line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Tally {
    /// Takes in a line of output; returns whether it belongs in front of the reader: a result, or the
    /// name of the test program that the next result is about.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ => {}
        }
        if let Some(counts) = Counts::parse(line) {
            self.end_of_program(counts);
            return true;
        }
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            name.clone_into(&mut self.current_test);
        }
        match self.section {
            Section::Successes if line.starts_with("skipped:") => {
                self.skipped.insert(self.current_test.clone());
            }
            Section::Failures if self.section_lines.len() < MAX_FAILURE_LINES => {
                self.section_lines.push(line.to_owned());
            }
            _ => {}
        }
        let line = line.trim_start();
        line.starts_with("Running ") || line.starts_with("Doc-tests ")
    }

    fn end_of_program(&mut self, counts: Counts) {
        self.reported.passed += counts.passed;
        self.reported.failed += counts.failed;
        self.reported.ignored += counts.ignored;
        self.failure_details.append(&mut self.section_lines);
        self.section = Section::Progress;
    }

    /// Tests that passed and did not skip themselves.
    pub(crate) fn passed(&self) -> usize {
        self.reported.passed.saturating_sub(self.skipped.len())
    }

    /// Tests that failed.
    pub(crate) fn failed(&self) -> usize {
        self.reported.failed
    }

    /// Tests marked `#[ignore]` that were not asked for.
    pub(crate) fn ignored(&self) -> usize {
        self.reported.ignored
    }

    /// Tests that skipped themselves.
    pub(crate) fn skipped(&self) -> usize {
        self.skipped.len()
    }

    /// Names of the tests that skipped themselves.
    pub(crate) fn skipped_tests(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(String::as_str)
    }

    /// Tests that were started.
    pub(crate) fn ran(&self) -> usize {
        self.reported.passed + self.reported.failed
    }

    /// What the failed tests said.
    pub(crate) fn failure_details(&self) -> &[String] {
        &self.failure_details
    }
}

impl Counts {
    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("test result: ")?;
        let (_, numbers) = rest.split_once(". ")?;
        let number = |word: &str| {
            numbers.split(';').find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
        };
        Some(Self { passed: number("passed")?, failed: number("failed")?, ignored: number("ignored")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        for line in output.lines() {
            tally.read(line);
        }
        tally
    }

    #[test]
    fn adds_up_test_programs() {
        let tally = tally(
            "running 2 tests\ntest a ... ok\n\n\
             test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.1s\n",
        );
        assert_eq!((tally.passed(), tally.failed(), tally.ignored(), tally.ran()), (4, 2, 1, 6));
    }

    #[test]
    fn a_test_that_skips_itself_has_not_passed() {
        let tally = tally(
            "successes:\n\n---- session stdout ----\nskipped: no session probes\nskipped: really\n\n\n\
             successes:\n    other\n    session\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!((tally.passed(), tally.skipped(), tally.ran()), (1, 1, 2));
        assert_eq!(tally.skipped_tests().collect::<Vec<_>>(), ["session"]);
    }

    #[test]
    fn keeps_what_failed_tests_said() {
        let tally = tally(
            "failures:\n\n---- exact stdout ----\nskipped: not this one\nassertion failed\n\n\
             failures:\n    exact\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s\n",
        );
        assert!(tally.failure_details().iter().any(|line| line == "assertion failed"));
        assert_eq!((tally.failed(), tally.skipped()), (1, 0));
    }

    #[test]
    fn shows_results_and_program_names() {
        let mut tally = Tally::default();
        assert!(tally.read("     Running tests/exact.rs (target/checked/deps/exact-1)"));
        assert!(tally.read(
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"
        ));
        assert!(!tally.read("test exact ... ok"));
    }
}
