//! What happens to processes while they are recorded: children of every kind, ids that are used again, libraries
//! that come and go.

mod support;

use std::process::Command;

use support::agent::Recorder;
use support::program::{Target, compile, run_tool, source};
use support::report::Report;
use support::{exclusive, open_directory};

/// The entry of a process in the report.
fn process(report: &Report, pid: u64) -> &serde_json::Value {
    let processes = report.0["processes"].as_array().expect("processes");
    processes.iter().find(|process| process["pid"] == pid).unwrap_or_else(|| panic!("no process {pid}"))
}

/// Live bytes and blocks, and blocks ever made, of a function in a process.
fn live(report: &Report, pid: u64, function: &str) -> (f64, f64, f64) {
    let sum = report.sum_of_process(u32::try_from(pid).expect("a pid"), function);
    (sum.inuse_bytes, sum.inuse_objects, sum.alloc_objects)
}

/// A child inherits blocks; what it does to them is its own affair. Its blocks and its child's are exact.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn children_are_recorded_beside_what_they_inherited() {
    let _alone = exclusive();
    for mode in support::ATTACH_MODES {
        let program = compile("children", &["children.c"]);
        let mut target = program.start(&[]);
        let parent = u64::from(target.pid());
        let recording = Recorder::exact(&target).args(["--children", "--attach-mode", mode]).start();
        let truth = target.work();
        let report = recording.report();
        report.assert_no_losses();
        let (child, grandchild) = (truth.value("child"), truth.value("grandchild"));
        assert_eq!(report.0["processes"].as_array().map(Vec::len), Some(3));
        assert_eq!(live(&report, parent, "parent_block"), (135_000.0, 450.0, 1000.0), "parent, mode {mode}");
        assert_eq!(live(&report, child, "child_block"), (499.0 * 70.0, 499.0, 500.0), "child, mode {mode}");
        assert_eq!(live(&report, child, "parent_block"), (0.0, 0.0, 0.0), "mode {mode}");
        assert_eq!(live(&report, grandchild, "grandchild_block"), (3600.0, 40.0, 40.0), "mode {mode}");
        let facts = process(&report, child);
        assert_eq!(facts["parent_pid"], parent);
        assert_eq!(
            (&facts["inherited_bytes"], &facts["inherited_objects"]),
            (&270_000.0.into(), &900.0.into())
        );
        let (forked, from) = (&facts["forked_seconds"], &facts["recorded_from_seconds"]);
        let (forked, from) = (forked.as_f64().expect("a time"), from.as_f64().expect("a time"));
        assert!(forked <= from && from < forked + 1.5, "probes were late: {facts}");
        let facts = process(&report, grandchild);
        assert_eq!((&facts["parent_pid"], &facts["inherited_objects"]), (&child.into(), &499.0.into()));
        assert!(process(&report, parent).get("parent_pid").is_none());
        report.sites_of("child_block").iter().for_each(|site| site.assert_reaches_thread_entry());
    }
}

/// Without `--children` they are counted, and the profile says so.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn children_that_are_not_recorded_are_counted() {
    let _alone = exclusive();
    let program = compile("children", &["children.c"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).start();
    target.work();
    let report = recording.report();
    report.assert_no_losses();
    assert_eq!(report.0["processes"].as_array().map(Vec::len), Some(1));
    assert_eq!(report.number("/children_not_recorded"), 1, "the grandchild's parent is not watched");
    assert_eq!(report.sum("parent_block").inuse_objects, 450.0);
}

/// A child of vfork works on its parent's memory. The kernel calls a process's probes for its own threads only,
/// except those of perf events: elsewhere what such a child allocates or frees is not seen.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_child_of_vfork_works_on_its_parents_blocks() {
    let _alone = exclusive();
    for arguments in [&[][..], &["/bin/true"]] {
        let program = compile("vforks", &["vforks.c"]);
        let mut target = program.start(arguments);
        let recording = Recorder::exact(&target).args(["--attach-mode", "perf"]).start();
        let truth = target.work();
        let report = recording.report();
        report.assert_no_losses();
        report.assert_exact(&truth);
        assert_eq!(report.number("/children_not_recorded"), 200);
        for site in report.sites() {
            assert_eq!(site.pid, u64::from(target.pid()));
            site.assert_reaches_thread_entry();
        }
    }
}

/// Children by posix_spawn, which execute a program at once: the parent is exact whether they are recorded or
/// not, and so are they.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn spawned_programs_are_recorded() {
    let _alone = exclusive();
    let program = compile("spawns", &["spawns.c"]);
    for mode in support::ATTACH_MODES {
        let mut target = program.start(&["5", "800000"]);
        let recording = Recorder::exact(&target).args(["--children", "--attach-mode", mode]).start();
        let truth = target.work();
        let report = recording.report();
        report.assert_no_losses();
        report.assert_exact(&truth);
        let spawned = report.sum("spawned_block");
        assert_eq!((spawned.inuse_bytes, spawned.inuse_objects), (10_000.0, 125.0), "mode {mode}");
        let processes = report.0["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 6);
        for child in &processes[1..] {
            assert_eq!((&child["comm"], &child["parent_pid"]), (&"spawns".into(), &target.pid().into()));
            assert_eq!(child["inherited_bytes"], 0.0, "it shares no memory: {child}");
        }
    }
}

/// Many short-lived children: none may harm the parent or its numbers.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_parent_of_many_children_is_exact() {
    let _alone = exclusive();
    let program = compile("spawns", &["spawns.c"]);
    for arguments in [&[][..], &["--children"], &["--children", "--mmap"]] {
        let mut target = program.start(&["150", "0"]);
        let recording = Recorder::exact(&target).args(arguments).start();
        let truth = target.work();
        assert!(target.is_alive());
        let report = recording.report();
        report.assert_no_losses();
        report.assert_exact(&truth);
        let children = if arguments.is_empty() { 0 } else { truth.value("children") };
        assert_eq!(report.number("/children_not_recorded"), truth.value("children") - children);
        assert_eq!(report.0["processes"].as_array().map(Vec::len), Some(1 + children as usize));
    }
}

/// A JVM that starts processes by `ProcessBuilder` lives on, and its numbers are right.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_jvm_that_starts_processes_is_exact() {
    let _alone = exclusive();
    let directory = open_directory();
    run_tool(Command::new("javac").arg("-d").arg(directory.path()).arg(source("Spawn.java")));
    for arguments in [&[][..], &["--children"]] {
        let mut target = Target::start(Command::new("java").arg("-cp").arg(directory.path()).arg("Spawn"));
        let recording = Recorder::new("4KiB").pid(&target).args(["--json"]).args(arguments).start();
        let truth = target.work();
        assert!(target.is_alive());
        let report = recording.report();
        report.assert_no_losses_but(&["stack_unreadable"]);
        let sites = report.sites();
        let direct = sites.iter().filter(|site| {
            site.pid == u64::from(target.pid())
                && site.names().iter().any(|name| name.contains("AllocateMemory"))
        });
        let live: f64 = direct.map(|site| site.sum.inuse_bytes).sum();
        let bytes = truth.value("bytes") as f64;
        assert!((bytes..bytes * 1.02).contains(&live), "{live} of {bytes} bytes in direct buffers");
        // The JVM starts a helper which starts the program.
        let told = report.0["processes"].as_array().map_or(0, Vec::len) as u64 - 1
            + report.number("/children_not_recorded");
        assert!(told >= truth.value("children"), "only {told} children");
    }
}

/// An id that comes to another process names two processes.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_reused_process_id_is_another_process() {
    let _alone = exclusive();
    let program = compile("same_id", &["same_id.c"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).args(["--children"]).start();
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses();
    let id = truth.value("id");
    let processes = report.0["processes"].as_array().expect("processes");
    let lives: Vec<_> = processes.iter().filter(|process| process["pid"] == id).collect();
    assert_eq!(lives.len(), 2, "{processes:?}");
    assert!(lives[0]["forked_seconds"].as_f64() < lives[1]["forked_seconds"].as_f64());
    assert_eq!(live(&report, id, "first_block"), (3000.0, 30.0, 30.0));
    assert_eq!(live(&report, id, "second_block"), (6000.0, 30.0, 30.0));
}

/// Blocks of a library that is no longer loaded keep its names, although another one has its place.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn unloaded_libraries_keep_their_names() {
    let _alone = exclusive();
    let program = compile("libraries", &["libraries.c"]);
    let libraries = ["site_of_first", "site_of_other"].map(|site| {
        let library = program.directory.path().join(format!("lib{site}.so"));
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-fomit-frame-pointer", "-Wall", "-shared", "-fPIC"]);
        run_tool(
            compiler.arg(format!("-DSITE_NAME={site}")).arg(source("library.c")).arg("-o").arg(&library),
        );
        library.to_str().expect("a UTF-8 path").to_owned()
    });
    let mut target = program.start(&libraries.each_ref().map(String::as_str));
    let recording = Recorder::exact(&target).start();
    let truth = target.work();
    assert_eq!(truth.value("address_0"), truth.value("address_1"), "the second has another place");
    let report = recording.report();
    report.assert_no_losses();
    for (site, library) in ["site_of_first", "site_of_other"].into_iter().zip(&libraries) {
        let sum = report.sum(site);
        assert_eq!((sum.inuse_bytes, sum.inuse_objects), (50_000.0, 50.0), "{site}");
        for found in report.sites_of(site) {
            found.assert_order(&[site, "allocate", "use_library", "main"]);
            let frame = found.position(site).expect("it is in the stack");
            assert_eq!(found.frames[frame].module.as_ref(), Some(library));
        }
    }
}
