//! Stacks that other tools cut off or bend: through C++ operator new, and through functions on which
//! another tracer has return probes.

mod support;

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use support::agent::Recorder;
use support::program::compile;
use support::{ATTACH_MODES, exclusive};

/// The C++ library keeps no frame pointers; the caller of operator new must be there all the same.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_caller_of_operator_new_is_named() {
    let _alone = exclusive();
    let program = compile("widgets", &["widgets.cpp"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).start();
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses();
    report.assert_exact(&truth);
    let sites = report.sites_of("leaky::Widget::create");
    assert!(!sites.is_empty());
    for site in sites {
        site.assert_order(&["operator new", "leaky::Widget::create", "main"]);
        let (inner, outer) = (site.position("operator new"), site.position("leaky::Widget::create"));
        assert_eq!(inner.map(|inner| inner + 1), outer, "something between: {:?}", site.names());
        site.assert_reaches_thread_entry();
    }
    for site in report.sites_of("leaky::fill") {
        site.assert_order(&["operator new", "leaky::fill", "main"]);
        site.assert_reaches_thread_entry();
    }
}

/// A return probe of another tracer, by the kernel's perf interface. It counts while it is held.
struct ReturnProbe(OwnedFd);

/// The head of the kernel's `perf_event_attr` (uapi/linux/perf_event.h), version 1 of it.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_and_breakpoint: [u32; 2],
    config1: u64,
    config2: u64,
}

const _: () = assert!(size_of::<PerfEventAttr>() == 72);

impl ReturnProbe {
    fn attach(pid: u32, file: &Path, offset: u64) -> Self {
        let source = "/sys/bus/event_source/devices/uprobe";
        let read = |name: &str| {
            let path = format!("{source}/{name}");
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
        };
        let bit = read("format/retprobe");
        let bit: u32 = bit.trim().trim_start_matches("config:").parse().expect("a bit number");
        let path = std::ffi::CString::new(file.as_os_str().as_bytes()).expect("a path without NUL");
        let attr = PerfEventAttr {
            kind: read("type").trim().parse().expect("a type number"),
            size: size_of::<PerfEventAttr>() as u32,
            config: 1 << bit,
            config1: path.as_ptr() as u64,
            config2: offset,
            ..PerfEventAttr::default()
        };
        // SAFETY: the structure and the path that it points to outlive the call; the kernel copies both.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, -1, -1, 0) };
        assert!(fd >= 0, "cannot attach a return probe: {}", std::io::Error::last_os_error());
        // SAFETY: the system call has just returned this descriptor; nobody else owns it.
        Self(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }

    /// How often the function has returned.
    fn hits(&self) -> u64 {
        let mut count = [0; 8];
        let read = rustix::io::read(&self.0, &mut count);
        assert_eq!(read, Ok(8), "cannot read the count of descriptor {}", self.0.as_raw_fd());
        u64::from_ne_bytes(count)
    }
}

/// Return probes replace return addresses on the stack by the kernel's trampoline, three deep here.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn stacks_pass_return_probes_of_another_tracer() {
    let _alone = exclusive();
    for mode in ATTACH_MODES {
        let program = compile("nested_calls", &["nested_calls.c"]);
        let mut target = program.start(&[]);
        let functions = ["inner", "middle", "outer"];
        let probes = functions
            .map(|function| ReturnProbe::attach(target.pid(), &program.path, target.preface.value(function)));
        let recording = Recorder::exact(&target).args(["--attach-mode", mode]).start();
        let truth = target.work();
        let report = recording.report();
        for probe in &probes {
            assert_eq!(probe.hits(), 300, "the other tracer was not at work");
        }
        report.assert_no_losses();
        report.assert_exact(&truth);
        let sites = report.sites_of("inner");
        assert_eq!(sites.len(), 1, "one stack, not several");
        let names = sites[0].names();
        let start = sites[0].position("inner").expect("it is one of its sites");
        assert_eq!(names[start..start + 4], ["inner", "middle", "outer", "main"], "in mode {mode}");
        sites[0].assert_reaches_thread_entry();
        drop(probes);
        target.finish();
    }
}

/// Pages of the stack that were never touched hold no return addresses: the stack goes on above them.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn stacks_with_untouched_pages_are_complete() {
    let _alone = exclusive();
    let program = compile("sparse_stack", &["sparse_stack.c"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).start();
    let truth = target.work();
    let report = recording.report();
    report.assert_exact(&truth);
    report.assert_no_losses_but(&["stack_unreadable"]);
    for site in report.sites_of("sparse_block") {
        site.assert_order(&["sparse_block", "one_hole", "two_holes", "fresh_thread"]);
        site.assert_reaches_thread_entry();
    }
    target.finish();
}
