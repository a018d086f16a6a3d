//! Messages of the kernel side reach the agent's log at their own level.

mod support;

use support::agent::Recorder;
use support::exclusive;
use support::program::compile;

/// What the agent writes to stderr while a watched process replaces its program.
fn log_of_exec(configure: impl FnOnce(Recorder) -> Recorder) -> String {
    let next = compile("leak", &["leak.c"]);
    let program = compile("exec_next", &["exec_next.c"]);
    let mut target = program.start(&["leader", next.path.to_str().expect("a UTF-8 path"), "10", "10"]);
    let recording = configure(Recorder::exact(&target)).start();
    target.work();
    target.go();
    target.wait_until_ready();
    target.work();
    let finished = recording.stop();
    finished.report();
    finished.stderr
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn messages_at_info_appear_with_info_and_not_with_warn() {
    let _alone = exclusive();
    let message = "replaced its program";
    let with = |filter: &str| log_of_exec(|recorder| recorder.env("RUST_LOG", filter));
    let log = with("info");
    let line = log.lines().find(|line| line.contains(message)).unwrap_or_else(|| panic!("no message: {log}"));
    assert!(line.contains("INFO"), "the level was lost: {line}");
    assert!(with("debug").contains(message));
    assert!(log_of_exec(|recorder| recorder.args(["-v"])).contains(message), "-v does not show it");
    for log in [with("warn"), log_of_exec(|recorder| recorder)] {
        assert!(!log.contains(message), "a message below the level: {log}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_full_live_table_is_a_warning() {
    let _alone = exclusive();
    for (filter, expected) in [("warn", true), ("error", false)] {
        // Blocks of 1 MiB, which are not sampled less when the table fills, faster than the agent thins it.
        let program = compile("same_addresses", &["same_addresses.c"]);
        let mut target = program.start(&["500", "1048576", "0"]);
        let recorder = Recorder::exact(&target).args(["--max-live-blocks", "100"]);
        let recording = recorder.env("RUST_LOG", filter).start();
        recording.freeze();
        target.work();
        recording.thaw();
        let finished = recording.stop();
        let report = finished.report();
        assert_eq!(report.number("/losses/live_table_full_allocs"), 400);
        let warned = finished.stderr.lines().any(|line| {
            line.contains("WARN") && (line.contains("live table") || line.contains("live-table"))
        });
        assert_eq!(warned, expected, "RUST_LOG={filter}: {}", finished.stderr);
    }
}
