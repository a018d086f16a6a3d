//! Memory maps: which bytes of a process's address space which call has mapped.
//!
//! ```text
//!  address   0x1000   0x2000   0x3000   0x4000   0x5000   0x6000   0x7000
//!            ├────────┴────────┼────────┼────────┴────────┼────────┤
//!  call      │ A               │        │ A               │ B      │      what A mapped is in two ranges:
//!  usable    │ yes             │        │ no              │ yes    │      a part was unmapped
//! ```
//! A *range* is a run of whole pages of one *call* that are alike; every byte is in one range at most. Ranges
//! without any access (`PROT_NONE`) are reserved: they are known, and in use only once they become usable.
//! Worked example:
//!
//! ```text
//!  mmap 10 pages at 0x10000         A: 0x10000-0x1a000                    10 pages of A in use
//!  munmap 4 pages at 0x13000        A: 0x10000-0x13000, 0x17000-0x1a000   6 pages, still one call
//!  mmap MAP_FIXED 2 pages 0x12000   A: 0x10000-0x12000, 0x17000-0x1a000   5 pages of A
//!                                   B: 0x12000-0x14000                    2 pages of B
//!  mprotect NONE 2 pages 0x18000    A: 0x18000-0x1a000 is reserved        3 pages of A
//!  mremap B to 3 pages at 0x40000   B: 0x40000-0x42000                    its bytes keep their call
//!                                   C: 0x42000-0x43000                    the page that mremap added
//! ```
//! A call is in use as long as one usable byte of it is, so there are at most as many *objects* in use at a
//! site as calls were made there. What is known of an address space starts empty: ranges mapped before are not
//! in it, and changing them changes nothing.
//!
//! A range that a call is about to take away leaves the address space when the call begins, because another
//! thread can have the addresses before its end is seen. Until then it is kept aside, in case the call fails
//! (`munmap`) or gives it another place (`mremap`).

mod space;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::space::{AddressSpace, Range, Taken};
use crate::live::{ProcessIndex, SiteId};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Most ranges that are kept, of all processes. Each takes about 100 bytes.
const MAX_RANGES: usize = 1 << 20;

/// A call that mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// Where it was made.
    pub site: SiteId,
    /// Its number in the session.
    pub number: u64,
    /// `CLOCK_MONOTONIC` nanoseconds of its end.
    pub made_at: u64,
}

/// The address spaces of all processes.
#[derive(Debug, Default)]
pub struct Mapped {
    spaces: BTreeMap<ProcessIndex, AddressSpace>,
    calls: u64,
}

impl Mapped {
    /// What is known of the address space of a process.
    pub fn space(&mut self, process: ProcessIndex) -> &mut AddressSpace {
        self.spaces.entry(process).or_default()
    }

    /// A call at this site that maps memory; `None` when so many ranges are known that it must not be kept.
    pub fn call(&mut self, site: SiteId, made_at: u64) -> Option<Call> {
        if self.spaces.values().map(AddressSpace::len).sum::<usize>() >= MAX_RANGES {
            return None;
        }
        self.calls += 1;
        Some(Call { site, number: self.calls, made_at })
    }

    /// A process has replaced its program: its address space is empty.
    pub fn clear(&mut self, process: ProcessIndex) {
        self.spaces.remove(&process);
    }

    /// The usable bytes of every call that has any, in an order that the operations so far determine.
    pub fn in_use(&self) -> impl Iterator<Item = (ProcessIndex, Call, u64)> {
        self.spaces.iter().flat_map(|(&process, space)| {
            let mut bytes = BTreeMap::<Call, u64>::new();
            for (call, length) in space.usable() {
                *bytes.entry(call).or_default() += length;
            }
            bytes.into_iter().map(move |(call, length)| (process, call, length))
        })
    }
}

/// The end of `length` bytes from `start`, on a page boundary like the kernel's.
pub(crate) fn page_end(start: u64, length: u64) -> u64 {
    align_up(start.saturating_add(length), PAGE)
}

/// `value` rounded up to a multiple of `unit`, a power of two.
pub(crate) fn align_up(value: u64, unit: u64) -> u64 {
    value.saturating_add(unit - 1) & !(unit - 1)
}
