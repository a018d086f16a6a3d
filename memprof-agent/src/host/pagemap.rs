//! Which pages of a process are in memory, from `/proc/PID/pagemap` (`Documentation/admin-guide/mm/pagemap.rst`).

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use memprof_core::address::Avma;
use memprof_core::pages::{PAGE, PageSource, PageState};

use super::proc_fs::{self, ProcessError};

/// The page is in memory.
const PRESENT: u64 = 1 << 63;
/// The page is swapped out.
const SWAPPED: u64 = 1 << 62;
/// Nobody else maps the page.
const EXCLUSIVE: u64 = 1 << 56;
/// The number of the page's frame; zero for those who may not know it.
const FRAME: u64 = (1 << 55) - 1;

/// Blocks of this size are always mapped anew, so that they are untouched: glibc raises its limit for that to 32 MiB.
const ALWAYS_MAPPED: usize = 64 << 20;

/// Bytes of an entry.
const ENTRY: usize = 8;

/// The pages of one process.
pub(crate) struct Pagemap {
    file: File,
    /// The frame of zeros that untouched memory reads as, where frames may be known.
    zero: Option<u64>,
}

impl Pagemap {
    /// Opens a process's pagemap.
    ///
    /// # Errors
    /// When there is no such process or it may not be looked at.
    pub(crate) fn open(pid: i32) -> Result<Self, ProcessError> {
        let file = proc_fs::open(pid, "pagemap")?;
        Ok(Self { file, zero: frame_of_zeros() })
    }

    fn state(&self, entry: u64) -> PageState {
        if entry & SWAPPED != 0 {
            return PageState::Swapped;
        }
        // Memory that was only read maps the frame of zeros, which is no process's memory.
        let is_own = match self.zero {
            Some(zero) => entry & FRAME != zero,
            None => entry & EXCLUSIVE != 0,
        };
        if entry & PRESENT != 0 && is_own { PageState::Resident } else { PageState::Absent }
    }
}

impl PageSource for Pagemap {
    fn pages(&mut self, start: Avma, pages: &mut [PageState]) {
        let entries = entries(&self.file, start, pages.len());
        for (page, entry) in pages.iter_mut().zip(&entries) {
            *page = self.state(*entry);
        }
        pages[entries.len()..].fill(PageState::Absent);
    }
}

/// The entries of the pages from `start` on, as many as can be read.
fn entries(file: &File, start: Avma, count: usize) -> Vec<u64> {
    let mut bytes = vec![0; count * ENTRY];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], start / PAGE * ENTRY as u64 + filled as u64) {
            Ok(0) | Err(_) => break,
            Ok(read) => filled += read,
        }
    }
    bytes[..filled]
        .chunks_exact(ENTRY)
        .map(|entry| u64::from_ne_bytes(entry.try_into().expect("eight bytes")))
        .collect()
}

/// The frame of zeros: that of memory of our own that is read before it is written to.
fn frame_of_zeros() -> Option<u64> {
    let untouched = vec![0_u8; ALWAYS_MAPPED];
    let middle = &untouched[untouched.len() / 2];
    black_box(*middle);
    let file = File::open("/proc/self/pagemap").ok()?;
    let entry = *entries(&file, std::ptr::from_ref(middle) as u64, 1).first()?;
    (entry & PRESENT != 0 && entry & EXCLUSIVE == 0).then_some(entry & FRAME).filter(|&frame| frame != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_in_memory_once_they_are_written_to() {
        let mut pagemap = Pagemap::open(std::process::id().cast_signed()).unwrap();
        let mut bytes = vec![0_u8; ALWAYS_MAPPED];
        let start = (bytes.as_ptr() as u64).next_multiple_of(PAGE);
        let offset = (start - bytes.as_ptr() as u64) as usize;
        bytes[offset + PAGE as usize] = 1;
        black_box(&bytes[offset + 2 * PAGE as usize]);
        black_box(bytes[offset + 2 * PAGE as usize]);
        let mut pages = [PageState::Swapped; 3];
        pagemap.pages(start, &mut pages);
        assert_eq!(pages[1..], [PageState::Resident, PageState::Absent], "written to; only read");
        pagemap.pages(u64::MAX - 3 * PAGE, &mut pages);
        assert_eq!(pages, [PageState::Absent; 3]);
    }
}
