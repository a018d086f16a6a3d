//! Whether small allocations of a process can fail.
//!
//! Linux hands out address space that it has no memory for, unless a limit is set or the machine keeps
//! strict account. Then only requests that are larger than the machine fail, and these can be told by
//! their size.

use std::fs;

use super::proc_fs::{ProcessError, read_text};

/// Requests of at most this many bytes succeed in a process without limits: half of the machine's
/// memory. The kernel refuses what is larger than all of it.
pub(crate) fn surely_granted() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit)) / 2
}

/// Why smaller requests of this process can fail too, if they can.
///
/// # Errors
/// When there is no such process or it may not be looked at.
pub(crate) fn limit_of(pid: i32) -> Result<Option<String>, ProcessError> {
    if fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2") {
        return Ok(Some("this machine does not overcommit memory (vm.overcommit_memory is 2)".into()));
    }
    Ok(limit_in(&read_text(pid, "limits")?))
}

/// The limit in the text of `/proc/PID/limits` that makes allocations fail.
fn limit_in(limits: &str) -> Option<String> {
    ["Max address space", "Max data size"].into_iter().find_map(|name| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let soft = line.split_whitespace().next()?;
        (soft != "unlimited").then(|| format!("its {} is limited to {soft} bytes", name[4..].to_lowercase()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max data size             unlimited            unlimited            bytes
Max stack size            8388608              unlimited            bytes
Max address space         unlimited            unlimited            bytes
";

    #[test]
    fn limits_on_memory_are_found() {
        assert_eq!(limit_in(LIMITS), None);
        let limited = LIMITS.replace("space         unlimited ", "space         1073741824");
        let expected = "its address space is limited to 1073741824 bytes";
        assert_eq!(limit_in(&limited).as_deref(), Some(expected));
        let data = LIMITS.replace("size             unlimited", "size             4096     ");
        assert_eq!(limit_in(&data).as_deref(), Some("its data size is limited to 4096 bytes"));
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(surely_granted() > 1 << 26);
        assert!(limit_of(std::process::id().cast_signed()).is_ok());
    }
}
