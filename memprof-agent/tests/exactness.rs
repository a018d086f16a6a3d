//! With sample interval 1 every number is exact: fourteen named sites leak known bytes through every
//! allocator function, from three threads, while four other threads churn.

mod support;

use support::agent::Recorder;
use support::program::compile;
use support::report::Report;
use support::{ATTACH_MODES, exclusive};

fn record(attach_mode: &str) {
    let _alone = exclusive();
    let program = compile("exact", &["exact_sites.c", "exact_new.cpp"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).args(["--attach-mode", attach_mode]).start();
    let truth = target.work();
    let report = recording.report();
    target.finish();

    let used = report.0["attach_mode"].as_str().expect("no attach mode");
    assert!(used.contains(attach_mode), "{attach_mode} was asked for, {used} was used");
    assert_eq!(truth.sites.len(), 14, "the program lost a site: {truth:?}");
    assert!(truth.value("churn_pairs") >= 100_000);
    report.assert_no_losses();
    report.assert_exact(&truth);
    report.assert_all_complete();
    assert_churn_is_gone(&report, truth.value("churn_pairs"));
    assert_counted_once(&report);
    assert_total(&report);
}

/// The churn is seen (each pair at least once), and nothing of it is alive.
fn assert_churn_is_gone(report: &Report, pairs: u64) {
    let churn = report.sum("churn_worker");
    assert!(churn.alloc_objects >= pairs as f64, "only {} of {pairs} pairs", churn.alloc_objects);
    assert_eq!((churn.inuse_bytes, churn.inuse_objects), (0.0, 0.0), "live churn");
}

/// Functions that call others of the allocator inside count once: three threads with 200 calls each.
fn assert_counted_once(report: &Report) {
    for site in ["site_malloc", "site_calloc", "site_realloc_null", "site_reallocarray", "site_memalign"]
        .into_iter()
        .chain(["site_posix_memalign", "site_aligned_alloc", "site_valloc", "site_pvalloc", "site_new"])
    {
        assert_eq!(report.sum(site).alloc_objects, 600.0, "allocations ever at {site}");
    }
    assert_eq!(report.sum("site_realloc").alloc_objects, 1800.0, "allocations ever at site_realloc");
}

/// The total is the sum of the sites.
fn assert_total(report: &Report) {
    let total = |name: &str| report.0["total"][name].as_f64().expect("a total");
    let sites = report.sites();
    assert_eq!(total("inuse_bytes"), sites.iter().map(|site| site.sum.inuse_bytes).sum::<f64>());
    assert_eq!(total("inuse_objects"), sites.iter().map(|site| site.sum.inuse_objects).sum::<f64>());
    assert_eq!(total("alloc_bytes"), sites.iter().map(|site| site.sum.alloc_bytes).sum::<f64>());
    assert_eq!(total("inuse_bytes_error"), 0.0, "a census has no sampling error");
    assert_eq!(report.number("/counters/sampled"), sites.iter().map(|site| site.samples).sum::<u64>());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_site_is_exact_with_uprobe_sessions() {
    record(ATTACH_MODES[0]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_site_is_exact_with_uprobe_multi() {
    record(ATTACH_MODES[1]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_site_is_exact_with_perf_uprobes() {
    record(ATTACH_MODES[2]);
}
