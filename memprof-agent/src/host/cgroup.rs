//! The control group that limits a process's memory (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`).

use std::fs;
use std::path::{Path, PathBuf};

use memprof_core::rss::{Cgroup, CgroupVersion};

use super::proc_fs::read_text;

/// Limits above this are none: version 1 has a number for "none" of nearly 2^63.
const NO_LIMIT: u64 = 1 << 60;

/// The control group of a process; none when there is none with memory, or its files cannot be seen from here.
pub(crate) fn of(pid: i32) -> Option<Cgroup> {
    let memberships = read_text(pid, "cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let path = |is_wanted: fn(&str) -> bool| {
        memberships.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            is_wanted(controllers).then(|| path.to_owned())
        })
    };
    let of_v1 = path(|controllers| controllers.split(',').any(|name| name == "memory"))
        .and_then(|path| read(mount(&mounts, "cgroup", "memory")?, &path, CgroupVersion::V1));
    of_v1.or_else(|| read(mount(&mounts, "cgroup2", "")?, &path(str::is_empty)?, CgroupVersion::V2))
}

/// Where a hierarchy is mounted.
fn mount(mounts: &str, kind: &str, controller: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (directory, of_kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let has_controller = controller.is_empty() || options.split(',').any(|option| option == controller);
        (of_kind == kind && has_controller).then(|| PathBuf::from(directory))
    })
}

fn read(mount: PathBuf, path: &str, version: CgroupVersion) -> Option<Cgroup> {
    let (usage, limit, inactive) = match version {
        CgroupVersion::V1 => ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"),
        CgroupVersion::V2 => ("memory.current", "memory.max", "inactive_file"),
    };
    let directory = mount.join(path.trim_start_matches('/'));
    let stat = fs::read_to_string(directory.join("memory.stat")).ok()?;
    let inactive = stat.lines().find_map(|line| line.strip_prefix(inactive)?.trim().parse().ok());
    // The nearest group that has a limit; each level can only lower it.
    let limit = directory
        .ancestors()
        .take_while(|above| above.starts_with(&mount))
        .filter_map(|above| number(&above.join(limit)))
        .filter(|&bytes| bytes < NO_LIMIT)
        .min();
    Some(Cgroup {
        path: path.to_owned(),
        version,
        usage_bytes: number(&directory.join(usage))?,
        inactive_file_bytes: inactive.unwrap_or(0),
        limit_bytes: limit,
    })
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_group_above_counts() {
        let directory = std::env::temp_dir().join(format!("memprof-cgroup-{}", std::process::id()));
        let inner = directory.join("pod/container");
        fs::create_dir_all(&inner).unwrap();
        let write = |path: &Path, name: &str, text: &str| fs::write(path.join(name), text).unwrap();
        write(&inner, "memory.stat", "anon 7\ninactive_file 4096\n");
        write(&inner, "memory.current", "9000\n");
        write(&inner, "memory.max", "max\n");
        write(&directory.join("pod"), "memory.max", "100000\n");
        let found = read(directory.clone(), "/pod/container", CgroupVersion::V2);
        fs::remove_dir_all(&directory).unwrap();
        let found = found.unwrap();
        assert_eq!(
            (found.usage_bytes, found.inactive_file_bytes, found.limit_bytes),
            (9000, 4096, Some(100_000))
        );
    }

    #[test]
    fn hierarchies_are_found_by_their_mounts() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /m cgroup rw,memory 0 0\nc2 /u cgroup2 rw 0 0\n";
        assert_eq!(mount(mounts, "cgroup", "memory"), Some("/m".into()));
        assert_eq!(mount(mounts, "cgroup2", ""), Some("/u".into()));
        assert_eq!(mount("", "cgroup2", ""), None);
    }
}
