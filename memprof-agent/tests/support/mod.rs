//! What the tests on real processes share: building and steering test programs, running the agent, and
//! reading its report.
#![allow(dead_code, reason = "every test binary uses its own part of the support code")]

pub(crate) mod agent;
pub(crate) mod breakpoints;
pub(crate) mod jdk;
pub(crate) mod lines;
pub(crate) mod memory;
pub(crate) mod program;
pub(crate) mod report;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The attach modes that every exactness claim is checked with.
pub(crate) const ATTACH_MODES: [&str; 3] = ["session", "multi", "perf"];

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Keeps the tests of one binary apart: with interval 1 two of them would fill a small machine, and some
/// measure time. Fails at once when the test cannot work for lack of rights.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    assert!(rustix::process::geteuid().is_root(), "needs root: run the tests with `cargo xtask test`");
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of its own that every user may enter.
pub(crate) fn open_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::Builder::new()
        .prefix("memprof-test-")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .expect("cannot create a temporary directory");
    // The mode above is subject to the umask.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))
        .expect("cannot open the temporary directory to other users");
    directory
}

/// A copy of the agent that every user may run, wherever the build put the original.
pub(crate) fn copy_of_agent(directory: &tempfile::TempDir) -> PathBuf {
    let copy = directory.path().join("memprof-agent");
    std::fs::copy(agent::AGENT, &copy).expect("cannot copy the agent");
    copy
}
