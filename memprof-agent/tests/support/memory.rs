//! What the kernel says of a process's memory.

use std::fs;

/// A line of `/proc/PID/status`, in bytes: `VmRSS`, `RssAnon`, `VmData`.
pub(crate) fn status_bytes(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("cannot read the status");
    let line = text.lines().find(|line| line.split(':').next() == Some(name));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("no {name} in {text}")) << 10
}

/// Bytes of the mapping called `[heap]`, as far as it is in memory.
pub(crate) fn heap_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("cannot read the mappings");
    let heap = text.split_once("[heap]").map_or("", |(_, rest)| rest);
    let line = heap.lines().find(|line| line.starts_with("Rss:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("no heap in {text}")) << 10
}
