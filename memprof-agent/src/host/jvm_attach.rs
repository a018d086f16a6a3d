//! Asking a JVM, as `jcmd` does (`src/jdk.attach/linux/classes/sun/tools/attach/VirtualMachineImpl.java`).
//!
//! The first time somebody asks, the JVM must be told to listen: a file `.attach_pidN` is put where it looks, and
//! SIGQUIT sent, upon which it makes the socket `.java_pidN`. Without the file, or where the JVM has been told not
//! to listen, SIGQUIT prints all threads or ends the process; so it is sent only to those that handle it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, fchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use thiserror::Error;

use super::proc_fs::{ProcessError, read_text};
use crate::target::Target;

/// How long a JVM may take to listen.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take for a piece of an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The longest answer: the details of a large JVM's memory take some hundred KiB.
const MAX_ANSWER: u64 = 16 << 20;

/// Why a JVM could not be asked.
#[derive(Debug, Error)]
pub(crate) enum AttachError {
    /// It was told not to listen.
    #[error("the JVM was started with DisableAttachMechanism: start it without to let it be asked")]
    Disabled,
    /// It does not handle the signal that tells it to listen.
    #[error("the JVM does not handle SIGQUIT (it starts or ends, or runs with -Xrs): try again later")]
    NotReady,
    /// It was told to listen and does not.
    #[error("the JVM made no socket within {} s: it may be stopped or very busy; try again later", PATIENCE.as_secs())]
    Silent,
    /// It answered with an error.
    #[error("the JVM refused `{command}`: {answer}")]
    Refused {
        /// What was asked.
        command: String,
        /// The first line of its answer.
        answer: String,
    },
    /// The process could not be looked at.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Something else went wrong.
    #[error("{operation}: {source}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn while_(operation: &'static str) -> impl Fn(io::Error) -> AttachError {
    move |source| AttachError::Io { operation, source }
}

/// A JVM that listens.
pub(crate) struct AttachedJvm {
    socket: PathBuf,
    credentials: Credentials,
}

/// Whom the JVM runs as, and what its namespace calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Credentials {
    user: u32,
    group: u32,
    inner_pid: i32,
}

impl AttachedJvm {
    /// Makes the JVM listen if it does not yet.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub(crate) fn new(target: &Target) -> Result<Self, AttachError> {
        let pid = target.tgid().cast_signed();
        let status = read_text(pid, "status")?;
        let credentials =
            Credentials::parse(&status).unwrap_or(Credentials { user: 0, group: 0, inner_pid: pid });
        let temporary = PathBuf::from(format!("/proc/{pid}/root/tmp"));
        let socket = temporary.join(format!(".java_pid{}", credentials.inner_pid));
        if !is_socket(&socket) {
            refuse_unless_ready(pid, &status)?;
            let working = PathBuf::from(format!("/proc/{pid}/cwd"));
            let name = format!(".attach_pid{}", credentials.inner_pid);
            let _trigger = Trigger::create(&[&temporary, &working], &name, credentials)?;
            pidfd_send_signal(&target.pidfd, Signal::QUIT)
                .map_err(|error| while_("telling the JVM to listen")(error.into()))?;
            let deadline = Instant::now() + PATIENCE;
            while !is_socket(&socket) {
                if Instant::now() > deadline {
                    return Err(AttachError::Silent);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(Self { socket, credentials })
    }

    /// The answer to a command of `jcmd`.
    ///
    /// # Errors
    /// When it cannot be asked, or refuses.
    pub(crate) fn ask(&self, command: &str) -> Result<String, AttachError> {
        let mut stream = connect(&self.socket, self.credentials).map_err(while_("connecting to the JVM"))?;
        let asking = while_("asking the JVM");
        stream
            .set_read_timeout(Some(ANSWER))
            .and_then(|()| stream.set_write_timeout(Some(ANSWER)))
            .map_err(&asking)?;
        stream.write_all(format!("1\0jcmd\0{command}\0\0\0").as_bytes()).map_err(&asking)?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer).map_err(&asking)?;
        let answer = String::from_utf8_lossy(&answer);
        let (code, text) = answer.split_once('\n').unwrap_or((&answer, ""));
        if code.trim() != "0" {
            let answer = text.lines().find(|line| !line.is_empty()).unwrap_or("no reason given").to_owned();
            return Err(AttachError::Refused { command: command.to_owned(), answer });
        }
        Ok(text.to_owned())
    }
}

impl Credentials {
    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // Real, effective, saved, for files: the JVM compares with its effective ones.
        let effective = |name: &str| field(name)?.split_whitespace().nth(1)?.parse().ok();
        Some(Self {
            user: effective("Uid:")?,
            group: effective("Gid:")?,
            inner_pid: field("NSpid:")?.split_whitespace().last()?.parse().ok()?,
        })
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// Refuses a JVM that would print all threads, or end, upon SIGQUIT.
fn refuse_unless_ready(pid: i32, status: &str) -> Result<(), AttachError> {
    const FLAG: &str = "+DisableAttachMechanism";
    // Options come from the command line, the environment, and files that the JVM reads into its own records.
    let places = ["cmdline", "environ"].map(|name| read_text(pid, name).unwrap_or_default());
    if places.iter().any(|text| text.contains(FLAG)) || performance_data(pid).contains(FLAG) {
        return Err(AttachError::Disabled);
    }
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    if caught >> (Signal::QUIT.as_raw() - 1) & 1 == 0 { Err(AttachError::NotReady) } else { Ok(()) }
}

/// What the JVM keeps in its mapped file of performance data, as text.
fn performance_data(pid: i32) -> String {
    let maps = read_text(pid, "maps").unwrap_or_default();
    let path = maps.lines().find_map(|line| Some(&line[line.find("/tmp/hsperfdata_")?..]));
    let bytes = path.and_then(|path| fs::read(format!("/proc/{pid}/root{path}")).ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The file that makes a JVM listen upon SIGQUIT. It is removed when this value goes.
struct Trigger(PathBuf);

impl Trigger {
    fn create(directories: &[&Path], name: &str, credentials: Credentials) -> Result<Self, AttachError> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for directory in directories {
            let path = directory.join(name);
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    let trigger = Self(path);
                    // The JVM believes only a file of its own user.
                    fchown(&file, Some(credentials.user), Some(credentials.group))
                        .map_err(while_("giving .attach_pid to the JVM's user"))?;
                    return Ok(trigger);
                }
                Err(error) => last = error,
            }
        }
        Err(while_("creating .attach_pid in the JVM's /tmp or working directory")(last))
    }
}

impl Drop for Trigger {
    fn drop(&mut self) {
        // Best effort: the JVM may have removed it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Connects as the JVM's user, for a JVM listens to its own user, and some to nobody else. Only a thread of its own
/// changes its user, and it reaches the socket by a descriptor: as that user it may not pass through `/proc/PID/root`.
fn connect(socket: &Path, credentials: Credentials) -> io::Result<UnixStream> {
    let handle: File =
        rustix::fs::open(socket, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?.into();
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let is_same = rustix::process::geteuid().as_raw() == credentials.user
        && rustix::process::getegid().as_raw() == credentials.group;
    if is_same {
        return UnixStream::connect(path);
    }
    let connecting = std::thread::spawn(move || {
        let (user, group) =
            (rustix::fs::Uid::from_raw(credentials.user), rustix::fs::Gid::from_raw(credentials.group));
        let (own_user, own_group) = (rustix::process::getuid(), rustix::process::getgid());
        set_thread_res_gid(own_group, group, own_group)?;
        set_thread_res_uid(own_user, user, own_user)?;
        UnixStream::connect(path)
    });
    connecting.join().unwrap_or_else(|_| Err(io::Error::other("the connecting thread ended")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_a_process_runs_as() {
        let status = "Name:\tjava\nUid:\t0\t65534\t0\t0\nGid:\t0\t7\t0\t0\nNSpid:\t4242\t1\n";
        let expected = Credentials { user: 65534, group: 7, inner_pid: 1 };
        assert_eq!(Credentials::parse(status), Some(expected));
        assert_eq!(Credentials::parse("Name:\tjava\n"), None);
    }

    #[test]
    fn a_process_that_does_not_handle_the_signal_is_left_alone() {
        let status = "SigCgt:\t0000000000000000\n";
        let refused = refuse_unless_ready(std::process::id().cast_signed(), status);
        assert!(matches!(refused, Err(AttachError::NotReady)));
        let status = "SigCgt:\t0000000000000004\n";
        assert!(refuse_unless_ready(std::process::id().cast_signed(), status).is_ok());
    }
}
