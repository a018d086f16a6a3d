//! Leak or pool: how a site's memory moves, and growth between two moments of a recording.

mod support;

use support::agent::{Recorder, run};
use support::program::compile;
use support::report::Report;
use support::{exclusive, open_directory};

const SECONDS: &str = "10";

/// A property of the sites whose stack contains `function`; all of them must have the same.
fn of_site<'a>(report: &'a Report, function: &str, property: &str) -> &'a serde_json::Value {
    let is_there = |site: &&serde_json::Value| {
        let frames = site["frames"].as_array().expect("frames");
        frames.iter().any(|frame| frame["function"] == function)
    };
    let sites: Vec<_> = report.0["sites"].as_array().expect("sites").iter().filter(is_there).collect();
    let [site] = sites[..] else { panic!("{} sites of {function}", sites.len()) };
    &site[property]
}

fn number(report: &Report, function: &str, property: &str) -> f64 {
    of_site(report, function, property).as_f64().unwrap_or_else(|| panic!("{function} has no {property}"))
}

/// A pool is not shown as a leak, and a leak is; what goes up and down is neither.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_pool_is_told_from_a_leak() {
    let _alone = exclusive();
    let directory = open_directory();
    let recording_file = directory.path().join("pool.mprec").to_str().expect("a UTF-8 path").to_owned();
    let program = compile("pool", &["pool.c"]);
    let mut target = program.start(&[SECONDS]);
    let recording = Recorder::exact(&target).args(["-o", &recording_file]).start();
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses();
    report.assert_exact(&truth);
    assert_eq!(of_site(&report, "pool_here", "trend"), "steady");
    assert_eq!(of_site(&report, "tooth_here", "trend"), "varying");
    assert_eq!(of_site(&report, "leak_here", "trend"), "growing");

    // The teeth are as high as what leaks in seconds, so all together may only vary.
    assert!(["growing", "varying"].contains(&report.0["trend"].as_str().expect("a trend")));

    let leaked = truth.sites["leak_here"].0 as f64;
    let rate = number(&report, "leak_here", "trend_bytes_per_second");
    let expected = leaked / SECONDS.parse::<f64>().expect("a number");
    assert!((0.8..1.2).contains(&(rate / expected)), "{rate} bytes a second instead of {expected}");
    let bands = of_site(&report, "leak_here", "age_bands");
    let total: f64 =
        bands.as_object().expect("bands").values().map(|band| band.as_f64().expect("bytes")).sum();
    assert_eq!(total, leaked, "bytes by age: {bands}");

    growth_adds_up(&recording_file, leaked);
}

/// Growth in the parts of a recording is the growth in all of it.
fn growth_adds_up(recording: &str, leaked: f64) {
    let replay = |arguments: &[&str]| {
        let mut all = vec!["replay", recording, "--json"];
        all.extend(arguments);
        run(all).report()
    };
    let growth = |report: &Report| number(report, "leak_here", "growth_bytes");
    assert_eq!(growth(&replay(&["--from", "0s"])), leaked);
    let first = replay(&["--from", "0s", "--to", "4s"]);
    let second = replay(&["--from", "4s", "--to", "8s"]);
    assert_eq!(
        growth(&first) + growth(&second),
        number(&replay(&["--to", "8s"]), "leak_here", "inuse_bytes")
    );
    assert!(growth(&second) > 0.0);
    // The pool was full after two seconds. A moment may fall between the free of a block and its successor.
    assert!(number(&second, "pool_here", "growth_bytes").abs() <= 16384.0);
    let picture = recording.replace(".mprec", ".folded");
    run(["replay", recording, "--from", "4s", "--value", "inuse_growth", "-o", &picture]).assert_success();
    let picture = std::fs::read_to_string(picture).expect("a picture of growth");
    let leak = picture.lines().find(|line| line.contains("leak_here")).expect("the leak in the picture");
    let bytes: f64 = leak.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert_eq!(bytes, growth(&replay(&["--from", "4s"])));
    run(["replay", recording, "--value", "inuse_growth"]).assert_error(1);
    run(["replay", recording, "--from", "1h"]).assert_error(1);
    run(["replay", recording, "--from", "5s", "--to", "4s"]).assert_error(1);
}

/// A sample is scaled up before it is added to others: many tiny blocks weigh as much as one huge block, in
/// one process and in the sum over two.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn tiny_and_huge_blocks_are_both_right() {
    let _alone = exclusive();
    let program = compile("mixed_sizes", &["mixed_sizes.c"]);
    let mut targets = [program.start(&[]), program.start(&[])];
    let recorder = Recorder::new("64KiB").pid(&targets[0]).pid(&targets[1]);
    let recording = recorder.args(["--json"]).start();
    targets.iter_mut().for_each(|target| drop(target.work()));
    let report = recording.report();
    report.assert_no_losses();
    let mut tiny_bytes = 0.0;
    let mut variance = 0.0;
    for target in &targets {
        let huge = report.sum_of_process(target.pid(), "huge_here");
        assert_eq!((huge.inuse_bytes, huge.inuse_objects), (8e6, 1.0));
        let tiny = report.sites_of("tiny_here").into_iter().filter(|s| s.pid == u64::from(target.pid()));
        for site in tiny {
            let deviation = site.inuse_bytes_error / 1.96;
            assert!((site.sum.inuse_bytes - 8e6).abs() < 4.0 * deviation, "{site:?}");
            assert!((site.sum.inuse_objects - 1e6).abs() < 4.0 * deviation / 8.0, "{site:?}");
            tiny_bytes += site.sum.inuse_bytes;
            variance += deviation * deviation;
        }
    }
    assert!((tiny_bytes - 16e6).abs() < 4.0 * variance.sqrt(), "{tiny_bytes} bytes in tiny blocks");
    assert!(variance.sqrt() < 2e6, "the stated error is useless: {}", variance.sqrt());
}
