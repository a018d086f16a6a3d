//! Memory of a process that tests make up.

use std::collections::BTreeMap;

use crate::address::Avma;
use crate::memory::MemorySource;

/// Bytes by address; where nothing was put, nothing can be read, but for some bytes behind it: in a
/// process, the memory there would belong to something else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pieces: BTreeMap<Avma, Vec<u8>>,
}

/// Bytes of something else behind each piece.
const PADDING: usize = 512;

impl Image {
    /// Puts bytes at an address, in place of those that began there.
    pub(crate) fn put(&mut self, address: Avma, bytes: &[u8]) {
        self.pieces.insert(address, bytes.to_vec());
    }

    fn byte(&self, address: Avma) -> Option<u8> {
        let (start, bytes) = self.pieces.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        match bytes.get(offset) {
            Some(&byte) => Some(byte),
            None => (offset < bytes.len() + PADDING).then_some(0xa5),
        }
    }
}

impl MemorySource for Image {
    fn read(&mut self, _tgid: u32, address: Avma, buffer: &mut [u8]) -> bool {
        (address..).zip(buffer).all(|(address, byte)| self.byte(address).map(|known| *byte = known).is_some())
    }

    fn now(&mut self) -> u64 {
        0
    }
}
