//! The core touches nothing: no files, sockets, clocks, threads, processes or environment. Its tests may.

use super::Violation;
use super::source::SourceFile;

/// Where the rule holds.
const PURE: &str = "memprof-core/src/";

/// Paths of the standard library that reach out of the process, or are not the same every time.
const IMPURE: [&str; 9] = [
    "std::env",
    "std::fs",
    "std::hash::RandomState",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime",
];

/// Checks one file.
pub(super) fn check(source: &SourceFile) -> Vec<Violation> {
    if !source.path().starts_with(PURE) || source.name() == "tests.rs" {
        return Vec::new();
    }
    let code = source.text().lines().enumerate().take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    code.filter(|(_, line)| !line.trim_start().starts_with("//"))
        .flat_map(|(index, line)| {
            let impure = IMPURE.iter().filter(|path| line.contains(**path));
            impure
                .map(move |path| Violation::new(source.line(index), format!("the core must not use {path}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_touches_nothing_but_its_tests_may() {
        let text = "use std::fs::File;\n// std::fs\n#[cfg(test)]\nmod tests {\nuse std::fs;\n}\n";
        assert_eq!(check(&SourceFile::for_test("memprof-core/src/live.rs", text)).len(), 1);
        assert_eq!(check(&SourceFile::for_test("memprof-core/src/live/tests.rs", text)).len(), 0);
        assert_eq!(check(&SourceFile::for_test("memprof-agent/src/main.rs", text)).len(), 0);
    }
}
