//! Containers, as far as namespaces and overlay mounts make them: one image in several of them, and the agent in
//! one itself.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::agent::{AGENT, Finished, Recorder};
use support::exclusive;
use support::program::{Program, Target, compile, run_tool};

/// The path of the C library in the image, as `ldd` prints it.
const LIBC: &str = "libc.so.6";

/// Copies a program and what it loads into `root`, each file to its path on this machine. Returns the path of
/// the C library.
fn make_image(root: &Path, program: &Program) -> String {
    let loaded = run_tool(Command::new("ldd").arg(&program.path));
    let files = loaded.split_ascii_whitespace().filter(|word| word.starts_with('/'));
    let mut libc = None;
    for file in files {
        let copy = root.join(&file[1..]);
        fs::create_dir_all(copy.parent().expect("a file in a directory")).expect("cannot make a directory");
        fs::copy(file, &copy).unwrap_or_else(|error| panic!("cannot copy {file}: {error}"));
        if file.ends_with(LIBC) {
            libc = Some(file.to_owned());
        }
    }
    for directory in ["proc", "old"] {
        fs::create_dir(root.join(directory)).expect("cannot make a directory");
    }
    fs::copy(&program.path, root.join("program")).expect("cannot copy the program");
    libc.unwrap_or_else(|| panic!("no {LIBC} in {loaded}"))
}

/// Starts the image's program in a mount and a pid namespace of its own, on an overlay of its own, after `prepare`
/// has been run in a shell whose directory is the new root. The mounts go with the process.
fn start_container(image: &Path, scratch: &Path, prepare: &str, arguments: [&str; 2]) -> Container {
    fs::create_dir(scratch).expect("cannot make a directory");
    let script = format!(
        "set -e; mount -t tmpfs scratch '{scratch}'; cd '{scratch}'; mkdir upper work root; \
         mount -t overlay overlay -o lowerdir='{image}',upperdir=upper,workdir=work root; cd root; \
         mount -t proc proc proc; {prepare}; pivot_root . old; exec /program {} {}",
        arguments[0],
        arguments[1],
        scratch = scratch.display(),
        image = image.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    let target = Target::start(command.args(["sh", "-c", &script]));
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let children = fs::read_to_string(&children).expect("cannot read the children");
    let pid = children.trim().parse().unwrap_or_else(|_| panic!("not one child: {children:?}"));
    Container { target, pid }
}

/// A program in namespaces of its own.
struct Container {
    target: Target,
    /// Its process id in the machine's namespace.
    pid: u32,
}

/// Four containers of one image; in one, the C library is a copy (changed metadata copy a file up). Each process
/// is counted once, and its frames have names.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn one_image_in_four_containers() {
    let _alone = exclusive();
    let program = compile("leak", &["leak.c"]);
    let image = program.directory.path().join("image");
    fs::create_dir(&image).expect("cannot make a directory");
    let libc = make_image(&image, &program);
    let copy_up = format!("touch .{libc}");
    for mode in support::ATTACH_MODES {
        let counts = ["500", "600", "700", "800"];
        let mut containers: Vec<Container> = counts
            .iter()
            .enumerate()
            .map(|(i, count)| {
                let scratch = program.directory.path().join(format!("{mode}-{i}"));
                let prepare = if i == 2 { copy_up.as_str() } else { "true" };
                start_container(&image, &scratch, prepare, [count, "123"])
            })
            .collect();
        let mut recorder = Recorder::new("1").args(["--json", "--attach-mode", mode]);
        for container in &containers {
            recorder = recorder.args(["-p", &container.pid.to_string()]);
        }
        let recording = recorder.start();
        for container in &mut containers {
            container.target.work();
        }
        let report = recording.report();
        report.assert_no_losses();
        for (container, count) in containers.iter().zip(counts) {
            let count: f64 = count.parse().expect("a number");
            let sum = report.sum_of_process(container.pid, "leak_here");
            let found = (sum.inuse_bytes, sum.inuse_objects, sum.alloc_objects);
            assert_eq!(found, (count * 123.0, count, count), "in mode {mode}");
        }
        for site in report.sites_of("leak_here") {
            site.assert_order(&["malloc", "leak_here", "work", "main"]);
            assert_eq!(site.frames[0].module.as_deref(), Some(libc.as_str()));
            site.assert_reaches_thread_entry();
        }
    }
}

/// An agent that cannot see the machine's process ids would write empty profiles: it refuses.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_agent_in_a_pid_namespace_refuses() {
    let _alone = exclusive();
    for arguments in [&["-p", "1"][..], &["--", "/bin/true"]] {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", AGENT, "record"]).args(arguments);
        let finished = Finished::from(command.output().expect("cannot run unshare"));
        let error = finished.assert_error(1);
        assert!(error.contains("hostPID"), "{error}");
        assert!(finished.stdout.is_empty(), "{}", finished.stdout);
    }
}
