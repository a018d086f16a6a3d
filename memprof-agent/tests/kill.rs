//! The agent is killed without warning: the target must not notice, and no probe may stay behind.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::agent::Recorder;
use support::program::{Target, compile};
use support::{ATTACH_MODES, exclusive};

/// No offset.
const NONE: [usize; 0] = [];

/// The executable part of a mapped file: in memory and on disk.
struct Text {
    start: u64,
    length: usize,
    file_offset: u64,
    path: String,
}

impl Text {
    /// The C library's code in process `pid`.
    fn of_libc(pid: u32) -> Self {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("cannot read the maps");
        let line = maps
            .lines()
            .find(|line| line.contains(" r-xp ") && line.contains("/libc.so"))
            .unwrap_or_else(|| panic!("no C library in {maps}"));
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-').expect("a range");
        let hex = |text| u64::from_str_radix(text, 16).expect("a hexadecimal number");
        Self {
            start: hex(start),
            length: (hex(end) - hex(start)) as usize,
            file_offset: hex(fields[2]),
            path: fields[5].to_owned(),
        }
    }

    /// Offsets at which memory and file differ: where breakpoints are.
    fn breakpoints(&self, pid: u32) -> Vec<usize> {
        let read = |path: &str, offset: u64| {
            let mut bytes = vec![0; self.length];
            let file = File::open(path).unwrap_or_else(|error| panic!("cannot open {path}: {error}"));
            // The last page of the mapping may reach beyond the end of the file: zeros in both.
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) => panic!("cannot read {path}: {error}"),
                }
            }
            assert!(filled + 4096 > self.length, "only {filled} bytes of {path}");
            bytes
        };
        let memory = read(&format!("/proc/{pid}/mem"), self.start);
        let file = read(&self.path, self.file_offset);
        (0..self.length).filter(|&i| memory[i] != file[i]).collect()
    }
}

/// The best of some measurements of 200 ms: other work on the machine only makes them smaller.
fn speed(target: &mut Target, measurements: usize) -> u64 {
    (0..measurements).map(|_| target.work().value("pairs")).max().expect("at least one")
}

fn kill_agent_under_load(mode: &str) {
    let program = compile("spin", &["spin.c"]);
    let mut target = program.start(&[]);
    let text = Text::of_libc(target.pid());
    assert_eq!(text.breakpoints(target.pid()), NONE, "breakpoints before the recording");
    let before = speed(&mut target, 6);

    let recording = Recorder::new("64KiB").pid(&target).args(["--attach-mode", mode]).start();
    let during = speed(&mut target, 2);
    assert!(text.breakpoints(target.pid()).len() >= 8, "the probes cannot be seen: this test proves nothing");
    assert!(during < before, "the probes cost nothing: this test proves nothing");
    recording.signal(Signal::KILL);
    let finished = recording.wait();
    assert!(!finished.status.success(), "killed, yet it ended with {}", finished.status);

    let deadline = Instant::now() + Duration::from_secs(5);
    while !text.breakpoints(target.pid()).is_empty() {
        assert!(Instant::now() < deadline, "breakpoints left at {:x?}", text.breakpoints(target.pid()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = speed(&mut target, 6);
    assert!(target.is_alive());
    assert!(
        after as f64 >= 0.7 * before as f64,
        "{before} pairs before, {during} during, {after} after, mode {mode}"
    );
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
        assert!(text.breakpoints(target.pid()).len() >= 8, "no probes in mode {mode}");
        target.work();
        recording.report();
        assert_eq!(text.breakpoints(target.pid()), NONE, "breakpoints left in mode {mode}");
        target.finish();
    }
}
