//! The machine's and the user's side.

use std::path::Path;

use super::Check;
use crate::host::btf::{BtfError, KERNEL_BTF, KernelLayout};
use crate::host::credentials::{Capabilities, Capability, Namespace};
use crate::host::kernel::{KernelFacts, KernelVersion};

/// The ring buffer through which events travel, and the capabilities CAP_BPF and CAP_PERFMON.
const OLDEST_KERNEL: KernelVersion = KernelVersion::new(5, 8, 0);

/// All checks that concern no target.
pub(super) fn checks() -> Vec<Check> {
    let kernel = KernelFacts::read();
    let capabilities = Capabilities::effective();
    vec![
        machine(&kernel),
        version(&kernel),
        types(KernelLayout::read(Path::new(KERNEL_BTF))),
        uprobes(&kernel),
        lockdown(&kernel),
        probe_rights(capabilities, &kernel),
        process_rights(capabilities),
        namespaces(),
    ]
}

fn machine(kernel: &KernelFacts) -> Check {
    match kernel.machine.as_str() {
        "x86_64" => Check::ok("processor", "x86_64"),
        other => Check::fail("processor", other, "memprof runs on x86_64 only, so far"),
    }
}

fn version(kernel: &KernelFacts) -> Check {
    let release = kernel.release.clone();
    match kernel.version {
        Some(version) if version < OLDEST_KERNEL => {
            Check::fail("kernel", release, format!("use Linux {OLDEST_KERNEL} or later"))
        }
        Some(_) => Check::ok("kernel", release),
        None => Check::warn(
            "kernel",
            format!("{release}: not a version"),
            format!("must be {OLDEST_KERNEL} or later"),
        ),
    }
}

fn types(layout: Result<KernelLayout, BtfError>) -> Check {
    const CONSEQUENCE: &str = "recordings work, with larger stack copies, and stacks that other tracers' return \
                               probes have changed are cut off there";
    match layout {
        Ok(layout) if layout.missing.is_empty() => Check::ok("kernel types", KERNEL_BTF),
        Ok(layout) => {
            Check::warn("kernel types", format!("without {}", layout.missing.join(", ")), CONSEQUENCE)
        }
        Err(error) => Check::warn("kernel types", error.to_string(), CONSEQUENCE),
    }
}

fn uprobes(kernel: &KernelFacts) -> Check {
    match kernel.uprobe_event_type {
        Some(number) => Check::ok("uprobes", format!("event type {number}")),
        None => Check::fail(
            "uprobes",
            "no /sys/bus/event_source/devices/uprobe",
            "use a kernel with CONFIG_UPROBE_EVENTS; in a container, mount /sys",
        ),
    }
}

fn lockdown(kernel: &KernelFacts) -> Check {
    match kernel.lockdown.as_deref() {
        Some("confidentiality") => Check::fail(
            "lockdown",
            "confidentiality: probes may not read memory",
            "boot with lockdown=integrity or without lockdown",
        ),
        mode => Check::ok("lockdown", mode.unwrap_or("none")),
    }
}

fn probe_rights(capabilities: Capabilities, kernel: &KernelFacts) -> Check {
    let missing = missing(capabilities, &[Capability::Bpf, Capability::Perfmon]);
    if missing.is_empty() {
        return Check::ok("probe rights", "CAP_BPF and CAP_PERFMON in effect");
    }
    let setting = |value: Option<i64>| value.map_or("unknown".to_owned(), |value| value.to_string());
    let detail = format!(
        "{missing} not in effect (perf_event_paranoid {}, unprivileged_bpf_disabled {})",
        setting(kernel.perf_event_paranoid.map(i64::from)),
        setting(kernel.unprivileged_bpf_disabled.map(i64::from)),
    );
    Check::fail("probe rights", detail, format!("run as root, or grant {missing}"))
}

fn process_rights(capabilities: Capabilities) -> Check {
    let missing = missing(capabilities, &[Capability::SysPtrace, Capability::CheckpointRestore]);
    if missing.is_empty() {
        return Check::ok("process rights", "CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE in effect");
    }
    Check::warn(
        "process rights",
        format!("{missing} not in effect: only own processes, and no deleted or hidden files"),
        format!("run as root, or grant {missing}"),
    )
}

/// The names of those that are not in effect.
fn missing(capabilities: Capabilities, needed: &[Capability]) -> String {
    let missing: Vec<&str> =
        needed.iter().filter(|needed| !capabilities.allows(**needed)).map(|needed| needed.name()).collect();
    missing.join(" and ")
}

fn namespaces() -> Check {
    match (Namespace::Pid.is_initial(), Namespace::User.is_initial()) {
        (true, true) => Check::ok("namespaces", "the machine's own"),
        (false, _) => Check::fail(
            "namespaces",
            "own pid namespace: the kernel's process ids are not the ones seen here",
            "run on the host, or in a container with the host's pid namespace (docker --pid=host, hostPID: true)",
        ),
        (true, false) => Check::fail(
            "namespaces",
            "own user namespace: capabilities do not count for the machine",
            "run outside of rootless containers",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    fn facts() -> KernelFacts {
        KernelFacts {
            version: Some(KernelVersion::new(6, 1, 0)),
            release: "6.1.0-57-amd64".into(),
            machine: "x86_64".into(),
            uprobe_event_type: Some(8),
            lockdown: None,
            perf_event_paranoid: Some(3),
            unprivileged_bpf_disabled: Some(2),
        }
    }

    #[test]
    fn what_is_in_the_way_fails() {
        assert_eq!(machine(&facts()).status, Status::Ok);
        assert_eq!(machine(&KernelFacts { machine: "aarch64".into(), ..facts() }).status, Status::Fail);
        assert_eq!(version(&facts()).status, Status::Ok);
        let old = KernelFacts { version: Some(KernelVersion::new(5, 4, 0)), ..facts() };
        assert_eq!(version(&old).cure.as_deref(), Some("use Linux 5.8.0 or later"));
        assert_eq!(uprobes(&KernelFacts { uprobe_event_type: None, ..facts() }).status, Status::Fail);
        let locked = |mode: &str| KernelFacts { lockdown: Some(mode.into()), ..facts() };
        assert_eq!(lockdown(&locked("integrity")).status, Status::Ok);
        assert_eq!(lockdown(&locked("confidentiality")).status, Status::Fail);
    }

    #[test]
    fn missing_members_are_named() {
        let layout = KernelLayout {
            offsets: memprof_common::settings::KernelOffsets::NONE,
            missing: vec!["task_struct.utask", "return_instance.next"],
        };
        let check = types(Ok(layout));
        assert_eq!(check.status, Status::Warn);
        assert_eq!(check.detail, "without task_struct.utask, return_instance.next");
    }

    #[test]
    fn missing_rights_are_named() {
        let none = Capabilities::parse("CapEff:\t0000000000000000\n");
        let check = probe_rights(none, &facts());
        assert_eq!(check.cure.as_deref(), Some("run as root, or grant CAP_BPF and CAP_PERFMON"));
        assert!(check.detail.contains("perf_event_paranoid 3"), "{}", check.detail);
        let only_bpf = Capabilities::parse("CapEff:\t0000008000000000\n");
        assert_eq!(
            probe_rights(only_bpf, &facts()).cure.as_deref(),
            Some("run as root, or grant CAP_PERFMON")
        );
        assert_eq!(process_rights(none).status, Status::Warn);
        let all = Capabilities::parse("CapEff:\t000001ffffffffff\n");
        assert_eq!(probe_rights(all, &facts()).status, Status::Ok);
        assert_eq!(process_rights(all).status, Status::Ok);
    }
}
