//! A process that may make a few system calls only. Return probes use a system call of their own on newer
//! kernels; kernels 6.11 to 6.13 without the later fix let seccomp kill the process for it.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use support::agent::Recorder;
use support::program::compile;
use support::{ATTACH_MODES, exclusive};

/// Major and minor version of the running kernel.
fn kernel() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_str().expect("a UTF-8 release").to_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().expect("a version number"));
    (numbers.next().expect("a major version"), numbers.next().expect("a minor version"))
}

/// The filter bites: a call that it does not allow kills the program.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_filter_kills() {
    let _alone = exclusive();
    let program = compile("seccomp", &["seccomp.c"]);
    let mut command = Command::new(&program.path);
    let status = command.arg("forbidden").stdin(Stdio::null()).status().expect("cannot start the program");
    assert_eq!(status.signal(), Some(libc::SIGSYS));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_sealed_process_survives_with_right_numbers() {
    let _alone = exclusive();
    let may_refuse = ((6, 11)..(6, 14)).contains(&kernel());
    for mode in ATTACH_MODES {
        let program = compile("seccomp", &["seccomp.c"]);
        let mut target = program.start(&[]);
        let recorder = Recorder::exact(&target).args(["--attach-mode", mode]);
        if may_refuse {
            // Whether this kernel has the fix cannot be known by its number: a refusal is right, too.
            let finished = recorder.args(["--duration", "2s"]).start_without_waiting().wait();
            if !finished.status.success() {
                assert!(finished.assert_error(1).contains("seccomp"), "{}", finished.stderr);
            }
            target.work();
        } else {
            let recording = recorder.start();
            let truth = target.work();
            let report = recording.report();
            report.assert_no_losses();
            report.assert_exact(&truth);
            report.assert_all_complete();
        }
        target.finish();
    }
}
