//! Processes as `/proc` shows them.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use memprof_core::input::{ProcessInfo, ProcessKey};
use memprof_core::process::mappings::CodeFile;
use procfs::ProcError;
use procfs::process::Process;
use rustix::process::{Pid, PidfdFlags};
use thiserror::Error;

/// Why something about a process could not be learnt.
#[derive(Debug, Error)]
pub(crate) enum ProcessError {
    /// There is no such process (any more).
    #[error("no process with pid {0}")]
    NoSuchProcess(i32),
    /// No process has this command name.
    #[error("no process is called `{0}` (names are those of /proc/PID/comm)")]
    NoSuchComm(String),
    /// This user may not look at the process.
    #[error(
        "no permission to read {path}: run as root, or with the capabilities CAP_SYS_PTRACE and, for the files that a \
         process maps, CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN"
    )]
    Permission {
        /// What was read.
        path: PathBuf,
    },
    /// The path of a mapping leads to another file than the one that is mapped.
    #[error("{path} is no longer the file that process {pid} maps, and /proc/{pid}/map_files cannot be read")]
    Replaced {
        /// The process.
        pid: i32,
        /// The path as the process sees it.
        path: String,
    },
    /// Something else went wrong.
    #[error("cannot read {path}: {source}")]
    Io {
        /// What was read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ProcessError {
    fn new(pid: i32, path: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission { path },
            // ESRCH: the process ended between opening and reading.
            _ if source.raw_os_error() == Some(libc::ESRCH) => Self::NoSuchProcess(pid),
            io::ErrorKind::NotFound if !PathBuf::from(format!("/proc/{pid}/stat")).exists() => {
                Self::NoSuchProcess(pid)
            }
            _ => Self::Io { path, source },
        }
    }

    fn from_procfs(pid: i32, path: PathBuf, error: ProcError) -> Self {
        let source = match error {
            ProcError::PermissionDenied(_) => io::ErrorKind::PermissionDenied.into(),
            ProcError::NotFound(_) => return Self::NoSuchProcess(pid),
            ProcError::Io(source, _) => source,
            other => io::Error::other(other.to_string()),
        };
        Self::new(pid, path, source)
    }
}

fn proc_path(pid: i32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// What identifies and names the process.
///
/// # Errors
/// When there is no such process or it may not be looked at. The executable of a kernel thread is
/// empty.
pub(crate) fn process_info(pid: i32) -> Result<ProcessInfo, ProcessError> {
    let stat_path = proc_path(pid, "stat");
    let stat = Process::new(pid)
        .and_then(|process| process.stat())
        .map_err(|error| ProcessError::from_procfs(pid, stat_path, error))?;
    let executable = match fs::read_link(proc_path(pid, "exe")) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(ProcessError::new(pid, proc_path(pid, "exe"), error)),
    };
    Ok(ProcessInfo {
        key: ProcessKey { tgid: pid.cast_unsigned(), start_time: stat.starttime },
        comm: stat.comm,
        executable,
    })
}

/// The text of `/proc/PID/maps`. The main thread of a process may end before the others: then the
/// kernel shows the process's mappings by these only.
///
/// # Errors
/// When there is no such process or it may not be looked at. The text of a process that has ended but
/// was not reaped is empty.
pub(crate) fn maps_text(pid: i32) -> Result<String, ProcessError> {
    let text = read_text(pid, "maps")?;
    if !text.is_empty() {
        return Ok(text);
    }
    let of_threads = threads(pid)?.into_iter().map(|tid| read_text(pid, &format!("task/{tid}/maps")));
    Ok(of_threads.flatten().find(|text| !text.is_empty()).unwrap_or_default())
}

/// Pids of all processes with this command name, ascending, this program excluded. The kernel keeps
/// 15 bytes of a name, so only these are compared.
///
/// # Errors
/// When there is none.
pub(crate) fn find_by_comm(comm: &str) -> Result<Vec<i32>, ProcessError> {
    const KEPT: usize = 15;
    let wanted = &comm.as_bytes()[..comm.len().min(KEPT)];
    let processes = procfs::process::all_processes().map_err(|error| ProcessError::Io {
        path: "/proc".into(),
        source: io::Error::other(error.to_string()),
    })?;
    let own_pid = std::process::id().cast_signed();
    // Processes that end meanwhile are none of the wanted ones.
    let mut found: Vec<i32> = processes
        .filter_map(Result::ok)
        .map(|process| process.pid())
        .filter(|&pid| pid != own_pid)
        .filter(|&pid| fs::read(proc_path(pid, "comm")).is_ok_and(|name| name.trim_ascii_end() == wanted))
        .collect();
    found.sort_unstable();
    if found.is_empty() { Err(ProcessError::NoSuchComm(comm.to_owned())) } else { Ok(found) }
}

/// Thread ids of the process, ascending.
///
/// # Errors
/// When there is no such process.
pub(crate) fn threads(pid: i32) -> Result<Vec<i32>, ProcessError> {
    let path = proc_path(pid, "task");
    let entries = fs::read_dir(&path).map_err(|error| ProcessError::new(pid, path, error))?;
    let mut threads: Vec<i32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    Ok(threads)
}

/// A text file of `/proc/PID`.
///
/// # Errors
/// When there is no such process or it may not be looked at.
pub(crate) fn read_text(pid: i32, name: &str) -> Result<String, ProcessError> {
    let path = proc_path(pid, name);
    match fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Err(ProcessError::new(pid, path, error)),
    }
}

/// A file of `/proc/PID`, open.
///
/// # Errors
/// When there is no such process or it may not be looked at.
pub(crate) fn open(pid: i32, name: &str) -> Result<File, ProcessError> {
    let path = proc_path(pid, name);
    File::open(&path).map_err(|error| ProcessError::new(pid, path, error))
}

/// Opens the very file that a process maps: by its mapping, which also reaches deleted files and those
/// of other mount namespaces; where that is not allowed, by its path in the process's root.
///
/// # Errors
/// When the process is gone, may not be looked at, or the path now leads to another file.
pub(crate) fn open_mapping(pid: i32, mapping: &CodeFile) -> Result<File, ProcessError> {
    let CodeFile { start, end, .. } = *mapping;
    let by_mapping = proc_path(pid, &format!("map_files/{start:x}-{end:x}"));
    let refused = match File::open(&by_mapping) {
        Ok(file) => return Ok(file),
        Err(error) => ProcessError::new(pid, by_mapping, error),
    };
    if mapping.deleted || matches!(refused, ProcessError::NoSuchProcess(_)) {
        return Err(refused);
    }
    let by_path = proc_path(pid, &format!("root{}", mapping.path));
    let file = File::open(&by_path).map_err(|error| ProcessError::new(pid, by_path, error))?;
    if is_replaced(&file, mapping) {
        return Err(ProcessError::Replaced { pid, path: mapping.path.clone() });
    }
    Ok(file)
}

/// Whether `file` is another one than the mapped. An overlay shows its own inode numbers to one and
/// those of the layer below to the other, so there they prove nothing.
fn is_replaced(file: &File, mapping: &CodeFile) -> bool {
    const OVERLAYFS: u64 = 0x794c_7630;
    let is_overlay = rustix::fs::fstatfs(file).is_ok_and(|fs| fs.f_type.cast_unsigned() == OVERLAYFS);
    let is_same = file.metadata().is_ok_and(|metadata| metadata.ino() == mapping.file.inode);
    !is_same && !is_overlay
}

/// A file descriptor that becomes readable when the process ends.
///
/// # Errors
/// When there is no such process.
pub(crate) fn open_pidfd(pid: i32) -> Result<OwnedFd, ProcessError> {
    let raw = Pid::from_raw(pid).ok_or(ProcessError::NoSuchProcess(pid))?;
    rustix::process::pidfd_open(raw, PidfdFlags::empty())
        .map_err(|error| ProcessError::new(pid, proc_path(pid, "(pidfd)"), error.into()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use memprof_core::process::mappings::code_files;

    use super::*;

    fn own_pid() -> i32 {
        std::process::id().cast_signed()
    }

    #[test]
    fn own_process() {
        let info = process_info(own_pid()).unwrap();
        assert_eq!(info.key.tgid, std::process::id());
        assert!(info.key.start_time > 0);
        assert_eq!(info.executable, std::env::current_exe().unwrap().to_string_lossy());
        assert!(!threads(own_pid()).unwrap().is_empty());
        assert!(maps_text(own_pid()).unwrap().contains("libc.so.6"));
    }

    #[test]
    fn absent_processes_are_named() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        child.wait().unwrap();
        for error in [
            process_info(pid).unwrap_err(),
            maps_text(pid).unwrap_err(),
            threads(pid).unwrap_err(),
            open_pidfd(pid).unwrap_err(),
        ] {
            assert_eq!(error.to_string(), format!("no process with pid {pid}"));
        }
        let error = find_by_comm("no such command").unwrap_err().to_string();
        assert_eq!(error, "no process is called `no such command` (names are those of /proc/PID/comm)");
    }

    #[test]
    fn processes_are_found_by_comm() {
        let directory = tempfile::tempdir().unwrap();
        // Longer than the kernel keeps.
        let program = directory.path().join("a-long-command-name");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut children: Vec<_> =
            (0..2).map(|_| Command::new(&program).arg("60").spawn().unwrap()).collect();
        let mut pids: Vec<i32> = children.iter().map(|child| child.id().cast_signed()).collect();
        pids.sort_unstable();
        // A new program gets its name a moment after it is started.
        let mut found = Vec::new();
        for _ in 0..200 {
            found = find_by_comm("a-long-command-name").unwrap_or_default();
            if found.len() == pids.len() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, pids);
    }

    #[test]
    fn mapped_files_are_opened_by_mapping_or_path() {
        let files = code_files(&maps_text(own_pid()).unwrap());
        let libc = files.iter().find(|file| file.path.ends_with("/libc.so.6")).unwrap();
        let inode = open_mapping(own_pid(), libc).unwrap().metadata().unwrap().ino();
        assert_eq!(inode, libc.file.inode);

        // No such mapping: the path serves, unless it leads to another file or the file has none.
        let elsewhere = CodeFile { start: 0x1000, end: 0x2000, ..libc.clone() };
        assert_eq!(open_mapping(own_pid(), &elsewhere).unwrap().metadata().unwrap().ino(), inode);
        let replaced = CodeFile { path: "/bin/true".into(), ..elsewhere.clone() };
        assert!(matches!(open_mapping(own_pid(), &replaced), Err(ProcessError::Replaced { .. })));
        let deleted = CodeFile { deleted: true, ..elsewhere };
        assert!(matches!(open_mapping(own_pid(), &deleted), Err(ProcessError::Io { .. })));
    }

    #[test]
    fn a_pidfd_tells_of_the_end() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = open_pidfd(child.id().cast_signed()).unwrap();
        let is_readable = |pidfd: &OwnedFd| {
            let mut fds = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
        };
        assert!(!is_readable(&pidfd));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_readable(&pidfd));
    }
}
