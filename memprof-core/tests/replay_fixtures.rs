//! Real recordings, replayed without root and without their programs: the output must stay as it was,
//! truncated stacks and losses included. `MEMPROF_UPDATE_FIXTURES=1` writes it anew, for review.
//!
//! - `sparse_stack.mprec`: six threads that allocate below large buffers which nobody has touched, so that
//!   the copies of their stacks have holes (`memprof-agent/tests/programs/sparse_stack.c` with six threads,
//!   every block recorded by `memprof-agent record --sample-interval 1`).

#![expect(clippy::disallowed_methods, reason = "the fixtures are files; the core itself reads none")]

use std::fs;
use std::path::{Path, PathBuf};

use memprof_core::encode::{folded, summary};
use memprof_core::profile::ValueKind;
use memprof_core::recording::RecordingReader;
use memprof_core::session::Session;

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
    let folded = folded::encode(&profile, session.symbols(), ValueKind::InuseSpace);
    format!("{}\n\n{folded}", summary::lines(&profile).join("\n"))
}
