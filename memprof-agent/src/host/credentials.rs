//! What this program may do.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

/// Capabilities that memprof uses; the values are their bit numbers (`include/uapi/linux/capability.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Capability {
    /// Reading another user's `/proc/PID/maps`, attaching to its processes.
    SysPtrace = 19,
    /// All of the others, on old kernels the only way.
    SysAdmin = 21,
    /// Uprobes, reading kernel memory from probes.
    Perfmon = 38,
    /// Loading probes and maps.
    Bpf = 39,
    /// Opening `/proc/PID/map_files`.
    CheckpointRestore = 40,
}

impl Capability {
    /// The name by which it is granted.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
            Self::CheckpointRestore => "CAP_CHECKPOINT_RESTORE",
        }
    }
}

/// A set of capabilities, as `/proc/PID/status` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities(u64);

impl Capabilities {
    /// Those in effect for this program; none when they cannot be read.
    pub(crate) fn effective() -> Self {
        fs::read_to_string("/proc/self/status").map_or(Self(0), |status| Self::parse(&status))
    }

    /// Those that a status text says are in effect.
    pub(crate) fn parse(status: &str) -> Self {
        let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Self(bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether this capability or, as the kernel lets it stand in, `CAP_SYS_ADMIN` is in the set.
    pub(crate) fn allows(self, capability: Capability) -> bool {
        // CAP_SYS_ADMIN includes no right to look into other users' processes.
        self.has(capability) || (capability != Capability::SysPtrace && self.has(Capability::SysAdmin))
    }

    fn has(self, capability: Capability) -> bool {
        self.0 >> capability as u32 & 1 == 1
    }
}

/// A namespace of this program that decides what its pids and capabilities mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Process ids.
    Pid,
    /// User ids and capabilities.
    User,
}

impl Namespace {
    /// Whether this program is in the machine's first namespace of this kind, where pids are those that
    /// the kernel's events carry and capabilities count for the whole machine. Unknown is no.
    pub(crate) fn is_initial(self) -> bool {
        // Fixed by the kernel (`include/linux/proc_ns.h`: PROC_PID_INIT_INO, PROC_USER_INIT_INO).
        let (name, inode) = match self {
            Self::Pid => ("pid", 0xeffffffc),
            Self::User => ("user", 0xeffffffd),
        };
        fs::metadata(Path::new("/proc/self/ns").join(name)).is_ok_and(|metadata| metadata.ino() == inode)
    }
}

#[cfg(test)]
mod tests {
    use super::Capability::{Bpf, CheckpointRestore, Perfmon, SysAdmin, SysPtrace};
    use super::*;

    #[test]
    fn sets_are_read_from_the_status_text() {
        let of = |bits: &str| Capabilities::parse(&format!("Name:\tx\nCapPrm:\tffff\nCapEff:\t{bits}\n"));
        let all = of("000001ffffffffff");
        let none = of("0000000000000000");
        let admin = of("0000000000200000");
        let bpf = of("0000008000000000");
        for capability in [SysPtrace, SysAdmin, Perfmon, Bpf, CheckpointRestore] {
            assert!(all.allows(capability), "{}", capability.name());
            assert!(!none.allows(capability), "{}", capability.name());
            assert_eq!(admin.allows(capability), capability != SysPtrace);
            assert_eq!(bpf.allows(capability), capability == Bpf);
        }
        assert_eq!(Capabilities::parse("no such line"), Capabilities(0));
    }
}
