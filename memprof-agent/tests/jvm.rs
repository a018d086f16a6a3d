//! A running JVM without any flag: the native part of every stack is complete down to the first Java frame.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::agent::Recorder;
use support::program::{Target, run_tool, source};
use support::report::{Report, Site};
use support::{exclusive, open_directory};

/// The directory of the JDK whose `javac` is in the path.
fn java_home() -> PathBuf {
    let javac = run_tool(Command::new("sh").args(["-c", "readlink -f \"$(command -v javac)\""]));
    let javac = Path::new(javac.trim());
    let home = javac.parent().and_then(Path::parent);
    home.unwrap_or_else(|| panic!("no JDK: javac is at {javac:?}")).to_owned()
}

fn build(directory: &Path) {
    run_tool(Command::new("javac").arg("-d").arg(directory).arg(source("Work.java")));
    let include = java_home().join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fomit-frame-pointer", "-Wall", "-shared", "-fPIC"]);
    compiler.arg("-I").arg(&include).arg("-I").arg(include.join("linux"));
    run_tool(compiler.arg(source("work_jni.c")).arg("-o").arg(directory.join("libwork.so")));
}

/// Every site of `function`: native frames in this order, and then the first Java frame.
fn assert_native_part(report: &Report, functions: &[&str]) {
    let last = *functions.last().expect("at least one function");
    let sites: Vec<Site> = report.sites_of(last).into_iter().filter(|site| site.end == "java").collect();
    assert!(!sites.is_empty(), "no stack of {last} that ends in Java");
    for site in sites.iter().filter(|site| site.contains(functions[0])) {
        site.assert_order(functions);
        let names = site.names();
        assert_eq!(names[names.len() - 2..], [last, "[java]"], "{names:?}");
    }
    assert!(sites.iter().any(|site| site.contains(functions[0])), "no stack of {}", functions[0]);
}

fn samples(sites: &[Site], choose: impl Fn(&Site) -> bool) -> u64 {
    sites.iter().filter(|site| choose(site)).map(|site| site.samples).sum()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn native_stacks_of_a_running_jvm_are_complete() {
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
    let java = samples(&sites, |site| site.end == "java");
    let truncated = samples(&sites, |site| site.end.starts_with("truncated: "));
    let complete = samples(&sites, |site| site.end == "complete");
    assert_eq!(all, java + truncated + complete, "a stack with an unknown end");
    assert!(java >= 3000, "only {java} samples of Java threads");
    let cut: Vec<_> = sites.iter().filter(|site| site.end.starts_with("truncated: ")).collect();
    assert!(truncated * 1000 <= all, "{truncated} of {all} samples are truncated: {cut:#?}");
    for site in &sites {
        let java_frames = site.names().iter().filter(|name| **name == "[java]").count();
        assert_eq!(java_frames, usize::from(site.end == "java"), "{:?} ends as {}", site.names(), site.end);
        assert!(site.frames.len() >= 3 || site.end != "java", "a short stack: {:?}", site.names());
    }

    assert_native_part(&report, &["deflateInit2_", "Java_java_util_zip_Deflater_init"]);
    assert_native_part(&report, &["inflateInit2_", "Java_java_util_zip_Inflater_init"]);
    assert_native_part(&report, &["keep_native", "Java_Work_keep"]);
    assert_native_part(&report, &["churn_native", "Java_Work_churn"]);
    let direct: Vec<Site> = sites
        .into_iter()
        .filter(|site| site.names().iter().any(|name| name.contains("AllocateMemory")))
        .collect();
    assert!(samples(&direct, |site| site.end == "java") >= 100, "too few direct buffers: {direct:#?}");
}
