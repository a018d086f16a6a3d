//! Whether a probe on a function's return can kill the target.
//!
//! Since Linux 6.11 the trampoline to which a probed function returns ends in a system call, and until a
//! later fix ("seccomp: passthrough uretprobe systemcall without filtering") that call went through the
//! target's own seccomp filter. Filters that list what is allowed, as those of containers and systemd
//! services do, answer it with an error or a signal, and the target dies.

use super::kernel::KernelVersion;
use super::proc_fs::{ProcessError, read_text, threads};

/// The first version whose return trampoline makes a system call.
const SYSTEM_CALL_SINCE: KernelVersion = KernelVersion::new(6, 11, 0);
/// The first version without the fault.
const FIXED_SINCE: KernelVersion = KernelVersion::new(6, 14, 0);
/// Older series that got the fix: from the first version to before the second.
const FIXED_SERIES: [(KernelVersion, KernelVersion); 2] = [
    (KernelVersion::new(6, 12, 14), KernelVersion::new(6, 13, 0)),
    (KernelVersion::new(6, 13, 3), KernelVersion::new(6, 14, 0)),
];

/// How many threads of a process are under seccomp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeccompUse {
    /// Threads looked at.
    pub(crate) threads: usize,
    /// Those in strict mode or with a filter.
    pub(crate) restricted: usize,
}

impl SeccompUse {
    /// Looks at all threads of a process. One that ends meanwhile counts as unrestricted.
    ///
    /// # Errors
    /// When there is no such process.
    pub(crate) fn of(pid: i32) -> Result<Self, ProcessError> {
        let threads = threads(pid)?;
        let restricted = threads
            .iter()
            .filter_map(|tid| read_text(pid, &format!("task/{tid}/status")).ok())
            .filter(|status| is_restricted(status))
            .count();
        Ok(Self { threads: threads.len(), restricted })
    }
}

/// The line is absent when the kernel has no seccomp.
fn is_restricted(status: &str) -> bool {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

/// Whether the return of a function may be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReturnProbes {
    /// They do no harm.
    Safe,
    /// They can kill the process.
    Unsafe {
        /// Why, and what to do.
        reason: String,
    },
}

/// Judges a process under the kernel of this `version`; `None` when that is not known, which is safe only
/// for a process without seccomp.
pub(crate) fn judge(seccomp: SeccompUse, version: Option<KernelVersion>) -> ReturnProbes {
    if seccomp.restricted == 0 || version.is_some_and(is_safe) {
        return ReturnProbes::Safe;
    }
    let kernel =
        version.map_or("this kernel (of unknown version)".to_owned(), |version| format!("kernel {version}"));
    ReturnProbes::Unsafe {
        reason: format!(
            "{} of {} threads run under seccomp, and {kernel} passes a system call of its own through their filters when \
             a probed function returns, which can kill the process; kernels from 6.14, 6.13.3 and 6.12.14 do not",
            seccomp.restricted, seccomp.threads
        ),
    }
}

fn is_safe(version: KernelVersion) -> bool {
    version < SYSTEM_CALL_SINCE
        || version >= FIXED_SINCE
        || FIXED_SERIES.iter().any(|(first, end)| (*first..*end).contains(&version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affected_versions() {
        let safe = |release| is_safe(KernelVersion::parse(release).unwrap());
        for release in ["5.10.0", "6.10.14", "6.12.14", "6.12.57+deb13", "6.13.3", "6.14.0", "6.18.44", "7.0"]
        {
            assert!(safe(release), "{release}");
        }
        for release in ["6.11.0", "6.11.11", "6.12.0", "6.12.13", "6.13.0", "6.13.2"] {
            assert!(!safe(release), "{release}");
        }
    }

    #[test]
    fn only_restricted_processes_are_in_danger() {
        let affected = Some(KernelVersion::new(6, 12, 5));
        let free = SeccompUse { threads: 3, restricted: 0 };
        let filtered = SeccompUse { threads: 3, restricted: 1 };
        assert_eq!(judge(free, affected), ReturnProbes::Safe);
        assert_eq!(judge(free, None), ReturnProbes::Safe);
        assert_eq!(judge(filtered, Some(KernelVersion::new(6, 14, 0))), ReturnProbes::Safe);
        assert!(matches!(judge(filtered, None), ReturnProbes::Unsafe { .. }));
        let ReturnProbes::Unsafe { reason } = judge(filtered, affected) else { panic!("affected") };
        assert!(reason.starts_with("1 of 3 threads run under seccomp, and kernel 6.12.5 passes"), "{reason}");
    }

    #[test]
    fn status_lines() {
        assert!(!is_restricted("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
        assert!(is_restricted("Seccomp:\t1\n"));
        assert!(is_restricted("Seccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!is_restricted("Name:\tx\n"));
    }

    #[test]
    fn every_thread_is_looked_at() {
        let (to_thread, wait) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            restrict_this_thread();
            ready.send(()).unwrap();
            wait.recv().unwrap();
        });
        is_ready.recv().unwrap();
        let found = SeccompUse::of(std::process::id().cast_signed()).unwrap();
        to_thread.send(()).unwrap();
        thread.join().unwrap();
        // All of them are when the tests run in a container.
        assert!(found.restricted >= 1);
        assert!(found.threads >= 2);
    }

    /// Installs a filter that allows everything.
    fn restrict_this_thread() {
        // BPF_RET | BPF_K, SECCOMP_RET_ALLOW
        let mut filter = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 }];
        let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
        // SAFETY: prctl reads the program during the call only, and the pointers are valid for it.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}
