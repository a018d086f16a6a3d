//! The side of one process.

use memprof_core::process::jvm::is_openj9;
use memprof_core::process::mappings::{CodeFile, code_files, parse};

use std::rc::Rc;

use super::Check;
use crate::bpf::sites::{FilePlan, HOT, single_stepped};
use crate::host::allocators::{AllocatorFile, AllocatorFiles, Found};
use crate::host::kernel::KernelVersion;
use crate::host::memory_limits::limit_of;
use crate::host::module_file::MappedFile;
use crate::host::proc_fs::{ProcessError, maps_text, open_mapping, process_info, read_text, threads};
use crate::host::seccomp::{ReturnProbes, SeccompUse, judge};

/// All checks of the process.
///
/// # Errors
/// When there is no such process or it may not be looked at.
pub(super) fn checks(pid: i32) -> Result<Vec<Check>, ProcessError> {
    let maps = maps_text(pid)?;
    let files = code_files(&maps);
    let found = AllocatorFiles::default().find(pid, &files);
    let mut checks = vec![process(pid)?, surroundings(pid), access(pid, &files)];
    checks.extend(allocators(&found));
    checks.extend(probes(&found));
    checks.extend(exceptions(pid, &found)?);
    checks.push(seccomp(SeccompUse::of(pid)?, KernelVersion::running()));
    checks.extend(jvm(&maps));
    Ok(checks)
}

fn process(pid: i32) -> Result<Check, ProcessError> {
    let info = process_info(pid)?;
    Ok(if info.executable.is_empty() {
        let detail = format!("{pid} {}: no program (a kernel thread, or it has ended)", info.comm);
        Check::fail("process", detail, "choose a running process")
    } else {
        let threads = threads(pid)?.len();
        Check::ok("process", format!("{pid} {} ({}), threads: {threads}", info.comm, info.executable))
    })
}

/// Whether it sees other processes and files than this program does.
fn surroundings(pid: i32) -> Check {
    let status = read_text(pid, "status").unwrap_or_default();
    let pids: Vec<&str> = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .map_or_else(Vec::new, |pids| pids.split_whitespace().collect());
    let same = |name: &str| {
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
        of(&pid.to_string()) == of("self")
    };
    let pids = match pids.as_slice() {
        [_, .., inner] => format!("pid {inner} in its own pid namespace"),
        _ => "pid namespace of this program".to_owned(),
    };
    let files =
        if same("mnt") { "mount namespace of this program" } else { "its own mount namespace (container)" };
    Check::ok("surroundings", format!("{pids}, {files}"))
}

/// Whether the files that it maps can be read.
fn access(pid: i32, files: &[CodeFile]) -> Check {
    let refused: Vec<String> = files
        .iter()
        .filter_map(|file| open_mapping(pid, file).err())
        .map(|error| error.to_string())
        .collect();
    match refused.first() {
        None => Check::ok("mapped code", format!("{} files, all readable", files.len())),
        Some(first) => Check::warn(
            "mapped code",
            format!("{} of {} files cannot be read: {first}", refused.len(), files.len()),
            "stacks end where they enter these files",
        ),
    }
}

/// The line by which glibc introduces itself, up to its version.
fn glibc_release(bytes: &[u8]) -> Option<String> {
    const START: &[u8] = b"GNU C Library (";
    let at = bytes.windows(START.len()).position(|window| window == START)?;
    let line = bytes[at..].split(|&byte| byte == b'\n' || byte == 0).next()?;
    Some(String::from_utf8_lossy(line).trim_end_matches('.').to_owned())
}

fn allocators(found: &Found) -> Vec<Check> {
    if found.files.is_empty() {
        return vec![Check::fail(
            "allocator",
            format!("none in {}", found.others.join(", ")),
            "use a program that has its symbol table (.symtab), or one whose allocator is a shared library",
        )];
    }
    found.files.iter().map(|file| allocator(file)).collect()
}

fn allocator(file: &AllocatorFile) -> Check {
    let release = MappedFile::new(&file.file).ok().and_then(|file| glibc_release(file.bytes()));
    let names = release.filter(|_| file.names() == "glibc").unwrap_or_else(|| file.names());
    Check::ok("allocator", format!("{}: {names}", file.mapping.path))
}

/// Where the probes would go.
fn probes(found: &Found) -> Option<Check> {
    let plans: Vec<FilePlan> = found.files.iter().map(|file| FilePlan::new(Rc::clone(file))).collect();
    let count: usize = plans.iter().map(|plan| plan.sites.len()).sum();
    if count == 0 {
        return None;
    }
    Some(match single_stepped(&plans) {
        None => Check::ok("probes", format!("{count} functions, none single-stepped")),
        Some((functions, first)) if HOT.contains(&first.symbol.as_str()) => Check::warn(
            "probes",
            format!("{count} functions; {functions} single-stepped at every call"),
            "recording slows the process down about ten times as much as usual",
        ),
        Some((functions, _)) => {
            Check::ok("probes", format!("{count} functions; only {functions} single-stepped"))
        }
    })
}

/// Whether return probes can sit in functions that throw.
fn exceptions(pid: i32, found: &Found) -> Result<Option<Check>, ProcessError> {
    let functions = found.files.iter().flat_map(|file| &file.examined.functions);
    if !functions.into_iter().any(|function| function.kind.may_throw()) {
        return Ok(None);
    }
    let cure = "record --force sees them, and an exception that operator new throws may then end the process";
    Ok(Some(match limit_of(pid)? {
        Some(limit) => Check::warn("operator new", format!("calls are left alone: {limit}"), cure),
        None => Check::ok("operator new", "is an allocator's own; seen by uprobe session only"),
    }))
}

fn seccomp(seccomp: SeccompUse, version: Option<KernelVersion>) -> Check {
    match judge(seccomp, version) {
        ReturnProbes::Safe => {
            let SeccompUse { threads, restricted } = seccomp;
            Check::ok("seccomp", format!("{restricted} of {threads} threads restricted, probes are safe"))
        }
        ReturnProbes::Unsafe { reason } => {
            Check::fail("seccomp", reason, "update the kernel, or accept the risk with record --force")
        }
    }
}

fn jvm(maps: &str) -> Option<Check> {
    let maps = parse(maps).ok()?;
    if let Some(openj9) = maps.iter().find(|mapping| is_openj9(mapping.path())) {
        let cure = "its native stacks are recorded; Java frames are told of HotSpot (OpenJDK 8 to 26)";
        return Some(Check::warn(
            "java",
            format!("Eclipse OpenJ9 ({}): stacks end at [java]", openj9.path()),
            cure,
        ));
    }
    let libjvm = maps.iter().find(|mapping| mapping.is_libjvm())?;
    Some(Check::ok("java", format!("HotSpot ({}): native and Java frames", libjvm.path())))
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn this_process() {
        let checks = checks(std::process::id().cast_signed()).unwrap();
        let of = |name: &str| checks.iter().find(|check| check.name == name);
        assert_eq!(of("process").unwrap().status, Status::Ok);
        let allocator = of("allocator").unwrap();
        assert!(allocator.detail.contains("libc.so.6: GNU C Library ("), "{allocator:?}");
        assert!(of("probes").unwrap().passes());
        assert_eq!(of("java"), None);
    }

    #[test]
    fn a_process_without_an_allocator_fails() {
        let found = Found { files: Vec::new(), others: vec!["/app (names no function: stripped)".into()] };
        let checks = allocators(&found);
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].status, Status::Fail);
        assert_eq!(checks[0].detail, "none in /app (names no function: stripped)");
        assert_eq!(probes(&found), None);
    }

    #[test]
    fn danger_fails() {
        let filtered = SeccompUse { threads: 2, restricted: 2 };
        assert_eq!(seccomp(filtered, Some(KernelVersion::new(6, 12, 1))).status, Status::Fail);
        assert_eq!(seccomp(filtered, Some(KernelVersion::new(6, 18, 0))).status, Status::Ok);
    }

    #[test]
    fn the_release_is_read_from_the_file() {
        let bytes = b"\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nCopyright\0";
        assert_eq!(
            glibc_release(bytes).as_deref(),
            Some("GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36")
        );
        assert_eq!(glibc_release(b"GNU C"), None);
    }
}
