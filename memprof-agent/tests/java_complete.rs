//! Stacks of Java programs are complete from the allocator to the thread's entry: programs of many kinds, on all
//! flags' defaults.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::agent::Recorder;
use support::jdk::{VERSIONS, compile_java, compile_java_with, compile_jni, java_home};
use support::program::Target;
use support::report::{Report, Site};
use support::{PATIENCE, exclusive, open_directory};

/// Stacks of a report by how they end.
struct Ends(BTreeMap<String, (u64, Vec<Site>)>);

impl Ends {
    fn of(report: &Report) -> Self {
        let mut ends: BTreeMap<String, (u64, Vec<Site>)> = BTreeMap::new();
        for site in report.sites() {
            let (samples, sites) = ends.entry(site.end.clone()).or_default();
            *samples += site.samples;
            sites.push(site);
        }
        Self(ends)
    }

    fn all(&self) -> u64 {
        self.0.values().map(|(samples, _)| samples).sum()
    }

    fn complete(&self) -> u64 {
        self.0.get("complete").map_or(0, |(samples, _)| *samples)
    }

    /// At most one of `one_in` stacks may be cut off, of at least `least`, and complete ones must look it. Gives
    /// the result in words.
    fn assert_complete(&self, name: &str, one_in: u64, least: u64) -> String {
        let (all, cut) = (self.all(), self.all() - self.complete());
        assert!(all >= least, "{name}: only {all} stacks");
        assert!(cut * one_in <= all, "{name}: {cut} of {all} stacks are not complete{}", self.words());
        for site in self.0.get("complete").map_or(&[][..], |(_, sites)| sites) {
            site.assert_reaches_thread_entry();
            let marks = site.names().iter().filter(|name| **name == "[java]").count();
            assert_eq!(marks, 0, "{name}: a complete stack with unnamed Java frames: {:?}", site.names());
        }
        format!("{name}: {cut} of {all} stacks are not complete{}", self.words())
    }

    /// Each end that is not the right one, with one stack.
    fn words(&self) -> String {
        let cut = self.0.iter().filter(|(end, _)| *end != "complete");
        cut.fold(String::new(), |mut words, (end, (samples, sites))| {
            // Writing to a String cannot fail.
            let _ = write!(words, "\n    {samples} {end}, for example {:?}", sites[0].names());
            words
        })
    }
}

fn java_samples(report: &Report) -> u64 {
    let sites = report.sites().into_iter().filter(|site| site.frames.iter().any(|frame| frame.is_java()));
    sites.map(|site| site.samples).sum()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn stacks_of_a_program_of_many_kinds_are_complete() {
    let _alone = exclusive();
    let directory = open_directory();
    compile_java("mixed", directory.path());
    compile_jni("mixed/mixed_jni.c", &directory.path().join("libmixed.so"));
    for version in VERSIONS {
        let mut command = Command::new(java_home(version).join("bin/java"));
        command.arg("-cp").arg(directory.path()).arg("Mixed").arg(directory.path()).arg("1000");
        let mut target = Target::start(command.stderr(Stdio::null()));
        let recording = Recorder::new("4KiB").pid(&target).args(["--json", "--stack-size", "64KiB"]).start();
        target.work();
        let report = recording.report();
        target.finish();
        println!("{}", Ends::of(&report).assert_complete(&format!("Mixed on {version}"), 1000, 5000));
        let java = java_samples(&report);
        assert!(java >= 4000, "only {java} stacks of Java threads on {version}");
        for method in ["zip", "gzip", "files", "churn", "classes"] {
            assert!(
                report.sum(&format!("Mixed.{method}")).alloc_objects >= 100.0,
                "Mixed.{method} on {version}"
            );
        }
    }
}

/// Classes for the compiler to work on: each with generics, lambdas and an inner class.
fn write_sources(directory: &Path, count: u32) -> Vec<PathBuf> {
    let source = |i: u32| {
        let next = (i + 1) % count;
        format!(
            "package made;\nimport java.util.*;\nimport java.util.function.*;\nimport java.util.stream.*;\n\
             public class Made{i}<T extends Comparable<T>> {{\n\
             private final Map<String, List<T>> all = new TreeMap<>();\n\
             interface Visitor<R> {{ R visit(Made{next}<String> other); }}\n\
             class Inner {{ T value; Inner(T value) {{ this.value = value; }} }}\n\
             public List<T> sorted(Predicate<? super T> wanted) {{\n\
             return all.values().stream().flatMap(List::stream).filter(wanted).sorted()\
             .collect(Collectors.toList());\n}}\n\
             public <R> R accept(Visitor<R> visitor, Made{next}<String> other) {{\n\
             Function<Integer, Supplier<R>> later = i -> () -> i > {i} ? visitor.visit(other) : null;\n\
             switch (all.size() % 3) {{ case 0: return later.apply(1).get(); \
             case 1: try {{ return later.apply(2).get(); }} finally {{ all.clear(); }} \
             default: throw new IllegalStateException(\"made {i}\"); }}\n}}\n}}\n"
        )
    };
    let write = |i| {
        let path = directory.join(format!("Made{i}.java"));
        fs::write(&path, source(i)).expect("cannot write a source");
        path
    };
    (0..count).map(write).collect()
}

/// A JVM that is recorded from its first instruction, starts cold and goes deep.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn stacks_of_a_compiler_are_complete() {
    let _alone = exclusive();
    let directory = open_directory();
    let sources = write_sources(directory.path(), 400);
    let mut recorder = Recorder::new("4KiB").args(["--json", "--stack-size", "64KiB", "--", "javac", "-d"]);
    recorder = recorder.args([directory.path()]).args(sources);
    let report = recorder.start().wait().report();
    assert!(directory.path().join("made/Made399$Inner.class").exists(), "javac has made nothing");
    println!("{}", Ends::of(&report).assert_complete("javac", 200, 5000));
    assert!(
        report.sum("com.sun.tools.javac.Main.main").alloc_objects >= 100.0,
        "no stacks from javac's main"
    );
}

/// The jars of Tomcat in their Debian package.
fn tomcat() -> String {
    let jars = fs::read_dir("/usr/share/java").expect("no Tomcat: run `cargo xtask setup`");
    let jars = jars.map(|jar| jar.expect("cannot read a directory").path());
    // Each is there under its plain name and with its version.
    let plain =
        |name: &str| name.starts_with("tomcat10-") && !name.contains(".jar.") && !name.contains("10.");
    let mut jars: Vec<String> = jars
        .filter(|jar| jar.file_name().and_then(|name| name.to_str()).is_some_and(plain))
        .map(|jar| jar.display().to_string())
        .collect();
    assert!(jars.len() >= 10, "no Tomcat: run `cargo xtask setup`");
    jars.sort();
    jars.join(":")
}

/// One request, which must be answered with a compressed page.
fn fetch(port: u16, bytes: u32) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server does not listen");
    stream.set_read_timeout(Some(PATIENCE)).expect("cannot set a time limit");
    let request = format!(
        "GET /page?bytes={bytes} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("the server does not read");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server does not answer");
    let head = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("gzip"), "a strange answer: {head}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn stacks_of_a_server_under_load_are_complete() {
    const CLIENTS: u32 = 4;
    const REQUESTS: u32 = 250;
    let _alone = exclusive();
    let directory = open_directory();
    let class_path = tomcat();
    compile_java_with(&class_path, "server", directory.path());
    let mut command = Command::new("java");
    command.arg("-cp").arg(format!("{}:{class_path}", directory.path().display())).arg("Server");
    command.arg(directory.path()).arg("/proc/self/exe").stderr(Stdio::null());
    let mut target = Target::start(&mut command);
    let port = u16::try_from(target.preface.value("port")).expect("a port number");
    let recording = Recorder::new("4KiB").pid(&target).args(["--json", "--stack-size", "64KiB"]).start();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || (0..REQUESTS).for_each(|i| fetch(port, 20_000 + 500 * (i + client))));
        }
    });
    let report = recording.report();
    target.work();
    target.finish();
    println!("{}", Ends::of(&report).assert_complete("Tomcat", 100, 5000));
    let requests = f64::from(CLIENTS * REQUESTS);
    for method in ["Server$Page.doGet", "java.util.zip.Deflater.init"] {
        let sum = report.sum(method);
        assert!(sum.alloc_objects >= 0.5 * requests, "{method}: {sum:?}");
    }
}
