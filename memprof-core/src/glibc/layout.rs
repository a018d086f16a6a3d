//! Where glibc's versions keep what the walk needs.
//!
//! In `struct malloc_state` (`malloc/malloc.c`) the distances from `top` are the same in all versions; only `top`
//! itself has moved:
//!
//! ```text
//! top - 80  fastbinsY[10] (none in 2.43)     top + 2064  next
//! top       top                              top + 2072  next_free
//! top + 16  bins[254]                        top + 2080  attached_threads, since 2.23
//! top + 2048 binmap                          then        system_mem, max_system_mem
//! ```

use crate::address::Avma;
use crate::memory::ProcessMemory;

/// Offsets of `top` in `malloc_state`: 2.27 to 2.42, 2.17 to 2.26, and after 2.42.
pub(super) const TOP_OFFSETS: [u64; 3] = [96, 88, 8];

/// Distances between threads' heaps: `HEAP_MAX_SIZE` on 64-bit machines.
pub(super) const HEAP_ALIGN: u64 = 64 << 20;

/// Chunks start at multiples of this (`MALLOC_ALIGNMENT`).
pub(super) const ALIGN: u64 = 16;

/// The smallest chunk (`MINSIZE`).
pub(super) const MIN_CHUNK: u64 = 32;

/// `PREV_INUSE`
pub(super) const PREV_IN_USE: u64 = 1;

/// `IS_MMAPPED`
pub(super) const IS_MMAPPED: u64 = 2;

/// `NON_MAIN_ARENA`
pub(super) const NON_MAIN: u64 = 4;

/// The three flags in a chunk's size.
pub(super) const FLAGS: u64 = 7;

const BINS: u64 = 127;

/// The layout of `malloc_state` in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Offset of `top`.
    pub(super) top: u64,
}

impl Layout {
    /// Where an arena's pointer to the next one is.
    pub(super) fn next(self, arena: Avma) -> Avma {
        arena.wrapping_add(self.top + 2064)
    }

    /// The fastbins, if there are any.
    pub(super) fn fastbins(self, arena: Avma) -> Option<Avma> {
        (self.top >= 80).then(|| arena.wrapping_add(self.top - 80))
    }

    /// The bytes that the arena has from the system, and how long its structure is.
    pub(super) fn system_bytes(self, memory: &mut ProcessMemory<'_>, arena: Avma) -> Option<(u64, u64)> {
        let attached_or_system = memory.u64(arena.wrapping_add(self.top + 2080))?;
        // No arena has so many threads, and system_mem counts pages.
        if attached_or_system >= 4096 && attached_or_system % 4096 == 0 {
            return Some((attached_or_system, self.top + 2096));
        }
        Some((memory.u64(arena.wrapping_add(self.top + 2088))?, self.top + 2104))
    }

    /// How many of the 127 bins hold together: each is empty (its pointers lead to itself), or its first chunk
    /// leads back to it. All do, unless they are being changed.
    pub(super) fn bins_that_close(self, memory: &mut ProcessMemory<'_>, arena: Avma) -> u64 {
        let Some(bins) = memory.bytes(arena.wrapping_add(self.top + 16), BINS as usize * 16) else {
            return 0;
        };
        let word = |at: usize| u64::from_ne_bytes(bins[at..at + 8].try_into().expect("eight bytes"));
        let closes = |index: &u64| {
            let at = *index as usize * 16;
            // A bin passes for a chunk whose fd and bk it is.
            let bin = arena.wrapping_add(self.top + index * 16);
            let (first, last) = (word(at), word(at + 8));
            if first == bin || last == bin {
                return first == last;
            }
            memory.u64(first.wrapping_add(24)) == Some(bin)
        };
        (0..BINS).filter(closes).count() as u64
    }

    /// All bins of an arena.
    pub(super) const fn bins() -> u64 {
        BINS
    }
}
