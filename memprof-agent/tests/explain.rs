//! `explain`: the walk agrees with glibc, the account with the kernel, the forecast with what comes of it.

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::agent::run;
use support::jdk::{VERSIONS, compile_jni, java_home};
use support::program::{Target, compile, run_tool, source};
use support::{exclusive, open_directory};

fn explain(pid: u32, arguments: &[&str]) -> Value {
    let pid = pid.to_string();
    let finished = run([&["explain", "-p", &pid, "--json"], arguments].concat());
    finished.assert_success();
    serde_json::from_str(&finished.stdout).expect("one JSON document")
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

fn bytes_of(value: &Value, owner: &str) -> u64 {
    let lines = value["lines"].as_array().expect("lines");
    lines.iter().filter(|line| line["owner"] == owner).map(|line| number(line, "/bytes")).sum()
}

fn rss(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).expect("an RSS");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1024
}

/// Every resident page has an owner: what is left is at most this many thousandths.
fn assert_explained(value: &Value, permille: u64) {
    let unexplained = value["unexplained_bytes"].as_i64().expect("a number").unsigned_abs();
    assert!(
        unexplained * 1000 <= number(value, "/rss_bytes") * permille,
        "{unexplained} unexplained: {value}"
    );
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_walk_agrees_with_glibc_and_the_forecast_comes_true() {
    let _alone = exclusive();
    let program = compile("heap", &["heap.c"]);
    for arenas in ["16", "2", "1"] {
        let tunable = format!("glibc.malloc.arena_max={arenas}");
        let mut target = Target::start(Command::new(&program.path).env("GLIBC_TUNABLES", tunable));
        let truth = target.work();
        let value = explain(target.pid(), &[]);
        let total = |name: &str| number(&value, &format!("/heaps/total/{name}"));
        assert_eq!(total("system_bytes"), truth.value("system"), "{arenas} arenas");
        assert_eq!(total("fast/bytes"), truth.value("fast"));
        assert_eq!(total("fast/chunks"), truth.value("fast_chunks"));
        assert_eq!(number(&value, "/heaps/mmapped/chunks"), truth.value("mmapped_chunks"));
        assert_eq!(number(&value, "/heaps/mmapped/bytes"), truth.value("mmapped"));
        // mallinfo2 counts the top of each arena, and fastbins as free.
        let free = total("free/bytes") + total("top/bytes") + total("fast/bytes");
        assert!(free.abs_diff(truth.value("free")) * 1000 <= truth.value("free"), "{free}: {truth:?}");
        // Seven blocks of each of 32 sizes at least, for each thread.
        assert!(total("thread_caches/chunks") >= 8 * 32 * 7, "{value}");
        assert_eq!(number(&value, "/heaps/losses/lists_cut"), 0);
        assert_eq!(total("unknown/bytes"), 0);
        assert_eq!(number(&value, "/rss_bytes"), rss(target.pid()));
        assert_explained(&value, 1);
        let forecast = number(&value, "/forecast/trim_bytes");
        assert!(forecast > 4 << 20, "{forecast}");
        let before = rss(target.pid());
        target.work();
        let fell = before - rss(target.pid());
        assert!(fell.abs_diff(forecast) * 100 <= forecast, "{fell} instead of {forecast}");
    }
}

fn build(directory: &Path) {
    run_tool(Command::new("javac").args(["--release", "11", "-d"]).arg(directory).arg(source("Work.java")));
    compile_jni("work_jni.c", &directory.join("libwork.so"));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_rss_of_every_jvm_is_explained() {
    let _alone = exclusive();
    let directory = open_directory();
    build(directory.path());
    for version in VERSIONS {
        for tracking in ["off", "summary", "detail"] {
            let mut java = Command::new(java_home(version).join("bin/java"));
            java.arg(format!("-XX:NativeMemoryTracking={tracking}")).arg("-cp").arg(directory.path());
            java.arg(format!("-Djava.library.path={}", directory.path().display()))
                .arg("Work")
                .arg(directory.path());
            let target = Target::start(&mut java);
            let value = explain(target.pid(), &[]);
            assert_eq!(value["jvm"]["tracking"], tracking, "JDK {version}");
            assert_explained(&value, 10);
            let other = bytes_of(&value, "other_anonymous") * 100;
            let limit = if tracking == "detail" { 1 } else { 15 };
            assert!(other <= number(&value, "/rss_bytes") * limit, "JDK {version}, {tracking}: {value}");
            for owner in ["java_heap", "code_cache", "gc", "malloc", "library_code", "thread_stacks"] {
                assert!(bytes_of(&value, owner) > 0, "no {owner} with JDK {version}, {tracking}");
            }
            assert_eq!(bytes_of(&value, "malloc_jvm") > 0, tracking != "off", "JDK {version}");
            let unasked = explain(target.pid(), &["--no-attach"]);
            assert_eq!(unasked["jvm"], Value::Null);
            assert_explained(&unasked, 10);
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_cannot_be_explained_is_an_error() {
    let _alone = exclusive();
    let gone = run(["explain", "-p", "4194303"]);
    assert!(gone.assert_error(1).contains("no process with pid 4194303"));
    let kernel = run(["explain", "-p", "2"]);
    assert!(kernel.assert_error(1).contains("it is a kernel thread or has ended"));
    let program = compile("heap", &["heap.c"]);
    let target = program.start(&[]);
    let no_jvm = run(["trim", "-p", &target.pid().to_string()]);
    assert!(no_jvm.assert_error(1).contains("is no JVM"));
}
