//! Real recordings, replayed without root and without their programs: the output must stay as it was,
//! truncated stacks and losses included. `MEMPROF_UPDATE_FIXTURES=1` writes it anew, for review.
//!
//! - `sparse_stack.mprec`: six threads that allocate below large buffers which nobody has touched, so that
//!   the copies of their stacks have holes (`memprof-agent/tests/programs/sparse_stack.c` with six threads,
//!   every block recorded by `memprof-agent record --sample-interval 1`).
//! - `java11.mprec`, `java17.mprec`, `java21.mprec`, `java25.mprec`: `java -cp DIRECTORY JavaLoad 40 0` (see
//!   `xtask/bench/JavaLoad.java`) of these releases on default flags, recorded for 3 s from its fifth second on with
//!   `--sample-interval 48KiB --stack-size 16KiB`, and made smaller by the example `shrink_recording` (150
//!   allocations). What was read of the JVM's memory is in them: an unwinder that reads other places than it did
//!   cannot replay them, and they must be made anew.

#![expect(clippy::disallowed_methods, reason = "the fixtures are files; the core itself reads none")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use memprof_core::encode::frame_name::Names;
use memprof_core::encode::{folded, summary};
use memprof_core::profile::{Profile, ValueKind};
use memprof_core::recording::RecordingReader;
use memprof_core::session::Session;
use memprof_core::symbols::Symbols;

#[test]
fn recordings_give_the_output_that_they_gave() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut recordings: Vec<PathBuf> = fs::read_dir(&directory)
        .expect("the fixtures")
        .map(|entry| entry.expect("a fixture").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "mprec"))
        .collect();
    recordings.sort();
    assert!(!recordings.is_empty(), "no recording in {}", directory.display());
    for recording in recordings {
        let output = replay(&recording);
        assert_eq!(output, replay(&recording), "{}: a second replay differs", recording.display());
        let golden = recording.with_extension("golden");
        if std::env::var_os("MEMPROF_UPDATE_FIXTURES").is_some() {
            fs::write(&golden, &output).expect("writing the golden output");
        }
        let expected = fs::read_to_string(&golden).expect("the golden output");
        assert_eq!(output, expected, "{}", recording.display());
    }
}

fn replay(recording: &Path) -> String {
    let bytes = fs::read(recording).expect("a recording");
    let mut reader = RecordingReader::new(bytes.as_slice()).expect("a recording");
    let mut session = Session::new();
    for input in reader.by_ref() {
        // Only a live event can ask for mappings.
        let _done = session.ingest(&input.expect("an undamaged recording"));
    }
    assert!(!reader.is_truncated());
    let profile = session.snapshot(0);
    let folded = |kind| folded::encode(&profile, session.symbols(), kind);
    format!(
        "{}\n\nin use:\n{}\nallocated:\n{}\nJava methods:\n{}",
        summary::lines(&profile).join("\n"),
        folded(ValueKind::InuseSpace),
        folded(ValueKind::AllocSpace),
        java_methods(&profile, session.symbols())
    )
}

/// Each Java method with its places, and how it was run.
fn java_methods(profile: &Profile, symbols: &Symbols) -> String {
    let names = Names::new(profile, symbols);
    let frames = profile.sites.iter().flat_map(|site| names.site(site));
    let methods = frames.filter(|frame| !frame.kinds.is_empty()).map(|frame| {
        let place = format!("{}:{}", frame.file.unwrap_or("?"), frame.line.unwrap_or(0));
        format!("{frame} ({place}) {}\n", frame.kinds.names().collect::<Vec<_>>().join(", "))
    });
    methods.collect::<BTreeSet<_>>().into_iter().collect()
}
