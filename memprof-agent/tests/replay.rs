//! A recording holds everything: replaying it gives the same bytes as the live run and as another replay,
//! without root. A damaged recording is an error or a marked loss, never a crash.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::agent::{Finished, Recorder};
use support::program::compile;
use support::report::Report;
use support::{copy_of_agent, exclusive, open_directory};

/// Kinds of output that a recording can be turned into.
const KINDS: [&str; 3] = ["svg", "pb.gz", "folded"];

/// The files `NAME.KIND` in a directory.
struct Outputs<'a> {
    directory: &'a Path,
    name: &'a str,
}

impl Outputs<'_> {
    fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.name))
    }

    fn arguments(&self) -> Vec<String> {
        let path = |kind| self.path(kind).to_str().expect("a UTF-8 path").to_owned();
        KINDS.iter().flat_map(|kind| ["-o".to_owned(), path(kind)]).collect()
    }

    fn assert_equal(&self, other: &Outputs) {
        for kind in KINDS {
            let read = |path: PathBuf| fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let (own, others) = (read(self.path(kind)), read(other.path(kind)));
            assert!(!own.is_empty());
            assert!(own == others, "{} and {} of {kind} differ", self.name, other.name);
        }
    }
}

/// Runs `replay` as the user nobody, who may only do what everybody may.
fn replay(agent: &Path, recording: &Path, arguments: &[String]) -> Finished {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(agent);
    command.arg("replay").arg(recording).args(arguments);
    command.stdin(Stdio::null()).env_remove("RUST_LOG");
    command.output().expect("cannot run setpriv").into()
}

/// Gives a file or directory to the user nobody.
fn give_away(path: &Path) {
    chown(path, Some(65534), Some(65534)).unwrap_or_else(|error| panic!("cannot chown {path:?}: {error}"));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn replays_equal_each_other_and_the_live_run() {
    let _alone = exclusive();
    let directory = open_directory();
    let agent = copy_of_agent(&directory);
    let program = compile("exact", &["exact_sites.c", "exact_new.cpp"]);
    let mut target = program.start(&[]);
    let mprec = directory.path().join("run.mprec");
    let live = Outputs { directory: directory.path(), name: "live" };
    let recorder = Recorder::exact(&target).args(live.arguments()).args([Path::new("-o"), &mprec]);
    let recording = recorder.start();
    let truth = target.work();
    let finished = recording.stop();
    let report = finished.report();
    report.assert_no_losses();
    report.assert_exact(&truth);
    target.finish();

    give_away(&mprec);
    give_away(directory.path());
    let json = ["--json".to_owned()];
    for name in ["first", "second"] {
        let outputs = Outputs { directory: directory.path(), name };
        let replayed = replay(&agent, &mprec, &[&outputs.arguments()[..], &json].concat());
        replayed.report().assert_exact(&truth);
        outputs.assert_equal(&live);
        assert_eq!(replayed.stdout, finished.stdout, "the JSON of {name} is not the live one");
    }
}

/// Another question than the live run's can be put to a recording.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_replay_can_show_another_value() {
    let _alone = exclusive();
    let directory = open_directory();
    let agent = copy_of_agent(&directory);
    let program = compile("leak", &["leak.c"]);
    let mut target = program.start(&["100", "50"]);
    let mprec = directory.path().join("run.mprec");
    let recording = Recorder::exact(&target).args([Path::new("-o"), &mprec]).start();
    target.work();
    recording.report();
    give_away(&mprec);
    give_away(directory.path());
    let folded = directory.path().join("all.folded");
    let arguments = ["-o", folded.to_str().expect("UTF-8"), "--value", "alloc_space"].map(str::to_owned);
    let table = replay(&agent, &mprec, &arguments).assert_success().stdout.clone();
    assert!(table.contains("leak_here"), "no table: {table}");
    let text = fs::read_to_string(&folded).expect("no output");
    assert!(text.contains("churn_here"), "{text}");
}

/// What is left of a recording whose writer was killed or whose disk was full is still of use: the replay
/// says what is missing, or gives one error line.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn damaged_recordings_are_handled() {
    let _alone = exclusive();
    let directory = open_directory();
    let agent = copy_of_agent(&directory);
    let program = compile("leak", &["leak.c"]);
    let mut target = program.start(&["2000", "50"]);
    let mprec = directory.path().join("run.mprec");
    let recording = Recorder::exact(&target).args([Path::new("-o"), &mprec]).start();
    target.work();
    recording.report();
    let whole = fs::read(&mprec).expect("no recording");
    let damaged = directory.path().join("damaged.mprec");
    let try_out = |bytes: &[u8]| {
        fs::write(&damaged, bytes).expect("cannot write");
        fs::set_permissions(&damaged, fs::Permissions::from_mode(0o644)).expect("cannot set the mode");
        let finished = replay(&agent, &damaged, &["--json".to_owned()]);
        match finished.status.code() {
            Some(0) => Some(Report::parse(&finished.stdout)),
            _ => {
                finished.assert_error(1);
                None
            }
        }
    };

    for cut in [0, 1, 5] {
        assert!(try_out(&whole[..cut]).is_none(), "{cut} bytes were taken for a recording");
    }
    for cut in [7, 20, 100].into_iter().chain((1..10).map(|tenth| whole.len() * tenth / 10)) {
        if let Some(report) = try_out(&whole[..cut]) {
            assert!(report.number("/losses/recording_lost") > 0, "cut at {cut}: nothing said");
            assert!(report.sum("leak_here").inuse_objects <= 2000.0);
        }
    }
    // Any byte may be wrong. The numbers may be too, but the replay must come to an end of its own.
    for step in 0..40 {
        let mut bytes = whole.clone();
        let position = step * (whole.len() - 1) / 39;
        bytes[position] ^= 0xff;
        try_out(&bytes);
    }
    assert!(try_out(b"this is not a recording, whatever its name says\n").is_none());
    assert!(try_out(&whole).is_some(), "the undamaged recording");
}
