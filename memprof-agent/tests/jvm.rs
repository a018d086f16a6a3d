//! A running JVM without any flag: every stack is complete, from the allocator through native code and Java
//! to the thread's entry, and says which Java method called which native one.

mod support;

use std::path::Path;
use std::process::Command;

use support::agent::Recorder;
use support::jdk::compile_jni;
use support::program::{Target, run_tool, source};
use support::report::{Report, Site};
use support::{exclusive, open_directory};

fn build(directory: &Path) {
    run_tool(Command::new("javac").arg("-d").arg(directory).arg(source("Work.java")));
    compile_jni("work_jni.c", &directory.join("libwork.so"));
}

/// Every stack of a native method's function: these frames in this order, the last ones Java.
fn assert_order(report: &Report, functions: &[&str]) {
    let sites = report.sites_of(functions[0]);
    let native = functions.iter().find(|name| name.starts_with("Java_")).expect("a native method");
    let sites: Vec<Site> = sites.into_iter().filter(|site| site.contains(native)).collect();
    assert!(!sites.is_empty(), "no stack of {native}");
    for site in sites {
        site.assert_order(functions);
        site.assert_order(&[native, "java.lang.Thread.run", "call_stub"]);
    }
}

fn samples(sites: &[Site], choose: impl Fn(&Site) -> bool) -> u64 {
    sites.iter().filter(|site| choose(site)).map(|site| site.samples).sum()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn stacks_of_a_running_jvm_are_complete() {
    let _alone = exclusive();
    let directory = open_directory();
    build(directory.path());
    let mut command = Command::new("java");
    let mut target =
        Target::start(command.arg("-cp").arg(directory.path()).arg("Work").arg(directory.path()));
    let recording = Recorder::new("4KiB").pid(&target).args(["--json"]).start();
    let truth = target.work();
    let report = recording.report();
    target.finish();
    // Parts of a stack may be out of memory; how many may end early for it is checked below.
    report.assert_no_losses_but(&["stack_unreadable"]);

    // Blocks of at least one interval are exact, whoever allocates them.
    report.assert_exact(&truth);
    let sites = report.sites();
    let all = samples(&sites, |_| true);
    let complete = samples(&sites, |site| site.end == "complete");
    let java = samples(&sites, |site| site.end == "complete" && site.contains("java.lang.Thread.run"));
    assert!(java >= 3000, "only {java} samples of Java threads");
    let cut: Vec<_> = sites.iter().filter(|site| site.end != "complete").collect();
    assert!((all - complete) * 1000 <= all, "{complete} of {all} samples are complete: {cut:#?}");
    for site in sites.iter().filter(|site| site.end == "complete") {
        site.assert_reaches_thread_entry();
    }

    let deflater = ["java.util.zip.Deflater.init", "java.util.zip.Deflater.<init>", "Work.zip"];
    let inflater = ["java.util.zip.Inflater.init", "java.util.zip.Inflater.<init>", "Work.zip"];
    assert_order(&report, &[&["deflateInit2_", "Java_java_util_zip_Deflater_init"], &deflater[..]].concat());
    assert_order(&report, &[&["inflateInit2_", "Java_java_util_zip_Inflater_init"], &inflater[..]].concat());
    assert_order(&report, &["keep_native", "Java_Work_keep", "Work.keep", "Work.jni"]);
    assert_order(&report, &["churn_native", "Java_Work_churn", "Work.churn", "Work.jni"]);
    let direct =
        |site: &Site| site.contains("java.nio.ByteBuffer.allocateDirect") && site.contains("Work.nio");
    assert!(samples(&sites, direct) >= 100, "too few direct buffers");
}
