//! Native memory that Java programs do not give back is found, and each leak names the Java method that made it:
//! on a JVM without any flag.

mod support;

use std::fs;
use std::process::{Command, Stdio};

use support::agent::Recorder;
use support::jdk::{compile_java, compile_jni, java_home};
use support::program::{Target, Truth};
use support::report::Report;
use support::{exclusive, open_directory};

/// A leak: where it shows, and by what it came about.
struct Leak {
    /// The Java method that is to blame.
    caller: &'static str,
    /// Frames in this order, innermost first.
    frames: &'static [&'static str],
    /// Large blocks, which are exact; small ones beside them are estimated.
    objects: u64,
    /// Bytes, at least and at most.
    bytes: (u64, u64),
}

fn leaks(truth: &Truth) -> [Leak; 4] {
    let value = |name| truth.value(name);
    let exactly = |bytes| (bytes, bytes);
    // Direct buffers are aligned to pages within their blocks.
    let buffers = |count: u64| (count * value("big"), count * (value("big") + 4096 + 16));
    [
        Leak {
            caller: "JavaLeaks.forgetInflaters",
            frames: &[
                "java.util.zip.Inflater.init",
                "java.util.zip.Inflater.<init>",
                "JavaLeaks.forgetInflaters",
            ],
            objects: value("inflaters"),
            // zlib's state; its window comes with the first data.
            bytes: (value("inflaters") * 4096, value("inflaters") * 10_000),
        },
        Leak {
            caller: "JavaLeaks.keepDirectBuffers",
            frames: &["java.nio.DirectByteBuffer.<init>", "java.nio.ByteBuffer.allocateDirect"],
            objects: value("buffers"),
            bytes: buffers(value("buffers")),
        },
        Leak {
            caller: "JavaLeaks.readOnce",
            frames: &["sun.nio.ch.Util.getTemporaryDirectBuffer", "sun.nio.ch.FileChannelImpl.read"],
            objects: value("readers"),
            bytes: buffers(value("readers")),
        },
        Leak {
            caller: "JavaLeaks.loseNativeBlocks",
            frames: &["lost_block", "Java_JavaLeaks_keep", "JavaLeaks.keep"],
            objects: value("native_bytes") / 8192,
            bytes: exactly(value("native_bytes")),
        },
    ]
}

impl Leak {
    fn check(&self, version: &str, report: &Report) {
        let sites: Vec<_> = report.sites_of(self.caller);
        // The class may have been loaded by this method, too: leaks are what is of the kind.
        let sites = sites.iter().filter(|site| self.frames.iter().all(|frame| site.contains(frame)));
        let (mut objects, mut bytes) = (0.0, 0.0);
        for site in sites {
            site.assert_order(self.frames);
            site.assert_order(&[self.frames[0], self.caller]);
            site.assert_reaches_thread_entry();
            let caller = &site.frames[site.position(self.caller).expect("it is one of its sites")];
            assert_eq!(caller.file.as_deref(), Some("JavaLeaks.java"), "Java {version}");
            assert!(caller.line.is_some(), "Java {version}: no line of {}", self.caller);
            objects += site.sum.inuse_objects;
            bytes += site.sum.inuse_bytes;
        }
        let expected = self.objects as f64;
        assert!(objects >= expected, "Java {version}: {objects} blocks of {}, not {expected}", self.caller);
        let (least, most) = self.bytes;
        let fits = (least as f64..=most as f64).contains(&bytes);
        assert!(fits, "Java {version}: {bytes} bytes of {}, not {least} to {most}", self.caller);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn leaks_of_java_programs_name_their_caller() {
    let _alone = exclusive();
    let directory = open_directory();
    compile_java("java_leaks", directory.path());
    compile_jni("java_leaks/java_leaks_jni.c", &directory.path().join("libjavaleaks.so"));
    let graph = directory.path().join("leaks.svg");
    for version in ["system", "11", "21", "25"] {
        let mut command = Command::new(java_home(version).join("bin/java"));
        command.arg("-cp").arg(directory.path()).arg("JavaLeaks").arg(directory.path());
        let mut target = Target::start(command.stderr(Stdio::null()));
        let recorder = Recorder::new("4KiB").pid(&target).args(["--json", "--stack-size", "64KiB", "-o"]);
        let recording = recorder.args([&graph]).start();
        let truth = target.work();
        let report = recording.report();
        target.finish();
        let graph = fs::read_to_string(&graph).expect("no flame graph");
        for leak in leaks(&truth) {
            leak.check(version, &report);
            assert!(graph.contains(leak.caller), "Java {version}: no {} in the flame graph", leak.caller);
        }
        check_compiler(version, &report);
    }
}

/// What the JVM's compiler takes is no Java method's: the stack is that of the compiler's own thread.
fn check_compiler(version: &str, report: &Report) {
    let sites = report.sites_of("C2Compiler::compile_method");
    let allocated: f64 = sites.iter().map(|site| site.sum.alloc_bytes).sum();
    assert!(allocated >= f64::from(1 << 20), "Java {version}: only {allocated} bytes of the compiler");
    for site in sites.iter().filter(|site| site.end == "complete") {
        site.assert_order(&["C2Compiler::compile_method", "CompileBroker::compiler_thread_loop"]);
        assert!(site.frames.iter().all(|frame| !frame.is_java()), "{:?}", site.names());
    }
}
