//! One run of the program under the agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::cells::{Cell, Place};
use super::judge::{Score, judge};
use super::ledger::Ledger;
use crate::support::agent::Recorder;
use crate::support::jdk::{compile_java, compile_jni, java_home};
use crate::support::open_directory;
use crate::support::program::{Target, run_tool};

/// Blocks of at least this size are always seen: the program's are larger, and hardly any others.
const SAMPLE_INTERVAL: &str = "20000";

/// The program's classes and library.
pub(crate) struct Build {
    directory: tempfile::TempDir,
    /// Where recordings of runs with faults go.
    keep: Option<PathBuf>,
}

/// What came of a run.
pub(crate) struct Outcome {
    /// Its stacks.
    pub(crate) score: Score,
    /// What is wrong with stacks.
    pub(crate) faults: Vec<String>,
    /// What the agent lost.
    pub(crate) losses: Vec<String>,
    /// How long it took.
    pub(crate) time: Duration,
}

impl Build {
    /// Compiles everything.
    pub(crate) fn new(keep: Option<PathBuf>) -> Self {
        let directory = open_directory();
        let path = directory.path();
        fs::create_dir(path.join("boot")).expect("cannot create a directory");
        compile_java("truth", path);
        compile_java("truth/whitebox/jdk/test/whitebox", &path.join("boot"));
        compile_java("truth/whitebox/sun/hotspot", &path.join("boot"));
        compile_jni("truth/truth_jni.c", &path.join("libtruth.so"));
        Self { directory, keep }
    }

    /// Runs a cell with this many blocks.
    pub(crate) fn run(&self, cell: &Cell, blocks: u32) -> Outcome {
        let started = Instant::now();
        // Each run writes its own truth; a copy of the runtime, if there is one, lies there, too.
        let scratch = open_directory();
        let home = self.home(cell, scratch.path());
        let mut target = Target::start(&mut self.command(cell, &home, scratch.path(), blocks));
        if cell.mode.place == Place::Removed {
            fs::remove_dir_all(&home).expect("cannot remove a copy of Java");
        }
        let pid = if cell.mode.place == Place::Namespaces { only_child(target.pid()) } else { target.pid() };
        let recording = scratch.path().join("truth.mprec");
        let mut recorder = Recorder::new(SAMPLE_INTERVAL);
        recorder = recorder.args(["-p", &pid.to_string(), "--json", "--stack-size", "64KiB"]);
        if self.keep.is_some() {
            recorder = recorder.args([Path::new("-o"), &recording]);
        }
        let running = recorder.start();
        let truth = target.work();
        let finished = running.stop();
        let report = finished.report();
        target.finish();
        let ledger = Ledger::read(&scratch.path().join("truth.tsv"));
        assert_eq!(ledger.blocks(), truth.value("blocks"), "{cell}: the program miscounts");
        let (score, faults) = judge(&report, &ledger);
        if let Some(keep) = &self.keep
            && !faults.is_empty()
        {
            self.keep_files(cell, keep, scratch.path(), &finished.stdout);
        }
        Outcome { score, faults, losses: report.losses(), time: started.elapsed() }
    }

    fn home(&self, cell: &Cell, scratch: &Path) -> PathBuf {
        let home = java_home(cell.java);
        if cell.mode.place != Place::Removed {
            return home;
        }
        let copy = scratch.join("java");
        run_tool(Command::new("cp").arg("-a").arg(home).arg(&copy));
        copy
    }

    fn command(&self, cell: &Cell, home: &Path, scratch: &Path, blocks: u32) -> Command {
        let java = home.join("bin/java");
        let mut command = match cell.mode.place {
            Place::Here | Place::Removed => Command::new(java),
            Place::Namespaces => {
                let mut unshare = Command::new("unshare");
                unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]).arg(java);
                unshare
            }
        };
        // Warnings of the virtual machine would be taken for the program's words.
        command.arg("-XX:+DisplayVMOutputToStderr");
        let boot = self.directory.path().join("boot").display().to_string();
        command.args(cell.mode.flags.iter().map(|flag| flag.replace("{boot}", &boot)));
        command.arg("-cp").arg(self.directory.path()).arg("Truth").arg(self.directory.path());
        command.args([&blocks.to_string(), cell.mode.program]).arg(scratch.join("truth.tsv"));
        // Newer versions warn about `Unsafe`, and the white box about methods that it does not find.
        command.stderr(Stdio::null());
        command
    }

    fn keep_files(&self, cell: &Cell, keep: &Path, scratch: &Path, report: &str) {
        let name = cell.to_string().replace(' ', "-");
        let copy = |from: &str, to: &str| fs::copy(scratch.join(from), keep.join(format!("{name}.{to}")));
        copy("truth.mprec", "mprec").and(copy("truth.tsv", "tsv")).expect("cannot keep a recording");
        fs::write(keep.join(format!("{name}.json")), report).expect("cannot keep a report");
    }
}

fn only_child(pid: u32) -> u32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(path).expect("cannot read the children");
    children.trim().parse().unwrap_or_else(|_| panic!("not one child: {children:?}"))
}
