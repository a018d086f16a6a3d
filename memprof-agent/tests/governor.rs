//! What the probes may cost a target: told before, watched, and ended when it is too much.

mod support;

use std::time::Duration;

use support::agent::Recorder;
use support::breakpoints::{NO_BREAKPOINTS, Text};
use support::exclusive;
use support::program::{Target, Truth, compile};
use support::report::Report;

/// Pairs in each tenth of a second.
fn tenths(truth: &Truth) -> Vec<u64> {
    truth.values.iter().filter(|(name, _)| name.starts_with("tenth_")).map(|(_, &pairs)| pairs).collect()
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

fn number(report: &Report, pointer: &str) -> f64 {
    let value = report.0.pointer(pointer).unwrap_or_else(|| panic!("the report has no {pointer}"));
    value.as_f64().unwrap_or_else(|| panic!("{pointer} is {value}, not a number"))
}

/// CPU time that a process has used, its own and the kernel's for it.
fn cpu_seconds(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("cannot read schedstat");
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse::<u64>().ok());
    nanoseconds.expect("nanoseconds in schedstat") as f64 / 1e9
}

fn start(arguments: &[&str]) -> Target {
    compile("pairs_per_time", &["pairs_per_time.c"]).start(arguments)
}

/// A loop that does nothing but allocate is let go within 1.2 seconds of its start, and then runs as if
/// nothing had been.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_tight_loop_is_let_go_in_time() {
    let _alone = exclusive();
    let mut target = start(&["4"]);
    let recording = Recorder::limited("512KiB", "10").pid(&target).args(["--json"]).start();
    let truth = target.work();
    let finished = recording.wait();
    assert!(finished.stderr.contains("were taken out and the recording ends here"), "{}", finished.stderr);
    let report = finished.report();

    let tenths = tenths(&truth);
    let full_speed = median(&tenths[20..]);
    let back = tenths.iter().position(|&pairs| pairs > full_speed / 2).expect("never at full speed");
    assert!(back <= 11, "back to speed in the tenth of a second number {back}: {tenths:?}");
    assert!(tenths[..2].iter().all(|&pairs| pairs < full_speed / 5), "no probes at first: {tenths:?}");
    assert_eq!(Text::of_libc(target.pid()).breakpoints(), NO_BREAKPOINTS);

    let event = &report.0["events"][0];
    assert_eq!(event["kind"], "probes_taken_out");
    assert!(event["at_seconds"].as_f64().is_some_and(|seconds| seconds < 60.0), "{event}");
    let peak = number(&report, "/overhead/peak_percent");
    assert!(peak > 10.0 && peak <= 110.0, "{peak} % of a core at the peak of one thread");
    assert_eq!(number(&report, "/overhead/limit_percent"), 10.0);
    assert!(report.number("/counters/alloc_calls") > 10_000, "what was seen until then is told");
}

/// The table says it, too.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_table_says_that_the_probes_were_taken_out() {
    let _alone = exclusive();
    let mut target = start(&["2"]);
    let recording = Recorder::limited("4KiB", "5").pid(&target).start();
    target.work();
    let table = recording.wait().assert_success().stdout.clone();
    let said = table.lines().any(|line| {
        line.starts_with("at ") && line.contains("more than --max-overhead 5 %: they were taken out")
    });
    assert!(said, "{table}");
    assert!(table.contains("overhead: the probes cost about "), "{table}");
}

/// What is expected is told before, and a modest load is recorded to the end.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_modest_load_stays_attached() {
    let _alone = exclusive();
    let mut target = start(&["6", "5000"]);
    target.go();
    let mut recording =
        Recorder::limited("512KiB", "10").pid(&target).args(["--json"]).start_without_waiting();
    let expected = recording.wait_for("memprof: about ");
    let words: Vec<&str> = expected.split(' ').collect();
    let rate: f64 = words[2].replace(',', "").parse().unwrap_or_else(|_| panic!("no rate in {expected}"));
    assert!((1500.0..6000.0).contains(&rate), "{expected}");
    recording.wait_for("memprof: recording");
    std::thread::sleep(Duration::from_secs(3));
    let report = recording.report();
    assert_eq!(report.0["events"].as_array().map(Vec::len), Some(0), "{}", report.0["events"]);
    let average = number(&report, "/overhead/average_percent");
    assert!((0.2..5.0).contains(&average), "{average} % of a core for 5000 pairs a second");
    assert_eq!(report.0["overhead"]["measured"], true);
    let costs = ["entry", "stepped_entry", "return"]
        .map(|name| report.number(&format!("/overhead/nanoseconds/{name}")));
    assert!((100..20_000).contains(&costs[0]) && costs[1] >= costs[0] && costs[2] > 50, "{costs:?}");
    assert!(report.number("/counters/alloc_calls") > 3000);
}

/// A loop that runs already is refused, before any probe but the counting one was in it.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_loop_that_runs_already_is_refused() {
    let _alone = exclusive();
    let mut target = start(&["30"]);
    target.go();
    let refused = Recorder::limited("512KiB", "10").pid(&target).start_without_waiting().wait();
    let error = refused.assert_error(1);
    for part in ["allocations a second", "% of a core", "--max-overhead 10.0 %", "or none"] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    assert!(!refused.stderr.contains("memprof: recording"));
    assert_eq!(Text::of_libc(target.pid()).breakpoints(), NO_BREAKPOINTS);
    assert!(target.is_alive());
}

/// Without a limit nothing is measured before, refused or taken out, but the cost is told. It is also the
/// right one: what the loop loses is about what was reckoned.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn without_a_limit_everything_is_recorded() {
    let _alone = exclusive();
    let mut target = start(&["3"]);
    let recording = Recorder::new("512KiB").pid(&target).args(["--json"]).start();
    let truth = target.work();
    let finished = recording.stop();
    assert!(!finished.stderr.contains("allocations a second"), "{}", finished.stderr);
    let report = finished.report();
    assert_eq!(report.0["events"].as_array().map(Vec::len), Some(0));
    assert!(report.0["overhead"]["limit_percent"].is_null());
    let pairs: u64 = tenths(&truth).iter().sum();
    assert!(report.number("/counters/alloc_calls") >= pairs, "every pair was seen");
    // The loop without probes needs a hundredth of the time, so nearly all of it is their cost.
    let spent = cpu_seconds(target.pid());
    let reckoned =
        number(&report, "/overhead/average_percent") / 100.0 * number(&report, "/duration_seconds");
    assert!(spent > 0.5, "{spent} s of CPU time");
    assert!((0.5..1.3).contains(&(reckoned / spent)), "{reckoned} s reckoned of {spent} s spent");
}
