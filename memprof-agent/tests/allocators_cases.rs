//! Ways in which allocators have been miscounted or missed: calls inside of calls, C++ operators, own
//! functions, functions that align, allocators that nobody knows, that come late, or that are not there.

mod support;

use std::process::Command;
use std::time::Duration;

use support::agent::{Recorder, run};
use support::breakpoints::Text;
use support::jdk::compile_jni;
use support::program::{Program, Target, Truth, compile, compile_by, run_tool, source};
use support::report::Report;
use support::{ATTACH_MODES, exclusive};

const JEMALLOC: &str = "libjemalloc.so.2";
const TCMALLOC: &str = "libtcmalloc_minimal.so.4";
const MIMALLOC: &str = "libmimalloc.so.2.0";

/// Records one run of a program; its sites must be right and nothing lost but `allowed`. Also returns
/// the line by which the agent says where its probes are.
fn exact(mut target: Target, mode: &str, allowed: &[&str]) -> (Truth, Report, String) {
    let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start_without_waiting();
    exact_of(&mut target, recording, allowed)
}

fn exact_of(
    target: &mut Target,
    mut recording: support::agent::Recording,
    allowed: &[&str],
) -> (Truth, Report, String) {
    let line = recording.wait_for("memprof: recording");
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses_but(allowed);
    report.assert_exact(&truth);
    (truth, report, line)
}

/// The C library's own functions call each other: one block each, with the outermost call's size.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn musl_calloc_counts_once() {
    let _alone = exclusive();
    for flags in [&[][..], &["-static"]] {
        let program = compile_by("musl-gcc", "calloc_sites", &["calloc_sites.c"], flags);
        for mode in ATTACH_MODES {
            let (_, report, line) = exact(program.start(&[]), mode, &[]);
            assert!(line.contains("(musl)"), "{line}");
            let sum = report.sum("site_calloc");
            assert_eq!((sum.alloc_bytes, sum.alloc_objects), (100_000.0, 1000.0), "{flags:?}, mode {mode}");
            assert_eq!(report.number("/counters/nested"), 1000, "{flags:?}, mode {mode}");
        }
    }
}

/// Blocks that `malloc` never sees, because the operators have its code in them.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn operators_of_an_allocator_are_exact_and_may_throw() {
    let _alone = exclusive();
    let program = compile("operators", &["operators.cpp"]);
    for (library, name) in [(JEMALLOC, "(jemalloc)"), (TCMALLOC, "(tcmalloc)")] {
        let (truth, report, line) =
            exact(program.start_with(Some(library), &[]), "session", &["unsafe_returns"]);
        assert!(line.contains(name) && line.contains("(glibc)"), "{line}");
        assert_eq!(truth.value("thrown"), 100);
        assert_eq!(report.number("/losses/unsafe_returns"), 100);
        assert_eq!(report.sum("site_deleted").alloc_objects, 1000.0);
        assert_eq!(report.sum("site_deleted").alloc_bytes, 300_000.0);
        for site in report.sites_of("site_new") {
            site.assert_order(&["site_new", "main"]);
            site.assert_reaches_thread_entry();
        }
    }
}

/// Where every call of operator new would have its return replaced, or where any may fail, it is left
/// alone, and said so: the target lives on.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn operators_that_may_throw_are_left_alone() {
    let _alone = exclusive();
    let program = compile("operators", &["operators.cpp"]);
    let limited = ["2000000000"];
    for (mode, arguments) in [("multi", &[][..]), ("perf", &[]), ("session", &limited)] {
        let mut target = program.start_with(Some(JEMALLOC), arguments);
        let mut recording = Recorder::exact(&target).args(["--attach-mode", mode]).start_without_waiting();
        let line = recording.wait_for("memprof: recording");
        assert!(line.contains("calls of operator new in") && line.contains("--force"), "{line}");
        let truth = target.work();
        let report = recording.report();
        target.finish();
        let thrown = 100 + u64::from(!arguments.is_empty());
        assert_eq!(truth.value("thrown"), thrown, "an exception did not arrive, mode {mode}");
        let mallocx = report.sum("site_mallocx");
        assert_eq!((mallocx.inuse_bytes, mallocx.inuse_objects), (400_000.0, 1000.0), "mode {mode}");
        assert_eq!(report.sum("site_new").alloc_objects, 0.0, "mode {mode}");
    }
}

/// Probes of operator new that are in place are taken out of a program that is executed under a limit.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn operators_that_may_throw_after_exec_are_left_alone() {
    let _alone = exclusive();
    let limited = compile("operators", &["operators.cpp"]);
    // The limit is in KiB. The argument makes the program run into it.
    let script = format!("ulimit -v 1953125; exec {} 2000000000", limited.path.display());
    let program = compile("exec_next", &["exec_next.c"]);
    let mut target = program.start_with(Some(JEMALLOC), &["leader", "/bin/sh", "-c", &script]);
    let mut recording = Recorder::exact(&target).args(["--attach-mode", "session"]).start_without_waiting();
    let line = recording.wait_for("memprof: recording");
    assert!(!line.contains("calls of operator new"), "{line}");
    target.work();
    target.go();
    target.wait_until_ready();
    let line = recording.wait_for("memprof: process ");
    assert!(line.contains("calls of operator new in") && line.contains("not seen any more"), "{line}");
    let truth = target.work();
    let report = recording.report();
    target.finish();
    assert_eq!(truth.value("thrown"), 101, "an exception did not arrive");
    let mallocx = report.sum("site_mallocx");
    assert_eq!((mallocx.inuse_bytes, mallocx.inuse_objects), (400_000.0, 1000.0));
    assert_eq!(report.sum("site_new").alloc_objects, 0.0);
}

/// All functions that align, on every allocator.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn functions_that_align_are_exact() {
    let _alone = exclusive();
    let program = compile("aligned", &["aligned.c"]);
    // jemalloc has no pvalloc: glibc's would stand beside it.
    for (library, arguments) in [
        (None, &["pvalloc"][..]),
        (Some(JEMALLOC), &[]),
        (Some(TCMALLOC), &["pvalloc"]),
        (Some(MIMALLOC), &["pvalloc"]),
    ] {
        let (truth, ..) = exact(program.start_with(library, arguments), "auto", &[]);
        assert_eq!(truth.sites.len(), 4 + arguments.len());
        // mimalloc 2.0.9 does not align some small blocks.
        assert!(library == Some(MIMALLOC) || truth.value("misaligned") == 0, "{library:?}");
        assert!(truth.sites.values().all(|&(_, objects)| objects == 60 * 14), "{truth:?}");
    }
    for flags in [&[][..], &["-static"]] {
        let program = compile_by("musl-gcc", "aligned", &["aligned.c"], flags);
        exact(program.start(&[]), "auto", &[]);
    }
}

/// A library with an allocator that is in no table.
fn unknown_allocator() -> Program {
    compile_by(
        "cc",
        "bump.so",
        &["bump_allocator.c"],
        &["-shared", "-fPIC", "-fno-builtin", "-Wl,-Bsymbolic"],
    )
}

/// A replacement that nobody knows is recognised by what it exports.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_unknown_allocator_is_exact() {
    let _alone = exclusive();
    let library = unknown_allocator();
    let program = compile("aligned", &["aligned.c"]);
    for mode in ATTACH_MODES {
        let target = program.start_with(library.path.to_str(), &[]);
        let (_, _, line) = exact(target, mode, &[]);
        assert!(line.contains("bump.so (an unknown allocator)"), "{line}");
    }
}

/// A library that is loaded while its process is watched brings its own allocator; its blocks keep their
/// names when it is gone.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_allocator_that_comes_late_is_exact() {
    let _alone = exclusive();
    let library = unknown_allocator();
    let program = compile("load_plugin", &["load_plugin.c"]);
    for mode in ATTACH_MODES {
        let mut target = program.start(&[library.path.to_str().expect("a UTF-8 path")]);
        let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start();
        target.work();
        Text::of(target.pid(), "bump.so").wait_for_breakpoints(|count| count >= 7);
        // The links that put them there may still be on their way.
        std::thread::sleep(Duration::from_millis(200));
        let truth = target.work();
        target.work();
        std::thread::sleep(Duration::from_millis(1500));
        let report = recording.report();
        target.finish();
        report.assert_no_losses();
        report.assert_exact(&truth);
        for site in report.sites_of("plugin_block") {
            site.assert_order(&["plugin_block", "main"]);
        }
    }
}

/// The new program has another allocator, linked into it.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn exec_into_another_allocator_is_exact() {
    let _alone = exclusive();
    let next = compile_by("musl-gcc", "leak", &["leak.c"], &["-static"]);
    let program = compile("exec_next", &["exec_next.c"]);
    let mut target = program.start(&["leader", next.path.to_str().expect("a UTF-8 path"), "800", "123"]);
    let recording = Recorder::exact(&target).start();
    target.work();
    target.go();
    target.wait_until_ready();
    Text::of(target.pid(), "/leak").wait_for_breakpoints(|count| count >= 2);
    std::thread::sleep(Duration::from_millis(200));
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses();
    report.assert_exact(&truth);
    assert_eq!(report.sum("before_exec").inuse_bytes, 0.0);
}

/// No empty profile: what was looked at is said.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_process_without_a_visible_allocator_is_an_error() {
    let _alone = exclusive();
    let program = compile_by("musl-gcc", "leak", &["leak.c"], &["-static", "-s"]);
    let target = program.start(&["1", "1"]);
    let finished = run(["record", "--duration", "1s", "-p", &target.pid().to_string()]);
    let error = finished.assert_error(1);
    assert!(error.contains("maps no allocator that can be seen"), "{error}");
    assert!(error.contains("/leak (names no function: stripped)"), "{error}");
}

/// A running JVM on another allocator: attaching late does it no harm, and its frames have names.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_jvm_on_jemalloc_survives() {
    let _alone = exclusive();
    let directory = support::open_directory();
    run_tool(Command::new("javac").arg("-d").arg(directory.path()).arg(source("Work.java")));
    compile_jni("work_jni.c", &directory.path().join("libwork.so"));
    let mut java = Command::new("java");
    java.env("LD_PRELOAD", JEMALLOC).arg("-cp").arg(directory.path()).arg("Work").arg(directory.path());
    let mut target = Target::start(&mut java);
    let recording = Recorder::new("4KiB").pid(&target).args(["--json"]).start_without_waiting();
    let (_, report, line) = exact_of(&mut target, recording, &["stack_unreadable"]);
    assert!(line.contains("(jemalloc)"), "{line}");
    assert!(target.is_alive(), "the JVM did not survive");
    target.finish();
    for (inner, outer, method) in [
        ("deflateInit2_", "Java_java_util_zip_Deflater_init", "Work.zip"),
        ("keep_native", "Java_Work_keep", "Work.jni"),
    ] {
        let sites = report.sites_of(outer);
        assert!(sites.iter().any(|site| site.contains(inner)), "no stack of {inner}");
        sites
            .iter()
            .filter(|site| site.contains(inner))
            .for_each(|site| site.assert_order(&[inner, outer, method]));
    }
    let samples: u64 = report.sites().iter().map(|site| site.samples).sum();
    assert!(samples > 3000, "only {samples} samples");
}
