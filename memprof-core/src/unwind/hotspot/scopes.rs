//! Scopes: which methods a place in compiled code stands for, where methods are inlined into each other.
//!
//! A `PcDesc` leads to the innermost scope (`src/hotspot/share/code/scopeDesc.cpp`): three numbers, which are the
//! place of the scope that it is inlined into, its method as an index of the code's metadata, and its bytecode
//! index plus one. A scope is written before those inlined into it, so that places can only become smaller.

use std::ops::Range;

use super::unsigned5::{MAX_BYTES, Unsigned5};
use crate::address::Avma;
use crate::memory::{Piece, ProcessMemory};

/// Most methods inlined into each other. HotSpot's default is 15.
const MAX_DEPTH: usize = 64;

/// Bytes of the longest head of a scope: three numbers.
const HEAD: u64 = 3 * MAX_BYTES as u64;

/// Bytes read at once, up to the end of a head: those that it is inlined into are often close before it.
const WINDOW: u64 = 256;

/// A method that runs, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    /// The `Method`.
    pub(super) method: Avma,
    /// Bytecode index; `None` when it is not known.
    pub(super) bci: Option<u16>,
}

/// Where a compiled method's scopes are, and how their numbers are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScopeData<'a> {
    /// The scopes, as bytes.
    pub(super) scopes: &'a Range<Avma>,
    /// What scopes refer to by index, as pointers.
    pub(super) metadata: &'a Range<Avma>,
    /// [`super::layout::Layout::unsigned5_bias`].
    pub(super) bias: u8,
}

/// The methods at the place of the scopes that a `PcDesc` has named (not 0, which names none), innermost first.
/// `None` when there are no scopes: the code has been replaced.
pub(super) fn read(place: u32, data: ScopeData<'_>, memory: &mut ProcessMemory<'_>) -> Option<Vec<Scope>> {
    let mut window = Window::default();
    let mut heads = Vec::new();
    let mut next = place;
    while next != 0 {
        let head = window.head(next, data, memory)?;
        if heads.len() == MAX_DEPTH || head.sender >= next {
            return None;
        }
        next = head.sender;
        heads.push(head);
    }
    let slots: Option<Vec<Piece>> = heads.iter().map(|head| slot(head.method, data.metadata)).collect();
    let mut slots = slots?;
    memory.read_pieces(&mut slots);
    let scope = |(head, slot): (&Head, &Piece)| {
        let method = slot.bytes.as_slice().try_into().ok().map(u64::from_ne_bytes);
        let method = method.filter(|&method| slot.is_read && method != 0 && method % 8 == 0)?;
        Some(Scope { method, bci: Some(head.bci) })
    };
    let scopes: Option<Vec<Scope>> = heads.iter().zip(&slots).map(scope).collect();
    scopes.filter(|scopes| !scopes.is_empty())
}

/// The first three numbers of a scope.
struct Head {
    /// The place of the scope that it is inlined into; 0 when it is not.
    sender: u32,
    /// One more than the index of its method.
    method: u32,
    bci: u16,
}

/// Bytes of the scopes that have been read last.
#[derive(Default)]
struct Window {
    start: Avma,
    bytes: Vec<u8>,
}

impl Window {
    fn head(&mut self, place: u32, data: ScopeData<'_>, memory: &mut ProcessMemory<'_>) -> Option<Head> {
        let Range { start, end } = *data.scopes;
        let address = start.checked_add(place.into()).filter(|&address| address < end)?;
        let head_end = address.saturating_add(HEAD).min(end);
        if address < self.start || head_end > self.start.saturating_add(self.bytes.len() as u64) {
            self.start = head_end.saturating_sub(WINDOW).max(start);
            self.bytes = memory.bytes(self.start, usize::try_from(head_end - self.start).ok()?)?;
        }
        let bytes = self.bytes.get(usize::try_from(address - self.start).ok()?..)?;
        let mut stream = Unsigned5::new(bytes, data.bias);
        let (sender, method, bci) = (stream.unsigned()?, stream.unsigned()?, stream.unsigned()?);
        // Index -1 is a method's entry, before its first bytecode: it locks there, for example.
        Some(Head { sender, method, bci: u16::try_from(bci.saturating_sub(1)).ok()? })
    }
}

/// Where the method of a scope is; its number is one more than its index.
fn slot(number: u32, metadata: &Range<Avma>) -> Option<Piece> {
    let index = u64::from(number.checked_sub(1)?);
    let address = metadata.start.checked_add(8 * index)?;
    let is_inside = address.checked_add(8).is_some_and(|end| end <= metadata.end);
    is_inside.then(|| Piece { address, bytes: vec![0; 8], is_read: false })
}

#[cfg(test)]
mod tests {
    use super::super::image::Image;
    use super::super::unsigned5::encode;
    use super::*;

    const SCOPES: Avma = 0x1000;
    const METADATA: Avma = 0x9000;
    const METHODS: [Avma; 3] = [0x7000_0000, 0x7000_0100, 0x7000_0200];

    /// Reads from scopes given by (sender, method, bci), each 100 bytes behind the one before.
    fn at(place: u32, scopes: &[(u32, u32, i32)], bias: u8) -> Option<Vec<(Avma, Option<u16>)>> {
        let mut image = Image::default();
        image.put(METADATA, &METHODS.map(u64::to_ne_bytes).concat());
        let mut bytes = vec![0xff; 100];
        for &(sender, method, bci) in scopes {
            bytes.extend([sender, method, (bci + 1) as u32].map(|number| encode(number, bias)).concat());
            bytes.resize(bytes.len().next_multiple_of(100), 0xff);
        }
        image.put(SCOPES, &bytes);
        let data = ScopeData {
            scopes: &(SCOPES..SCOPES + bytes.len() as u64),
            metadata: &(METADATA..METADATA + 24),
            bias,
        };
        let found = read(place, data, &mut ProcessMemory::new(&mut image, 1))?;
        Some(found.iter().map(|scope| (scope.method, scope.bci)).collect())
    }

    #[test]
    fn inlined_methods_come_innermost_first() {
        let mut scopes = vec![(0, 1, 700), (100, 2, 12), (200, 3, -1)];
        for bias in [0, 1] {
            let expected = [(METHODS[2], Some(0)), (METHODS[1], Some(12)), (METHODS[0], Some(700))];
            assert_eq!(at(300, &scopes, bias).unwrap(), expected);
            assert_eq!(at(100, &scopes, bias).unwrap(), expected[2..]);
        }
        scopes.extend([(0, 3, 3); 60]);
        scopes.push((200, 2, 9));
        let far = at(6400, &scopes, 0).unwrap();
        assert_eq!(far, [(METHODS[1], Some(9)), (METHODS[1], Some(12)), (METHODS[0], Some(700))]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (place, scopes) in [
            // Inlined into itself, or into what comes later.
            (100, [(100, 1, 0), (0, 1, 0)]),
            (100, [(200, 1, 0), (0, 1, 0)]),
            // Methods that are not there.
            (100, [(0, 0, 0), (0, 1, 0)]),
            (100, [(0, 4, 0), (0, 1, 0)]),
            (100, [(0, u32::MAX, 0), (0, 1, 0)]),
            // More bytecodes than a method has.
            (100, [(0, 1, 70_000), (0, 1, 0)]),
            // Behind the end, and nothing.
            (300, [(0, 1, 0), (0, 1, 0)]),
            (u32::MAX, [(0, 1, 0), (0, 1, 0)]),
            (0, [(0, 1, 0), (0, 1, 0)]),
        ] {
            assert_eq!(at(place, &scopes, 0), None, "{place} {scopes:?}");
        }
        let deep: Vec<_> = (0..65).map(|i| (100 * i, 1, 0)).collect();
        assert_eq!(at(6400, &deep, 0).map(|scopes| scopes.len()), Some(64));
        assert_eq!(at(6500, &deep, 0), None);
        let data = ScopeData { scopes: &(SCOPES..SCOPES + 999), metadata: &(0..8), bias: 0 };
        assert_eq!(read(100, data, &mut ProcessMemory::new(&mut Image::default(), 1)), None);
    }
}
