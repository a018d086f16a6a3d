//! Memory of watched processes, read while their stacks are unwound.
//!
//! A live run reads the process and keeps what it has read beside the event that needed it. In a replay the
//! same reads come from the recording, so that both see the same bytes.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::address::Avma;

/// Where the memory of processes comes from: a running system, or a recording.
pub trait MemorySource {
    /// Copies bytes of a process from `address` on, all of `buffer` or nothing. Whether they were there; if
    /// not, the content of `buffer` means nothing.
    fn read(&mut self, tgid: u32, address: Avma, buffer: &mut [u8]) -> bool;

    /// Several reads of one process, which may be cheaper in one.
    fn read_pieces(&mut self, tgid: u32, pieces: &mut [Piece]) {
        for piece in pieces {
            piece.is_read = self.read(tgid, piece.address, &mut piece.bytes);
        }
    }

    /// Fills `buffer` with parts of a process's memory, one after the other. How many bytes were read, in order,
    /// before the first that could not be.
    fn read_parts(&mut self, tgid: u32, parts: &[Part], buffer: &mut [u8]) -> usize {
        let mut done = 0;
        for part in parts {
            let Some(room) = buffer.get_mut(done..).and_then(|rest| rest.get_mut(..part.length)) else {
                break;
            };
            if !self.read(tgid, part.address, room) {
                break;
            }
            done += part.length;
        }
        done
    }

    /// A moment before all reads for the event at hand and not before the event: `CLOCK_MONOTONIC`
    /// nanoseconds. The same for every call between two events.
    fn now(&mut self) -> u64;
}

/// A stretch of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it starts.
    pub address: Avma,
    /// Bytes.
    pub length: usize,
}

/// One of several reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it starts.
    pub address: Avma,
    /// Room for it; its bytes, once it is read.
    pub bytes: Vec<u8>,
    /// Whether it could be read.
    pub is_read: bool,
}

/// The memory of one process.
pub struct ProcessMemory<'a> {
    source: &'a mut dyn MemorySource,
    tgid: u32,
}

impl<'a> ProcessMemory<'a> {
    /// The memory of the process with this id.
    pub fn new(source: &'a mut dyn MemorySource, tgid: u32) -> Self {
        Self { source, tgid }
    }

    /// See [`MemorySource::read`].
    pub fn read(&mut self, address: Avma, buffer: &mut [u8]) -> bool {
        self.source.read(self.tgid, address, buffer)
    }

    /// See [`MemorySource::read_pieces`].
    pub fn read_pieces(&mut self, pieces: &mut [Piece]) {
        self.source.read_pieces(self.tgid, pieces);
    }

    /// See [`MemorySource::read_parts`].
    pub fn read_parts(&mut self, parts: &[Part], buffer: &mut [u8]) -> usize {
        self.source.read_parts(self.tgid, parts, buffer)
    }

    /// See [`MemorySource::now`].
    pub fn now(&mut self) -> u64 {
        self.source.now()
    }

    /// So many bytes. The caller bounds `length`.
    pub fn bytes(&mut self, address: Avma, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes).then_some(bytes)
    }

    /// A pointer, or another word of eight bytes.
    pub fn u64(&mut self, address: Avma) -> Option<u64> {
        self.array(address).map(u64::from_ne_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, address: Avma) -> Option<u32> {
        self.array(address).map(u32::from_ne_bytes)
    }

    /// Two bytes.
    pub fn u16(&mut self, address: Avma) -> Option<u16> {
        self.array(address).map(u16::from_ne_bytes)
    }

    fn array<const N: usize>(&mut self, address: Avma) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes).then_some(bytes)
    }
}

/// What was read of a process's memory for one event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReads {
    /// The process.
    pub tgid: u32,
    /// [`MemorySource::now`] for that event.
    pub now: u64,
    /// The reads, in order.
    pub reads: Vec<MemoryRead>,
}

/// One read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRead {
    /// Where it started.
    pub address: Avma,
    /// How many bytes were wanted.
    pub length: u32,
    /// The bytes; none when they could not be read.
    pub bytes: Vec<u8>,
}

/// The memory that a recording holds for the next event. There is no other memory in a replay.
#[derive(Debug, Default)]
pub struct RecordedMemory {
    tgid: u32,
    now: u64,
    reads: FxHashMap<(Avma, u32), Vec<u8>>,
}

impl RecordedMemory {
    /// Replaces what it holds.
    pub fn set(&mut self, recorded: &MemoryReads) {
        self.tgid = recorded.tgid;
        self.now = recorded.now;
        self.reads =
            recorded.reads.iter().map(|read| ((read.address, read.length), read.bytes.clone())).collect();
    }

    /// Forgets what it holds: it was for one event.
    pub fn clear(&mut self) {
        self.reads.clear();
    }
}

impl MemorySource for RecordedMemory {
    fn read(&mut self, tgid: u32, address: Avma, buffer: &mut [u8]) -> bool {
        let Ok(length) = u32::try_from(buffer.len()) else { return false };
        let bytes = self.reads.get(&(address, length)).filter(|_| tgid == self.tgid);
        match bytes.filter(|bytes| bytes.len() == buffer.len()) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    fn now(&mut self) -> u64 {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_gives_back_what_was_read_and_nothing_else() {
        let read = |address, bytes: &[u8], length| MemoryRead { address, length, bytes: bytes.to_vec() };
        let reads = vec![read(16, &[1, 0, 0, 0, 0, 0, 0, 0], 8), read(32, &[], 8), read(16, &[7, 0], 2)];
        let mut recorded = RecordedMemory::default();
        recorded.set(&MemoryReads { tgid: 3, now: 99, reads });
        let mut memory = ProcessMemory::new(&mut recorded, 3);
        assert_eq!((memory.u64(16), memory.u16(16), memory.now()), (Some(1), Some(7), 99));
        assert_eq!((memory.u64(32), memory.u64(24), memory.u32(16)), (None, None, None));
        assert_eq!(ProcessMemory::new(&mut recorded, 4).u64(16), None, "another process");
        let piece = |address| Piece { address, bytes: vec![0; 2], is_read: true };
        let mut pieces = [piece(16), piece(17)];
        ProcessMemory::new(&mut recorded, 3).read_pieces(&mut pieces);
        assert_eq!((pieces[0].is_read, &pieces[0].bytes[..], pieces[1].is_read), (true, &[7, 0][..], false));
        recorded.clear();
        assert_eq!(ProcessMemory::new(&mut recorded, 3).u64(16), None);
    }
}
