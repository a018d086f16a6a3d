//! Several processes, and processes that become another one: fork, exec, equal addresses, a main thread
//! that ends first.

mod support;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use support::agent::Recorder;
use support::breakpoints::{Text, wait_for_breakpoints};
use support::program::{Program, Target, compile};
use support::{ATTACH_MODES, exclusive};

/// `personality` flag by which programs get the same addresses in every run.
const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x0004_0000;

/// A forked child shares the parent's addresses, not its blocks.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_forked_child_does_not_touch_the_parents_numbers() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        let program = compile("fork_frees", &["fork_frees.c"]);
        let mut target = program.start(&[]);
        let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start();
        let truth = target.work();
        let report = recording.report();
        report.assert_no_losses();
        let sum = report.sum_of_process(target.pid(), "parent_block");
        assert_eq!((sum.inuse_bytes, sum.inuse_objects), (150_000.0, 1000.0), "in mode {mode}");
        let child = truth.value("child");
        assert_ne!(child, u64::from(target.pid()));
        assert!(
            report.sites_of("child_block").iter().all(|site| site.pid == child),
            "blocks of the child in the parent's numbers, mode {mode}"
        );
    }
}

/// Starts the program without address randomisation.
fn start_at_fixed_addresses(program: &Program, arguments: [&str; 3]) -> Target {
    let mut command = Command::new(&program.path);
    command.args(arguments);
    let fix_addresses = || {
        // SAFETY: personality takes a number and touches no memory; it may be called after fork.
        match unsafe { libc::personality(ADDR_NO_RANDOMIZE) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: the closure makes one system call and allocates nothing on its way to success.
    unsafe { command.pre_exec(fix_addresses) };
    Target::start(&mut command)
}

/// Two runs of one program whose blocks have the same addresses; one of them frees them all.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn equal_addresses_in_two_processes_stay_apart() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        let program = compile("same_addresses", &["same_addresses.c"]);
        let mut keeps = start_at_fixed_addresses(&program, ["1500", "200", "0"]);
        let mut frees = start_at_fixed_addresses(&program, ["1500", "200", "1"]);
        let mut other = start_at_fixed_addresses(&program, ["700", "300", "0"]);
        let recorder = Recorder::new("1").pid(&keeps).pid(&frees).pid(&other);
        let recording = recorder.args(["--json", "--attach-mode", mode]).start();
        let first: Vec<u64> =
            [&mut keeps, &mut frees, &mut other].map(|target| target.work().value("first")).to_vec();
        assert!(first.iter().all(|address| *address == first[0]), "the addresses differ: {first:?}");
        frees.work();
        let report = recording.report();
        report.assert_no_losses();
        let live = |target: &Target| {
            let sum = report.sum_of_process(target.pid(), "shared_site");
            (sum.inuse_bytes, sum.inuse_objects, sum.alloc_objects)
        };
        assert_eq!(live(&keeps), (300_000.0, 1500.0, 1500.0), "in mode {mode}");
        assert_eq!(live(&frees), (0.0, 0.0, 1500.0), "in mode {mode}");
        assert_eq!(live(&other), (210_000.0, 700.0, 700.0), "in mode {mode}");
        assert_eq!(report.0["processes"].as_array().map(Vec::len), Some(3));
    }
}

/// A process that replaces its program: the old blocks are gone, the new program's are exact.
fn replace_program(thread: &str, mode: &str) {
    let next = compile("leak", &["leak.c"]);
    let program = compile("exec_next", &["exec_next.c"]);
    let next_path = next.path.to_str().expect("a UTF-8 path");
    let mut target = program.start(&[thread, next_path, "800", "123"]);
    let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start();
    let probes = Text::of_libc(target.pid()).breakpoints().len();
    target.work();
    target.go();
    target.wait_until_ready();
    if thread == "thread" {
        // The kernel binds probes to the main thread that is no more: the agent sets them again.
        wait_for_breakpoints(target.pid(), |count| count == probes);
    }
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses();
    let old = report.sum("before_exec");
    assert_eq!((old.inuse_bytes, old.inuse_objects), (0.0, 0.0), "blocks of the old program, mode {mode}");
    assert_eq!(old.alloc_objects, 1000.0, "allocations of the old program, mode {mode}");
    report.assert_exact(&truth);
    for site in report.sites_of("leak_here") {
        site.assert_order(&["leak_here", "work", "main"]);
        site.assert_reaches_thread_entry();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn exec_resets_the_process() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        replace_program("leader", mode);
    }
}

/// The thread that calls exec takes the main thread's place and id.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn exec_from_another_thread_resets_the_process() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        replace_program("thread", mode);
    }
}

/// A process whose main thread has ended is still a process, although the kernel shows it as a zombie
/// without mappings. Perf events belong to the main thread and end with it, so that mode is left out.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_process_without_its_main_thread_is_exact() {
    let _alone = exclusive();
    for mode in ["session", "multi"] {
        let program = compile("leader_ends", &["leader_ends.c"]);
        let mut target = program.start(&[]);
        let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start();
        target.work();
        // The agent looks at the mappings again from time to time.
        std::thread::sleep(Duration::from_millis(1500));
        let truth = target.work();
        let report = recording.report();
        report.assert_no_losses();
        report.assert_exact(&truth);
        report.sites_of("after_leader").iter().for_each(|site| site.assert_reaches_thread_entry());
    }
}
