//! The copied part of a stack: the only memory that unwinding may read.

use memprof_common::event::{
    HOLE_WORDS, HijackedReturn, STACK_FAULTED, STACK_LIMITED, STACK_PIECE, StackSnapshot,
};

use crate::address::Avma;
use crate::stack::Truncation;

/// An address that the snapshot does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(pub(crate) Avma);

/// A stack from the stack pointer upwards, with the return addresses that belong there.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot<'a> {
    start: Avma,
    bytes: &'a [u8],
    /// Pieces that could not be read, as in the event's snapshot.
    holes: &'a [u64; HOLE_WORDS],
    /// Read instead of what the uretprobes left in these slots. The copy itself stays as it came.
    hijacked: &'a [HijackedReturn],
    flags: u32,
}

impl<'a> Snapshot<'a> {
    pub(crate) fn new(copied: &'a StackSnapshot, bytes: &'a [u8]) -> Self {
        let used = copied.hijacked.len().min(copied.hijacked_len as usize);
        Self {
            start: copied.start,
            bytes,
            holes: &copied.holes,
            hijacked: &copied.hijacked[..used],
            flags: copied.flags,
        }
    }

    /// The eight bytes at `address`.
    #[inline]
    pub(crate) fn read(&self, address: Avma) -> Result<u64, Unreadable> {
        let bytes = address
            .checked_sub(self.start)
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|&offset| !self.is_hole(offset) && !self.is_hole(offset.saturating_add(7)))
            .and_then(|offset| self.bytes.get(offset..)?.first_chunk())
            .ok_or(Unreadable(address))?;
        match self.hijacked.iter().find(|hijacked| hijacked.slot == address) {
            Some(hijacked) => Ok(hijacked.original),
            None => Ok(u64::from_ne_bytes(*bytes)),
        }
    }

    /// Whether the byte at `offset` lies in a piece that could not be read.
    #[inline]
    fn is_hole(&self, offset: usize) -> bool {
        let piece = offset / STACK_PIECE as usize;
        self.holes.get(piece / 64).is_some_and(|word| word >> (piece % 64) & 1 == 1)
    }

    /// Whether a stack pointer lies in the snapshot or at its very end.
    pub(crate) fn holds(&self, sp: Avma) -> bool {
        sp.checked_sub(self.start).is_some_and(|offset| offset <= self.bytes.len() as u64)
    }

    /// Why a frame at `address`, which is not in the snapshot, cannot be had.
    pub(crate) fn outside(&self, address: Avma) -> Truncation {
        if address < self.start {
            Truncation::OutsideStack
        } else if self.flags & STACK_FAULTED != 0 {
            Truncation::StackUnreadable
        } else if self.flags & STACK_LIMITED != 0 {
            Truncation::SnapshotLimit
        } else {
            Truncation::OutsideStack
        }
    }
}
