//! What happens when memory gets scarce: numbers stay right within their stated error, nothing is lost
//! silently, and the agent does not grow.

mod support;

use std::time::{Duration, Instant};

use support::agent::{Recorder, run};
use support::exclusive;
use support::memory::{heap_bytes, status_bytes};
use support::program::{Target, Truth, compile};
use support::report::Report;

const MIB: u64 = 1 << 20;
const SITES: [&str; 3] = ["small_leak", "middle_leak", "large_leak"];

/// Names of the run's events.
fn events(report: &Report) -> Vec<&str> {
    let events = report.0["events"].as_array().expect("no events in the report");
    events.iter().map(|event| event["kind"].as_str().expect("an event without a kind")).collect()
}

/// Live bytes of every site are within four standard deviations of the truth (one false alarm in 16 000);
/// what was counted as lost may be missing beside that. The error is estimated from the samples, so sites
/// with few blocks are left out: when all of their uncertain ones are missed, nothing is left to tell it.
fn assert_within_stated_error(report: &Report, truth: &Truth) {
    let counted = ["ring_full_bytes", "live_table_full_bytes"]
        .map(|name| report.number(&format!("/losses/{name}")))
        .iter()
        .sum::<u64>() as f64;
    for (name, &(bytes, blocks)) in &truth.sites {
        if blocks < 5000 {
            continue;
        }
        let sites = report.sites_of(name);
        let estimate: f64 = sites.iter().map(|site| site.sum.inuse_bytes).sum();
        let variance: f64 = sites.iter().map(|site| (site.inuse_bytes_error / 1.96).powi(2)).sum();
        let deviation = variance.sqrt();
        assert!(deviation < 0.25 * bytes as f64, "{name}: too large an error, {deviation} of {bytes}");
        let missing = bytes as f64 - estimate;
        assert!(
            missing >= -4.0 * deviation && missing <= 4.0 * deviation + counted,
            "{name}: {estimate} of {bytes} with a standard deviation of {deviation}"
        );
    }
}

/// Five million live blocks in tables for 100 000.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_leak_far_beyond_the_live_table_stays_within_its_error() {
    let _alone = exclusive();
    let mut target = compile("leaks", &["leaks.c"]).start(&["1000000"]);
    let recording = Recorder::exact(&target).args(["--max-live-blocks", "100000"]).start();
    let mut truth = target.work();
    let resident = status_bytes(recording.pid(), "VmRSS");
    for _ in 0..4 {
        truth = target.work();
    }
    let later = status_bytes(recording.pid(), "VmRSS");
    assert!(later < resident + 8 * MIB, "the agent grew from {resident} to {later} bytes");
    let report = recording.report();
    report.assert_no_losses_but(&[
        "ring_full_allocs",
        "ring_full_bytes",
        "live_table_full_allocs",
        "live_table_full_bytes",
    ]);
    assert_eq!(report.number("/losses/live_table_full_allocs"), 0, "the live table was full");
    let raised = events(&report);
    assert!(raised.len() >= 3 && raised.iter().all(|kind| *kind == "interval_raised"), "{raised:?}");
    assert_eq!(SITES.map(|site| truth.sites[site].1).iter().sum::<u64>(), 5_000_000);
    assert_within_stated_error(&report, &truth);
    assert!(report.number("/memory/live_blocks") <= 100_000);
}

/// The smallest budget still gives right numbers, and a replay the same; a smaller one is refused with the minimum.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_smallest_budget_works() {
    let _alone = exclusive();
    let mut target = compile("leaks", &["leaks.c"]).start(&["100000", "paced"]);
    let directory = support::open_directory();
    let file = directory.path().join("thinned.mprec");
    let file = file.to_str().expect("a UTF-8 path");
    let recording = Recorder::exact(&target).args(["--memory-budget", "1MiB", "-o", file]).start();
    let truth = target.work();
    let report = recording.report();
    assert_within_stated_error(&report, &truth);
    report.assert_no_losses_but(&["ring_full_allocs", "ring_full_bytes"]);
    assert!(events(&report).contains(&"interval_raised"));
    let (kernel, budget) = (report.number("/memory/kernel_bytes"), report.number("/memory/budget"));
    assert_eq!(budget, MIB);
    assert!(kernel < budget + 512 * 1024, "{kernel} bytes in the kernel with a budget of {budget}");

    let replayed = run(["replay", file, "--json"]).report();
    assert_eq!(replayed.0, report.0, "thinning depends on nothing but the recording");

    let refused = Recorder::exact(&target).args(["--memory-budget", "100KiB"]).start_without_waiting().wait();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("at least 1.0 MiB"), "{}", refused.stderr);
}

/// The kernel's memory fits the budget, and is told by map.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn kernel_memory_is_told_and_within_the_budget() {
    let _alone = exclusive();
    let target = compile("leaks", &["leaks.c"]).start(&["1"]);
    let mut recording = Recorder::exact(&target).start_without_waiting();
    let line = recording.wait_for("memprof: ");
    assert!(line.contains("of kernel memory") && line.contains("budget of 128.0 MiB"), "{line}");
    recording.wait_for("memprof: recording");
    let report = recording.report();
    let maps = report.0["memory"]["kernel_maps"].as_array().expect("no maps");
    let of = |name: &str| {
        let map = maps.iter().find(|map| map[0] == name).unwrap_or_else(|| panic!("no map {name}: {maps:?}"));
        map[1].as_u64().expect("bytes")
    };
    assert!(of("EVENTS") >= 64 * MIB, "the ring");
    let per_block = of("LIVE") as f64 / report.number("/memory/live_capacity") as f64;
    assert!((72.0..=104.0).contains(&per_block), "{per_block} bytes per live block");
    assert!(report.number("/memory/kernel_bytes") < 128 * MIB);
}

/// One million sampled blocks alive at once: none is lost.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_million_live_blocks_are_exact() {
    let _alone = exclusive();
    let mut target = compile("leaks", &["leaks.c"]).start(&["1000000", "paced"]);
    let recording = Recorder::exact(&target).args(["--max-live-blocks", "1200000"]).start();
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses();
    report.assert_exact(&truth);
    assert!(events(&report).is_empty());
}

/// Frees that the ring had no room for: said, and repaired. Blocks that it had no room for: said, with
/// their bytes. The agent is stopped meanwhile, so that the ring surely overflows.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_full_ring_leaves_no_phantom_leaks() {
    let _alone = exclusive();
    let mut target = compile("burst", &["burst.c"]).start(&["20000", "100"]);
    let recording = Recorder::exact(&target).args(["--ring-size", "128KiB"]).start();
    target.work();
    recording.freeze();
    target.work();
    recording.thaw();
    // More than a second: the agent compares the tables while it runs.
    std::thread::sleep(Duration::from_millis(2500));
    recording.freeze();
    target.work();
    recording.thaw();
    let report = recording.report();

    let lost_frees = report.number("/losses/ring_full_frees");
    assert!(lost_frees > 10_000, "{lost_frees} frees lost");
    let first = report.sum("first_block");
    assert_eq!((first.inuse_bytes, first.inuse_objects), (0.0, 0.0), "phantom leaks");
    assert_eq!(report.number("/losses/repaired_frees"), lost_frees);
    assert_eq!(report.number("/losses/unknown_frees"), 0);
    assert_eq!(events(&report), ["frees_lost"]);
    let text = report.0["events"][0]["text"].as_str().expect("words");
    assert!(text.starts_with("frees lost: "), "{text}");

    let lost = report.number("/losses/ring_full_allocs");
    let second = report.sum("second_block");
    assert!(lost > 10_000, "{lost} allocations lost");
    assert_eq!(report.number("/losses/ring_full_bytes"), lost * 100);
    assert_eq!(second.inuse_objects, (20_000 - lost) as f64);
    assert!(report.number("/counters/ring_pressure") > 0);
}

/// More events than the agent can take, for seconds: it still ends when told, thins its tables, and the
/// target is never held up by it.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn sustained_overload_neither_stops_the_session_nor_the_target() {
    let _alone = exclusive();
    let mut target = compile("leaks", &["leaks.c"]).start(&["400000"]);
    let limits = ["--max-live-blocks", "20000", "--ring-size", "1MiB"];
    let recording = Recorder::exact(&target).args(limits).start();
    let started = Instant::now();
    let truth = target.work();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "the target needed {took:?}");
    let told = Instant::now();
    let report = recording.report();
    assert!(told.elapsed() < Duration::from_secs(10), "the agent needed {:?} to end", told.elapsed());
    assert!(events(&report).contains(&"interval_raised"));
    assert_within_stated_error(&report, &truth);
}

/// More different stacks than there is room for: their bytes are kept.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn stacks_beyond_the_budget_are_counted_and_their_bytes_kept() {
    let _alone = exclusive();
    let mut target = compile("many_stacks", &["many_stacks.c"]).start(&["12"]);
    let limits = ["--memory-budget", "2MiB", "--max-live-blocks", "10000", "--ring-size", "16MiB"];
    let recording = Recorder::exact(&target).args(limits).start();
    target.work();
    let report = recording.report();
    report.assert_no_losses_but(&["stacks_lost"]);
    let lost = report.number("/losses/stacks_lost");
    let sites = report.sites();
    let total: f64 = sites.iter().map(|site| site.sum.inuse_bytes).sum();
    assert_eq!(total, 409_600.0, "bytes in use of 4096 blocks");
    let without: Vec<_> = sites.iter().filter(|site| site.end.contains("stack lost")).collect();
    assert_eq!(without.len(), 1, "one site for all");
    assert_eq!((without[0].samples, without[0].sum.inuse_bytes), (lost, lost as f64 * 100.0));
    assert!(without[0].frames.is_empty());
    assert!(sites.len() > 50 && lost > 2000, "{} sites, {lost} stacks lost", sites.len());
    assert_eq!(sites.iter().map(|site| site.samples).sum::<u64>(), 4096);
}

/// The agent's memory while blocks come and go for a while.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_agent_does_not_grow_while_blocks_churn() {
    let _alone = exclusive();
    let mut target = compile("leak", &["leak.c"]).start(&["100000000", "64"]);
    let recording = Recorder::exact(&target).args(["--max-live-blocks", "50000"]).start();
    target.go();
    std::thread::sleep(Duration::from_secs(8));
    let early = status_bytes(recording.pid(), "VmRSS");
    std::thread::sleep(Duration::from_secs(14));
    let late = status_bytes(recording.pid(), "VmRSS");
    assert!(late < early + 2 * MIB, "the agent grew from {early} to {late} bytes");
    let report = recording.report();
    let churn = report.sum("churn_here");
    let calls = report.number("/counters/alloc_calls");
    assert!(calls > 200_000, "{calls} calls");
    assert!(churn.inuse_objects < 0.001 * calls as f64, "{churn:?} of blocks that are freed at once");
}

/// Attaching gives the target nothing but breakpoints and the page in which the kernel steps over them.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_target_does_not_grow() {
    let _alone = exclusive();
    let mut target = compile("same_addresses", &["same_addresses.c"]).start(&["10000", "100", "1"]);
    target.work();
    let memory = |target: &Target| (status_bytes(target.pid(), "RssAnon"), heap_bytes(target.pid()));
    let (anonymous, heap) = memory(&target);
    let recording = Recorder::exact(&target).start();
    let (attached, attached_heap) = memory(&target);
    assert_eq!(attached_heap, heap, "the heap");
    assert!(attached <= anonymous + 20 * 4096, "from {anonymous} to {attached} bytes");
    recording.stop().assert_success();
    let (after, after_heap) = memory(&target);
    assert_eq!(after_heap, heap, "the heap afterwards");
    assert!(after <= attached, "from {attached} to {after} bytes");
}
