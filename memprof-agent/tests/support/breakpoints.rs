//! The breakpoints that the kernel writes into a process for its probes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::PATIENCE;

/// What a process without probes has.
pub(crate) const NO_BREAKPOINTS: [usize; 0] = [];

/// The code of a library in a process: in memory and on disk.
pub(crate) struct Text {
    pid: u32,
    start: u64,
    length: usize,
    file_offset: u64,
    path: String,
}

impl Text {
    /// That of the C library.
    pub(crate) fn of_libc(pid: u32) -> Self {
        Self::of(pid, "/libc.so")
    }

    /// That of the file with `name` in its path.
    pub(crate) fn of(pid: u32, name: &str) -> Self {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("cannot read the maps");
        let line = maps
            .lines()
            .find(|line| line.contains(" r-xp ") && line.contains(name))
            .unwrap_or_else(|| panic!("no {name} in {maps}"));
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = fields[0].split_once('-').expect("a range");
        let hex = |text| u64::from_str_radix(text, 16).expect("a hexadecimal number");
        Self {
            pid,
            start: hex(start),
            length: (hex(end) - hex(start)) as usize,
            file_offset: hex(fields[2]),
            path: fields[5].to_owned(),
        }
    }

    /// Waits until this code has as many breakpoints as `count` asks for.
    pub(crate) fn wait_for_breakpoints(&self, count: impl Fn(usize) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.breakpoints();
            if count(found.len()) {
                return;
            }
            assert!(Instant::now() < deadline, "process {} has breakpoints at {found:x?}", self.pid);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Offsets at which memory and file differ: where breakpoints are.
    pub(crate) fn breakpoints(&self) -> Vec<usize> {
        let read = |path: &str, offset: u64| {
            let mut bytes = vec![0; self.length];
            let file = File::open(path).unwrap_or_else(|error| panic!("cannot open {path}: {error}"));
            // The last page of the mapping may reach beyond the end of the file: zeros in both.
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) => panic!("cannot read {path}: {error}"),
                }
            }
            assert!(filled + 4096 > self.length, "only {filled} bytes of {path}");
            bytes
        };
        let memory = read(&format!("/proc/{}/mem", self.pid), self.start);
        let file = read(&self.path, self.file_offset);
        (0..self.length).filter(|&i| memory[i] != file[i]).collect()
    }
}

/// Waits until process `pid` has as many breakpoints as `count` asks for.
pub(crate) fn wait_for_breakpoints(pid: u32, count: impl Fn(usize) -> bool) {
    Text::of_libc(pid).wait_for_breakpoints(count);
}
