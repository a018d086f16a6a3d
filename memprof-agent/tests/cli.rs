//! The command line on real processes: errors are one clear line and the right exit code, and whatever
//! ends a recording, its files are written.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::agent::{Finished, Recorder, run};
use support::program::{Program, Target, compile, run_tool};
use support::report::Report;
use support::{copy_of_agent, exclusive, open_directory};

fn leak(arguments: &[&str]) -> (Program, Target) {
    let program = compile("leak", &["leak.c"]);
    let target = program.start(arguments);
    (program, target)
}

/// A path in the program's own directory, as text.
fn beside(program: &Program, name: &str) -> String {
    program.directory.path().join(name).to_str().expect("a UTF-8 path").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// Arguments of a short recording of `pid`.
fn short(pid: &str) -> [&str; 9] {
    ["record", "-p", pid, "--duration", "2s", "--max-overhead", "none", "--sample-interval", "1"]
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_pid_that_does_not_exist_is_an_error() {
    let _alone = exclusive();
    let mut ended = Command::new("true").spawn().expect("cannot start true");
    let pid = ended.id().to_string();
    ended.wait().expect("cannot wait");
    let finished = run(short(&pid));
    let error = finished.assert_error(1);
    assert!(error.contains(&pid), "the error does not name the pid: {error}");
    assert_eq!(finished.stdout, "");
}

/// A recording that cannot start must not cost the result of the one before.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_failed_start_leaves_earlier_output_alone() {
    let _alone = exclusive();
    let mut ended = Command::new("true").spawn().expect("cannot start true");
    let pid = ended.id().to_string();
    ended.wait().expect("cannot wait");
    let directory = tempfile::tempdir().expect("no temporary directory");
    for name in ["earlier.svg", "earlier.mprec"] {
        let path = directory.path().join(name);
        std::fs::write(&path, "kept").expect("cannot write");
        let output = path.to_str().expect("a path in UTF-8");
        run(short(&pid).into_iter().chain(["-o", output])).assert_error(1);
        assert_eq!(std::fs::read_to_string(&path).expect("cannot read"), "kept", "{name}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_name_that_nobody_has_is_an_error() {
    let _alone = exclusive();
    let finished = run(["record", "--comm", "no-such-comm", "--duration", "1s"]);
    assert!(finished.assert_error(1).contains("no-such-comm"), "{}", finished.stderr);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn wrong_usage_exits_with_two() {
    let _alone = exclusive();
    for arguments in [
        &["record"][..],
        &["record", "-p", "x"],
        &["record", "-p", "1", "--sample-interval", "-3"],
        &["nonsense"],
    ] {
        let finished = run(arguments);
        assert_eq!(finished.status.code(), Some(2), "{arguments:?}: {}", finished.stderr);
    }
}

/// Runs a copy of the agent as the user nobody.
fn run_as_nobody(agent: &Path, arguments: &[&str]) -> Finished {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(agent).args(arguments);
    command.stdin(Stdio::null()).env_remove("RUST_LOG");
    command.output().expect("cannot run setpriv").into()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn without_permission_it_says_what_is_needed() {
    let _alone = exclusive();
    let directory = open_directory();
    let agent = copy_of_agent(&directory);
    let (program, target) = leak(&["10", "10"]);
    let pid = target.pid().to_string();
    let of_root = run_as_nobody(&agent, &short(&pid));
    // Its own process: /proc is open, but probes are not.
    let mut own = Command::new("setpriv");
    own.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&program.path)
        .args(["10", "10"]);
    let own = Target::start(&mut own);
    let of_nobody = run_as_nobody(&agent, &short(&own.pid().to_string()));
    for finished in [of_root, of_nobody] {
        let error = finished.assert_error(1);
        assert!(
            ["root", "CAP_", "sudo"].iter().any(|cure| error.contains(cure)),
            "the error does not name the cure: {error}"
        );
        assert_eq!(finished.stdout, "");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_process_that_exits_ends_the_recording_and_is_written() {
    let _alone = exclusive();
    let (program, mut target) = leak(&["400", "250"]);
    let svg = beside(&program, "exit.svg");
    let recording = Recorder::exact(&target).args(["-o", &svg]).start();
    let truth = target.work();
    let started = Instant::now();
    target.finish();
    let report = recording.wait().report();
    assert!(started.elapsed() < Duration::from_secs(15), "the recording went on for {:?}", started.elapsed());
    report.assert_no_losses();
    report.assert_exact(&truth);
    assert!(read(&svg).contains("leak_here"), "no name in the flame graph");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_killed_process_ends_the_recording_and_is_written() {
    let _alone = exclusive();
    let (program, mut target) = leak(&["400", "250"]);
    let folded = beside(&program, "killed.folded");
    let recording = Recorder::exact(&target).args(["-o", &folded]).start();
    let truth = target.work();
    drop(target);
    recording.wait().report().assert_exact(&truth);
    let line = read(&folded).lines().find(|line| line.contains("leak_here")).map(str::to_owned);
    assert!(line.expect("no line of the site").ends_with(" 100000"), "wrong weight");
}

/// A file system of a few pages. It is unmounted when this value goes.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let directory = open_directory();
        run_tool(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=8k", "memprof-test"])
                .arg(directory.path()),
        );
        Self(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run_tool(Command::new("umount").arg("--lazy").arg(self.0.path()));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_full_disk_is_one_clear_error() {
    let _alone = exclusive();
    for file in ["full.svg", "full.mprec"] {
        let disk = SmallDisk::mount();
        let path = disk.0.path().join(file);
        let path = path.to_str().expect("a UTF-8 path");
        let (_program, mut target) = leak(&["5000", "100"]);
        let recording = Recorder::exact(&target).args(["-o", path]).start();
        target.work();
        let finished = recording.stop();
        let error = finished.assert_error(1);
        assert!(error.to_lowercase().contains("no space left"), "{error}");
        assert!(error.contains(path), "the error does not name the file: {error}");
        assert!(target.is_alive());
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_unwritable_output_is_an_error_before_any_work() {
    let _alone = exclusive();
    let (_program, target) = leak(&["10", "10"]);
    for name in ["x.svg", "x.pb.gz", "x.folded", "x.mprec"] {
        let path = format!("/proc/no-such-directory/{name}");
        let started = Instant::now();
        let finished = Recorder::exact(&target).args(["-o", &path]).start_without_waiting().wait();
        let error = finished.assert_error(1);
        assert!(error.contains(&path), "the error does not name the file: {error}");
        assert!(started.elapsed() < Duration::from_secs(20), "it recorded before it looked at its output");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_unknown_kind_of_output_is_refused() {
    let _alone = exclusive();
    let (program, target) = leak(&["10", "10"]);
    let path = beside(&program, "profile.txt");
    let finished = Recorder::exact(&target).args(["-o", &path]).start_without_waiting().wait();
    assert!(!finished.status.success());
    assert!(matches!(finished.status.code(), Some(1 | 2)), "it ended with {}", finished.status);
    assert!(finished.stderr.contains("svg"), "the known kinds are not named: {}", finished.stderr);
    assert!(!Path::new(&path).exists());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_value_of_a_picture_can_be_chosen() {
    let _alone = exclusive();
    let (program, mut target) = leak(&["300", "70"]);
    let (svg, folded) = (beside(&program, "a.svg"), beside(&program, "a.folded"));
    let value = ["--value", "alloc_space", "-o", &svg, "-o", &folded];
    let all = Recorder::exact(&target).args(value).start();
    let live_svg = beside(&program, "live.svg");
    let live = Recorder::exact(&target).args(["-o", &live_svg]).start();
    target.work();
    all.report();
    live.report();
    assert!(read(&svg).contains("churn_here") && read(&svg).contains("leak_here"));
    assert!(read(&live_svg).contains("leak_here"));
    assert!(!read(&live_svg).contains("churn_here"), "freed blocks in a picture of live ones");
    let weight = |function: &str| {
        let text = read(&folded);
        let lines = text.lines().filter(|line| line.contains(function));
        let weight = |line: &str| line.rsplit(' ').next().and_then(|weight| weight.parse::<u64>().ok());
        lines.map(|line| weight(line).expect("a weight at the end of the line")).sum::<u64>()
    };
    assert_eq!((weight("churn_here"), weight("leak_here")), (21_000, 21_000));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn recordings_are_private_and_say_why() {
    let _alone = exclusive();
    let (program, mut target) = leak(&["10", "10"]);
    let paths = ["old.mprec", "new.mprec"].map(|name| beside(&program, name));
    // A file that is there already and that everybody may read must not stay so.
    fs::write(&paths[0], "old").expect("cannot write");
    fs::set_permissions(&paths[0], fs::Permissions::from_mode(0o666)).expect("cannot set the mode");
    for path in &paths {
        let recording = Recorder::exact(&target).args(["-o", path]).start();
        target.work();
        let finished = recording.stop();
        finished.assert_success();
        let mode = fs::metadata(path).expect("no recording").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "mode of {path}");
        assert!(finished.stderr.contains("stack"), "no word about the stack contents: {}", finished.stderr);
        target = program.start(&["10", "10"]);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_closed_pipe_is_no_error() {
    let _alone = exclusive();
    for json in [&["--json"][..], &[]] {
        let (_program, mut target) = leak(&["2000", "10"]);
        let (reader, writer) = std::io::pipe().expect("cannot make a pipe");
        drop(reader);
        let mut command = Command::new(support::agent::AGENT);
        command.args(short(&target.pid().to_string())).args(json).stdin(Stdio::null());
        let agent =
            command.stdout(writer).stderr(Stdio::piped()).spawn().expect("cannot start memprof-agent");
        // Long enough for the probes to be in place: the result must not be empty and short.
        std::thread::sleep(Duration::from_secs(1));
        target.work();
        let output = agent.wait_with_output().expect("cannot wait");
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_early_interrupt_still_writes() {
    let _alone = exclusive();
    for signal in [Signal::INT, Signal::TERM] {
        let (program, _target) = leak(&["10", "10"]);
        let names = ["early.svg", "early.pb.gz", "early.folded", "early.mprec"];
        let paths = names.map(|name| beside(&program, name));
        let outputs = paths.iter().flat_map(|path| ["-o", path.as_str()]);
        let recording = Recorder::exact(&_target).args(outputs).start();
        recording.signal(signal);
        let report = recording.wait().report();
        assert_eq!(report.number("/coverage/samples"), 0);
        assert_eq!(report.0["sites"].as_array().map(Vec::len), Some(0));
        for path in &paths {
            assert!(Path::new(path).exists(), "{path} was not written after {signal:?}");
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn processes_are_found_by_name() {
    let _alone = exclusive();
    let program = compile("memprof-by-name", &["leak.c"]);
    let mut targets = [program.start(&["30", "11"]), program.start(&["40", "11"])];
    let comm = ["--comm", "memprof-by-name", "--json"]; // 15 bytes: as long as the kernel keeps it
    let recording = Recorder::new("1").args(comm).start();
    targets.iter_mut().for_each(|target| drop(target.work()));
    let report = recording.report();
    for (target, objects) in targets.iter().zip([30.0, 40.0]) {
        assert_eq!(report.sum_of_process(target.pid(), "leak_here").inuse_objects, objects);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn young_blocks_can_be_left_out() {
    let _alone = exclusive();
    let program = compile("ages", &["ages.c"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).args(["--min-age", "1s"]).start();
    target.work();
    std::thread::sleep(Duration::from_millis(1500));
    target.work();
    let report = recording.report();
    assert_eq!(report.sum("old_block").inuse_bytes, 64_000.0);
    assert_eq!(report.sum("young_block").inuse_bytes, 0.0);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_table_names_the_biggest_site_first() {
    let _alone = exclusive();
    let program = compile("ages", &["ages.c"]);
    let mut target = program.start(&[]);
    let recording = Recorder::new("1").pid(&target).start();
    target.work();
    target.work();
    let table = recording.stop().assert_success().stdout.clone();
    let position = |name: &str| table.find(name).unwrap_or_else(|| panic!("no {name} in {table}"));
    assert!(position("young_block") < position("old_block"), "{table}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_doctor_examines_the_machine_and_a_process() {
    let _alone = exclusive();
    let (_program, target) = leak(&["10", "10"]);
    let pid = target.pid().to_string();
    run(["doctor"]).assert_success();
    let finished = run(["doctor", "-p", &pid]);
    finished.assert_success();
    assert!(finished.stdout.contains("libc.so"), "the target's allocator is not named: {}", finished.stdout);
    let modes = support::ATTACH_MODES;
    assert!(modes.iter().any(|mode| finished.stdout.contains(mode)), "no attach mode: {}", finished.stdout);
    Report::parse(&run(["doctor", "-p", &pid, "--json"]).assert_success().stdout);
    Report::parse(&run(["doctor", "--json"]).assert_success().stdout);
}
