//! A thousand random sequences of allocator calls by four threads, for each allocator: what is alive, by
//! the function that asked for it, is exactly what the program itself says.

mod support;

use support::agent::Recorder;
use support::exclusive;
use support::program::{Program, Truth, compile, compile_by};
use support::report::Report;

const SEQUENCES: &str = "1000";
const THREADS: &str = "4";
const SEED: &str = "20260731";

/// A program with the C++ operators and the calls that only one allocator has.
fn full_program() -> Program {
    compile("random_calls", &["random_calls.c", "random_own.c", "random_new.cpp"])
}

/// Records one run of the program; every site must be right and nothing lost.
fn record(program: &Program, preload: Option<&str>, allocator: &str, mode: &str) -> (Truth, Report) {
    let mut target = program.start_with(preload, &[SEED, SEQUENCES, THREADS, allocator]);
    let recorder = Recorder::exact(&target).args(["--attach-mode", mode, "--ring-size", "128MiB"]);
    let recording = recorder.start();
    let truth = target.work();
    let report = recording.report();
    target.finish();
    assert_eq!(truth.value("calls"), 40_000);
    // Impossible requests to operator new are left alone, on purpose.
    report.assert_no_losses_but(&["unsafe_returns"]);
    report.assert_exact(&truth);
    let other = report
        .sites()
        .iter()
        .filter(|site| site.contains("worker"))
        .map(|site| site.sum.inuse_bytes)
        .sum::<f64>();
    assert_eq!(other, truth.sites.values().map(|(bytes, _)| *bytes as f64).sum::<f64>(), "live at no site");
    (truth, report)
}

/// The C++ operators were seen, the exceptions arrived, and the own calls of the allocator were made.
fn assert_complete(truth: &Truth, report: &Report, own_sites: &[&str]) {
    for site in ["site_new", "site_new_array", "site_new_nothrow", "site_new_aligned"] {
        assert!(report.sum(site).alloc_objects > 50.0, "hardly a block of {site}");
    }
    for site in own_sites {
        assert!(truth.sites.contains_key(*site), "the program never came to {site}");
        assert!(report.sum(site).alloc_objects > 20.0, "hardly a block of {site}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn random_calls_of_glibc_are_exact() {
    let _alone = exclusive();
    let (truth, report) = record(&full_program(), None, "glibc", "auto");
    assert_complete(&truth, &report, &["site_realloc", "site_reallocarray"]);
    assert!(report.number("/counters/failed_reallocs") > 100);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn random_calls_of_jemalloc_are_exact() {
    let _alone = exclusive();
    let (truth, report) = record(&full_program(), Some("libjemalloc.so.2"), "jemalloc", "auto");
    assert_complete(&truth, &report, &["site_mallocx", "site_rallocx", "site_xallocx"]);
    assert!(report.number("/losses/unsafe_returns") > 50);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn random_calls_of_tcmalloc_are_exact() {
    let _alone = exclusive();
    let (truth, report) = record(&full_program(), Some("libtcmalloc_minimal.so.4"), "tcmalloc", "auto");
    assert_complete(&truth, &report, &["site_skip_new_handler", "site_tc_memalign", "site_pvalloc"]);
    assert!(report.number("/losses/unsafe_returns") > 50);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn random_calls_of_mimalloc_are_exact() {
    let _alone = exclusive();
    let (truth, report) = record(&full_program(), Some("libmimalloc.so.2.0"), "mimalloc", "auto");
    assert_complete(&truth, &report, &["site_mi_new_n", "site_mi_reallocf", "site_mi_expand"]);
}

/// The modes in which every return is seen.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn random_calls_are_exact_where_every_return_is_seen() {
    let _alone = exclusive();
    let plain = compile_by("cc", "random_calls", &["random_calls.c", "random_no_new.c"], &[]);
    for mode in ["multi", "perf"] {
        for preload in [None, Some("libjemalloc.so.2"), Some("libtcmalloc_minimal.so.4")] {
            record(&plain, preload, "plain", mode);
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn random_calls_of_musl_are_exact() {
    let _alone = exclusive();
    let sources = ["random_calls.c", "random_no_new.c"];
    for flags in [&[][..], &["-static"]] {
        let program = compile_by("musl-gcc", "random_calls", &sources, flags);
        let (_, report) = record(&program, None, "musl", "auto");
        assert!(report.number("/counters/nested") > 1000, "musl's calloc calls malloc");
    }
}
