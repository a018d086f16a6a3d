//! The agent is killed without warning: the target must not notice, and no probe may stay behind.

mod support;

use rustix::process::Signal;
use support::agent::Recorder;
use support::breakpoints::{NO_BREAKPOINTS, Text, wait_for_breakpoints};
use support::program::{Target, compile};
use support::{ATTACH_MODES, exclusive};

/// The best of some measurements of 200 ms: other work on the machine only makes them smaller.
fn speed(target: &mut Target, measurements: usize) -> u64 {
    (0..measurements).map(|_| target.work().value("pairs")).max().expect("at least one")
}

/// The best of up to 50 measurements, ending at the first that is `enough`. A neighbour on the machine can take much of
/// the CPU for seconds; a probe that is left behind takes it for good, and leaves a few hundredths.
fn speed_until(target: &mut Target, enough: f64) -> u64 {
    let mut best = 0;
    for _ in 0..50 {
        best = best.max(speed(target, 1));
        if best as f64 >= enough {
            break;
        }
    }
    best
}

fn kill_agent_under_load(mode: &str) {
    let program = compile("spin", &["spin.c"]);
    let mut target = program.start(&[]);
    let text = Text::of_libc(target.pid());
    assert_eq!(text.breakpoints(), NO_BREAKPOINTS, "breakpoints before the recording");
    let before = speed(&mut target, 6);

    let recording = Recorder::new("64KiB").pid(&target).args(["--attach-mode", mode]).start();
    let during = speed(&mut target, 2);
    assert!(text.breakpoints().len() >= 8, "the probes cannot be seen: this test proves nothing");
    recording.signal(Signal::KILL);
    let finished = recording.wait();
    assert!(!finished.status.success(), "killed, yet it ended with {}", finished.status);

    wait_for_breakpoints(target.pid(), |count| count == 0);
    // Far above what a probe leaves, and far below what a slower machine leaves.
    let free = 0.3 * before as f64;
    assert!(
        (during as f64) < 0.5 * free,
        "{before} pairs before, {during} during: too near to tell, mode {mode}"
    );
    let after = speed_until(&mut target, free);
    assert!(target.is_alive());
    assert!(after as f64 >= free, "{before} pairs before, {during} during, {after} after, mode {mode}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_killed_agent_leaves_no_trace_with_uprobe_sessions() {
    let _alone = exclusive();
    kill_agent_under_load(ATTACH_MODES[0]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_killed_agent_leaves_no_trace_with_uprobe_multi() {
    let _alone = exclusive();
    kill_agent_under_load(ATTACH_MODES[1]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_killed_agent_leaves_no_trace_with_perf_uprobes() {
    let _alone = exclusive();
    kill_agent_under_load(ATTACH_MODES[2]);
}

/// An agent that ends in good order leaves none either.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_ended_recording_leaves_no_probe() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        let program = compile("leak", &["leak.c"]);
        let mut target = program.start(&["100", "100"]);
        let text = Text::of_libc(target.pid());
        let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start();
        assert!(text.breakpoints().len() >= 8, "no probes in mode {mode}");
        target.work();
        recording.report();
        assert_eq!(text.breakpoints(), NO_BREAKPOINTS, "breakpoints left in mode {mode}");
        target.finish();
    }
}
