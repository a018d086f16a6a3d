//! What something known was read from. A JVM replaces code, unloads classes and uses their memory again: what is
//! known holds only as long as all of this reads the same.

use crate::address::Avma;
use crate::memory::{Piece, ProcessMemory};

/// Parts this close to each other are read again in one piece (bytes): reading costs by the piece, not by the
/// byte.
const NEAR: u64 = 512;

/// Bytes of a process's memory, as they were when something was read from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Witness {
    parts: Vec<(Avma, Box<[u8]>)>,
    /// Ranges that hold all parts: what is read again.
    spans: Vec<(Avma, usize)>,
}

impl Witness {
    /// Reads so many bytes, and keeps them.
    pub(super) fn bytes(
        &mut self,
        address: Avma,
        length: usize,
        memory: &mut ProcessMemory<'_>,
    ) -> Option<&[u8]> {
        let bytes = memory.bytes(address, length)?;
        self.add(address, &bytes);
        self.parts.last().map(|(_, bytes)| &**bytes)
    }

    /// Reads a pointer, and keeps it.
    pub(super) fn u64(&mut self, address: Avma, memory: &mut ProcessMemory<'_>) -> Option<u64> {
        let bytes = self.bytes(address, 8, memory)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Reads two bytes, and keeps them.
    pub(super) fn u16(&mut self, address: Avma, memory: &mut ProcessMemory<'_>) -> Option<u16> {
        let bytes = self.bytes(address, 2, memory)?;
        bytes.try_into().ok().map(u16::from_ne_bytes)
    }

    /// Keeps bytes that have been read.
    pub(super) fn add(&mut self, address: Avma, bytes: &[u8]) {
        self.parts.push((address, bytes.into()));
    }

    /// Nothing more is added: from now on it can be asked for.
    pub(super) fn finish(mut self) -> Self {
        self.parts.sort_unstable();
        self.parts.dedup();
        for (address, bytes) in &self.parts {
            let end = address.saturating_add(bytes.len() as u64);
            match self.spans.last_mut() {
                Some((start, length)) if end - *start <= NEAR => {
                    *length = usize::max(*length, (end - *start) as usize);
                }
                _ => self.spans.push((*address, bytes.len())),
            }
        }
        self
    }

    /// Asks for all of it once more.
    pub(super) fn want(&self, proof: &mut Proof) {
        for &(address, length) in &self.spans {
            proof.want(address, length);
        }
    }

    /// Whether what [`Witness::want`] has asked for reads the same. It is taken off the front of `read`.
    pub(super) fn holds(&self, read: &mut &[Piece]) -> bool {
        let (own, rest) = read.split_at(self.spans.len().min(read.len()));
        *read = rest;
        let mut own = own.iter();
        let mut piece = own.next();
        self.parts.iter().all(|(address, bytes)| {
            while let Some(passed) = piece.filter(|piece| address - piece.address >= piece.bytes.len() as u64)
            {
                debug_assert!(passed.address <= *address, "parts and spans are in one order");
                piece = own.next();
            }
            piece.is_some_and(|piece| {
                let start = (address - piece.address) as usize;
                piece.is_read && piece.bytes.get(start..start + bytes.len()) == Some(bytes)
            })
        })
    }

    /// Bytes that it takes, roughly.
    pub(super) fn size(&self) -> usize {
        let parts = self.parts.iter().map(|part| size_of_val(part) + part.1.len());
        parts.sum::<usize>() + size_of_val(self.spans.as_slice())
    }
}

/// What is read again to prove what a walk has relied on. Its memory is used again.
#[derive(Debug, Default)]
pub(super) struct Proof {
    pieces: Vec<Piece>,
    wanted: usize,
}

impl Proof {
    /// Nothing is wanted any more.
    pub(super) fn clear(&mut self) {
        self.wanted = 0;
    }

    /// Whether nothing is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted == 0
    }

    fn want(&mut self, address: Avma, length: usize) {
        if self.wanted == self.pieces.len() {
            self.pieces.push(Piece { address, bytes: Vec::new(), is_read: false });
        }
        let piece = &mut self.pieces[self.wanted];
        piece.address = address;
        piece.bytes.resize(length, 0);
        self.wanted += 1;
    }

    /// Reads what is wanted. `None` when that is nothing.
    pub(super) fn read(&mut self, memory: &mut ProcessMemory<'_>) -> Option<&[Piece]> {
        let wanted = self.pieces.get_mut(..self.wanted).filter(|wanted| !wanted.is_empty())?;
        memory.read_pieces(wanted);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryRead, MemoryReads, RecordedMemory};

    #[test]
    fn near_parts_are_read_in_one_piece_and_only_they_are_compared() {
        let mut witness = Witness::default();
        witness.add(1010, &[3, 4]);
        witness.add(1000, &[1, 2]);
        witness.add(9000, &[5]);
        let witness = witness.finish();
        assert_eq!(witness.spans, [(1000, 12), (9000, 1)]);

        let holds = |middle: [u8; 8], last: u8| {
            let read = |address, bytes: &[u8]| MemoryRead {
                address,
                length: bytes.len() as u32,
                bytes: bytes.to_vec(),
            };
            let first = [&[1, 2][..], &middle, &[3, 4]].concat();
            let mut memory = RecordedMemory::default();
            let reads = vec![read(1000, &first), read(9000, &[last])];
            memory.set(&MemoryReads { tgid: 1, now: 0, reads });
            let mut proof = Proof::default();
            witness.want(&mut proof);
            let mut read = proof.read(&mut ProcessMemory::new(&mut memory, 1)).expect("something is wanted");
            let holds = witness.holds(&mut read);
            assert!(read.is_empty());
            holds
        };
        assert!(holds([0; 8], 5) && holds([7; 8], 5));
        assert!(!holds([0; 8], 6));
        let missing: &mut &[Piece] = &mut &[][..];
        assert!(!witness.holds(missing));
        assert_eq!(Proof::default().read(&mut ProcessMemory::new(&mut RecordedMemory::default(), 1)), None);
    }
}
