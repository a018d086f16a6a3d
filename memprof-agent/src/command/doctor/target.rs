//! The side of one process.

use memprof_core::process::mappings::{CodeFile, code_files, parse};

use super::Check;
use crate::bpf::sites::probe_sites;
use crate::host::allocators::{AllocatorFile, allocator_files};
use crate::host::kernel::KernelVersion;
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
    let allocators = allocator_files(pid, &files);
    let mut checks = vec![process(pid)?, surroundings(pid), access(pid, &files)];
    checks.extend(allocator(&allocators));
    checks.extend(probes(&allocators));
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

fn allocator(found: &[AllocatorFile]) -> Vec<Check> {
    let known = found.iter().filter_map(|found| Some((found, found.allocator?)));
    let mut checks: Vec<Check> = known
        .map(|(found, allocator)| {
            let release = MappedFile::new(&found.file).ok().and_then(|file| glibc_release(file.bytes()));
            let release = release.as_deref().unwrap_or(allocator.name);
            Check::ok("allocator", format!("{}: {release}", found.mapping.path))
        })
        .collect();
    let others: Vec<&str> = found
        .iter()
        .filter(|found| found.allocator.is_none())
        .map(|found| found.mapping.path.as_str())
        .collect();
    if !others.is_empty() {
        let detail = format!("{} also offers malloc, and what it hands out is not seen", others.join(", "));
        let cure = "memprof probes glibc's allocator only, so far";
        checks.push(match checks.is_empty() {
            true => {
                let detail =
                    format!("{}: offers malloc, but is not glibc's shared library", others.join(", "));
                Check::fail("allocator", detail, cure)
            }
            false => Check::warn("other allocator", detail, cure),
        });
    }
    if checks.is_empty() {
        checks.push(Check::fail(
            "allocator",
            "no mapped file offers malloc",
            "memprof probes glibc's shared library only, so far",
        ));
    }
    checks
}

/// Where the probes would go.
fn probes(found: &[AllocatorFile]) -> Option<Check> {
    let (found, allocator) = found.iter().find_map(|found| Some((found, found.allocator?)))?;
    let file = MappedFile::new(&found.file).ok()?;
    let sites = match probe_sites(file.bytes(), allocator) {
        Ok(sites) => sites,
        Err(error) => return Some(Check::fail("probes", error.to_string(), "report this library")),
    };
    let stepped: Vec<&str> = sites.iter().filter(|site| !site.emulated).map(|site| site.symbol).collect();
    let count = sites.len();
    Some(if ["malloc", "free"].iter().any(|hot| stepped.contains(hot)) {
        Check::warn(
            "probes",
            format!("{count} functions; every call of {} is single-stepped", stepped.join(", ")),
            "recording slows the process down about ten times as much as usual",
        )
    } else if stepped.is_empty() {
        Check::ok("probes", format!("{count} functions, none single-stepped"))
    } else {
        Check::ok("probes", format!("{count} functions; only {} single-stepped", stepped.join(", ")))
    })
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
    let libjvm = maps.iter().find(|mapping| mapping.is_libjvm())?;
    Some(Check::ok("java", format!("HotSpot ({}): native frames, then [java]", libjvm.path())))
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
    fn what_no_probe_would_see_is_said() {
        let mapping = CodeFile {
            file: memprof_core::process::module::FileId { major: 0, minor: 0, inode: 1 },
            path: "/lib/other.so".into(),
            deleted: false,
            start: 0,
            end: 1,
        };
        let file = |allocator| AllocatorFile {
            mapping: mapping.clone(),
            file: tempfile::tempfile().unwrap(),
            allocator,
        };
        let other = || file(None);
        let glibc = || file(Some(&memprof_core::probe::functions::GLIBC));
        let statuses =
            |found: &[AllocatorFile]| allocator(found).iter().map(|check| check.status).collect::<Vec<_>>();
        assert_eq!(statuses(&[]), [Status::Fail]);
        assert_eq!(statuses(&[other()]), [Status::Fail]);
        assert_eq!(statuses(&[glibc()]), [Status::Ok]);
        assert_eq!(statuses(&[other(), glibc()]), [Status::Ok, Status::Warn]);
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
