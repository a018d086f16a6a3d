//! Stacks told apart by the names of their threads, when that is asked for.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use support::agent::{AGENT, Finished, Recorder};
use support::program::compile;
use support::report::Report;
use support::{exclusive, open_directory};

/// Live blocks of the shared site by the name of the thread; empty where there is none.
fn blocks_by_thread(report: &Report) -> BTreeMap<String, f64> {
    let sites = report.0["sites"].as_array().expect("no sites in the report");
    let mut blocks = BTreeMap::new();
    for site in sites {
        let frames = site["frames"].as_array().expect("a site without frames");
        if frames.iter().any(|frame| frame["function"] == "shared_site") {
            assert_eq!(site["end"], "complete");
            let thread = site["thread"].as_str().unwrap_or_default().to_owned();
            *blocks.entry(thread).or_default() +=
                site["inuse_objects"].as_f64().expect("no number of blocks");
        }
    }
    blocks
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn one_site_is_told_apart_by_thread_when_asked_for() {
    let _alone = exclusive();
    let directory = open_directory();
    let recording = directory.path().join("threads.mprec");
    let folded = directory.path().join("threads.folded");
    let program = compile("named_threads", &["named_threads.c"]);
    let mut target = program.start(&[]);
    let outputs = [Path::new("-o"), &recording, Path::new("-o"), &folded];
    let running = Recorder::exact(&target).args(["--threads"]).args(outputs).start();
    let truth = target.work();
    let report = running.report();
    target.finish();
    report.assert_exact(&truth);
    report.assert_no_losses();
    let by_thread = [("busy worker".to_owned(), 300.0), ("idle worker".to_owned(), 100.0)];
    assert_eq!(blocks_by_thread(&report), BTreeMap::from(by_thread.clone()));
    let text = std::fs::read_to_string(&folded).expect("the folded stacks");
    let is_root = |line: &str| line.split(';').nth(1) == Some("busy worker") && line.contains("shared_site");
    assert_eq!(text.lines().filter(|line| is_root(line)).count(), 1, "{text}");

    // A recording has the names, whether they were asked for or not.
    let replay = |options: &[&str]| {
        let mut command = Command::new(AGENT);
        command.env_remove("RUST_LOG").arg("replay").arg(&recording).arg("--json").args(options);
        Finished::from(command.output().expect("cannot run memprof-agent")).report()
    };
    assert_eq!(blocks_by_thread(&replay(&["--threads"])), BTreeMap::from(by_thread));
    assert_eq!(blocks_by_thread(&replay(&[])), BTreeMap::from([(String::new(), 400.0)]));
}
