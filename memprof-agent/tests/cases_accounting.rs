//! Ways in which profilers have miscounted blocks, each on a real process.

mod support;

use support::agent::{Recorder, run};
use support::program::{Target, compile};
use support::report::Report;
use support::{ATTACH_MODES, exclusive};

use std::process::Command;

/// Builds and starts a program of one C file.
fn start(source: &str, arguments: &[&str]) -> (support::program::Program, Target) {
    let program = compile(source.trim_end_matches(".c"), &[source]);
    let target = program.start(arguments);
    (program, target)
}

/// Records one exact run of a program in the given mode; its sites must be right and nothing lost.
fn exact(source: &str, arguments: &[&str], attach_mode: &str) -> (support::program::Truth, Report) {
    let (_program, mut target) = start(source, arguments);
    let recording = Recorder::exact(&target).args(["--attach-mode", attach_mode]).start();
    let truth = target.work();
    let report = recording.report();
    target.finish();
    report.assert_no_losses();
    report.assert_exact(&truth);
    (truth, report)
}

/// Totals under many threads: 1.5 million pairs, of which one in 64 is recorded.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn thirty_churning_threads_leave_nothing() {
    let _alone = exclusive();
    let (_program, mut target) = start("threads.c", &["churn", "30", "50000", "64"]);
    let recording = Recorder::new("4KiB").pid(&target).args(["--json"]).start();
    target.work();
    let report = recording.report();
    report.assert_no_losses();
    let sum = report.sum("allocate_here");
    assert_eq!((sum.inuse_bytes, sum.inuse_objects), (0.0, 0.0));
    // 23 437 expected with a standard deviation of 152.
    let samples: u64 = report.sites_of("allocate_here").iter().map(|site| site.samples).sum();
    assert!((22_830..24_050).contains(&samples), "{samples} samples of 1.5 million blocks");
    assert!(report.number("/counters/alloc_calls") >= 1_500_000);
    assert!(report.number("/counters/free_calls") >= 1_500_000);
}

/// Two threads that count at one site at the same time.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn two_leaking_threads_count_every_block() {
    let _alone = exclusive();
    let (truth, report) = exact("threads.c", &["leak", "2", "100000", "4"], "auto");
    assert_eq!(truth.sites["allocate_here"], (800_000, 200_000));
    assert_eq!(report.sum("worker").alloc_objects, 200_000.0);
}

/// Calls that return no memory are not blocks.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn failed_allocations_are_not_live() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        let (truth, report) = exact("failing.c", &[], mode);
        let tried = report.sum("try_huge");
        assert_eq!((tried.alloc_bytes, tried.alloc_objects), (0.0, 0.0), "in mode {mode}");
        assert_eq!(truth.value("failed"), 4000);
        assert_eq!(report.number("/counters/failed_allocations"), 4000, "in mode {mode}");
    }
}

/// A realloc that fails leaves the old block alive, with its size and its stack; one to zero bytes frees.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_failed_realloc_keeps_its_block() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        let (truth, report) = exact("realloc_ends.c", &[], mode);
        assert_eq!(truth.value("failed"), 240);
        assert_eq!(report.number("/counters/failed_reallocs"), 240, "in mode {mode}");
        for site in report.sites_of("first_block") {
            site.assert_order(&["first_block", "main"]);
            site.assert_reaches_thread_entry();
        }
    }
}

/// Blocks from signal handlers and from functions that call others of the allocator inside: one record
/// each, with the right size. A stack through the signal frame goes on to the interrupted functions or
/// says that it does not.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn nested_calls_and_signal_handlers_count_once() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        let (_program, mut target) = start("signal_blocks.c", &[]);
        let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start();
        let truth = target.work();
        let report = recording.report();
        report.assert_exact(&truth);
        // Where an alternate stack ends is not known: a copy of it may run into unmapped memory.
        report.assert_no_losses_but(&["stack_unreadable"]);
        for (site, handler, raiser) in [
            ("handler_block", "on_signal", "raise_plain"),
            ("alternate_block", "on_alternate", "raise_alternate"),
        ] {
            assert_eq!(report.sum(site).alloc_objects, 200.0, "{site} in mode {mode}");
            for site in report.sites_of(site) {
                site.assert_order(&[handler]);
                if site.end == "complete" {
                    site.assert_order(&[handler, raiser, "main"]);
                    site.assert_reaches_thread_entry();
                } else {
                    assert!(site.end.starts_with("truncated: "), "unmarked end {:?}", site.end);
                }
            }
        }
        for site in ["plain_block", "nested_posix", "nested_memalign"] {
            assert_eq!(report.sum(site).alloc_objects, 200.0, "{site} in mode {mode}");
            report.sites_of(site).iter().for_each(|site| site.assert_reaches_thread_entry());
        }
    }
}

/// An address that was freed by one thread and is handed out to another one at once: a free that is seen
/// late would end the new block.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn blocks_handed_between_threads_are_exact() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        let program = compile("hand_over", &["hand_over.c"]);
        let mut command = Command::new(&program.path);
        // Without the per-thread cache a freed block is free for every thread.
        let mut target = Target::start(command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"));
        let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start();
        let truth = target.work();
        let report = recording.report();
        report.assert_no_losses();
        assert!(truth.sites["handed_block"].1 > 50, "too few blocks were handed over: {truth:?}");
        report.assert_exact(&truth);
        assert_eq!(report.sum("handed_block").alloc_objects, 80_000.0, "in mode {mode}");
    }
}

/// A live table that is too small for a leak never drops blocks silently: either it is thinned, which is
/// said and keeps the estimate right, or what found no room is counted with its bytes. Blocks of 1 MiB are
/// not sampled less under pressure, so a burst of them does fill the table.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_full_live_table_says_what_it_misses() {
    let _alone = exclusive();
    let (_program, mut target) = start("same_addresses.c", &["10000", "1048576", "0"]);
    let recording = Recorder::exact(&target).args(["--max-live-blocks", "1000"]).start();
    recording.freeze();
    target.work();
    recording.thaw();
    let report = recording.report();
    let missed = report.number("/losses/live_table_full_allocs");
    assert_eq!(missed, 9000, "blocks missed");
    assert_eq!(report.number("/losses/live_table_full_bytes"), missed << 20);
    let site = &report.sites_of("shared_site")[0];
    assert_eq!(site.sum.alloc_objects, 1000.0);
    let deviation = site.inuse_bytes_error / 1.96;
    assert!((site.sum.inuse_bytes - 1_048_576_000.0).abs() <= 4.0 * deviation, "{site:?}");

    let (_program, mut target) = start("same_addresses.c", &["10000", "1048576", "0"]);
    let recording = Recorder::new("1").pid(&target).args(["--max-live-blocks", "1000"]).start();
    recording.freeze();
    target.work();
    recording.thaw();
    let table = recording.stop().assert_success().stdout.clone();
    let line = table.lines().find(|line| line.contains("not tracked because the live table was full"));
    let line = line.unwrap_or_else(|| panic!("the table does not mention the full live table: {table}"));
    assert!(line.starts_with("lost: 9,000 "), "no number of missed blocks: {line}");
}

/// A table that was full because of many live blocks is right again for those that it tracks.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_full_live_table_recovers_when_blocks_are_freed() {
    let _alone = exclusive();
    let (_program, mut target) = start("same_addresses.c", &["2000", "64", "1"]);
    let recording = Recorder::exact(&target).args(["--max-live-blocks", "1000"]).start();
    target.work();
    target.work();
    let report = recording.report();
    let sum = report.sum("shared_site");
    assert_eq!((sum.inuse_objects, sum.inuse_bytes), (0.0, 0.0));
    assert_eq!(report.number("/losses/unknown_frees"), 0);
}

/// An own command is watched from its first instruction, so even a short one is exact.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_command_started_by_the_agent_is_exact() {
    let _alone = exclusive();
    let program = compile("leak", &["leak.c"]);
    let path = program.path.to_str().expect("a UTF-8 path");
    let finished = run([
        "record",
        "--sample-interval",
        "1",
        "--max-overhead",
        "none",
        "--json",
        "--",
        path,
        "500",
        "4000",
        "now",
    ]);
    let report = finished.report();
    report.assert_no_losses();
    let sum = report.sum("leak_here");
    assert_eq!((sum.inuse_bytes, sum.inuse_objects), (2_000_000.0, 500.0));
    assert_eq!(report.sum("churn_here").alloc_objects, 500.0);
    report.sites_of("leak_here").iter().for_each(|site| site.assert_order(&["leak_here", "work", "main"]));
}
