//! Ring bytes to events. The layouts are those of `memprof_common::event`, field by field in native
//! endianness, so that no `unsafe` is needed; every length is checked before it is used.

use memprof_common::event::{
    AllocEvent, EventHeader, EventKind, ExecEvent, ForkEvent, FreeEvent, HOLE_WORDS, HijackedReturn,
    MAX_HIJACKED_RETURNS, MapCall, MapEvent, RangeEvent, Registers, StackSnapshot,
};
use memprof_common::function::FunctionKind;
use memprof_common::sampling::CERTAIN;
use thiserror::Error;

/// One event of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A sampled allocation.
    Alloc {
        /// Its facts.
        event: AllocEvent,
        /// The stack from `event.stack.start` upwards.
        stack: &'a [u8],
    },
    /// The free of a sampled block.
    Free(FreeEvent),
    /// A process has replaced its program.
    Exec(ExecEvent),
    /// A process has a child.
    Fork(ForkEvent),
    /// A system call has mapped memory.
    Map {
        /// Which one, and what it gave.
        call: MapCall,
        /// Its facts.
        event: MapEvent,
        /// The stack from `event.stack.start` upwards.
        stack: &'a [u8],
    },
    /// A system call is about to take a range away.
    Unmap {
        /// Which one.
        call: MapCall,
        /// The range.
        event: RangeEvent,
    },
    /// A range has another protection: `argument`.
    Protect(RangeEvent),
    /// What [`Event::Unmap`] announced has happened, or failed: `argument` is not 0.
    Unmapped(RangeEvent),
}

impl Event<'_> {
    /// What all events have.
    #[must_use]
    pub fn header(&self) -> &EventHeader {
        match self {
            Self::Alloc { event, .. } => &event.header,
            Self::Free(event) => &event.header,
            Self::Exec(event) => &event.header,
            Self::Fork(event) => &event.header,
            Self::Map { event, .. } => &event.header,
            Self::Unmap { event, .. } | Self::Protect(event) | Self::Unmapped(event) => &event.header,
        }
    }
}

/// Why bytes are not an event. Such an event is counted and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end before the event does.
    #[error("decoding an event: {needed} bytes needed, {available} there")]
    TooShort {
        /// Bytes that the event needs from its start.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The first field is no [`EventKind`].
    #[error("decoding an event: unknown kind {0}; the agent and its probes must be of one version")]
    UnknownKind(u32),
    /// The function kind is no [`FunctionKind`] that allocates.
    #[error("decoding an allocation event: function kind {0} allocates nothing")]
    FunctionKind(u32),
    /// The sampling probability is not in (0, 1].
    #[error("decoding an allocation event: sampling probability {0}/2^32 is not in (0, 1]")]
    Probability(u64),
    /// A call of memory maps is no [`MapCall`], or not one of those that send such an event.
    #[error("decoding an event of memory maps: call kind {0} sends none of these")]
    MapCall(u32),
    /// More hijacked returns than the event has room for.
    #[error("decoding a stack: {0} hijacked returns, at most {MAX_HIJACKED_RETURNS} fit")]
    HijackedReturns(u32),
}

/// Decodes one event. Bytes after its end are ignored: records in the ring have a fixed size per
/// snapshot class.
///
/// # Errors
/// When the bytes cannot be an event of the probes, see [`DecodeError`].
pub fn decode(bytes: &[u8]) -> Result<Event<'_>, DecodeError> {
    let mut reader = Reader { bytes, position: 0 };
    let header = reader.header()?;
    match header.kind {
        kind if kind == EventKind::Alloc as u32 => decode_alloc(header, reader),
        kind if kind == EventKind::Free as u32 => {
            Ok(Event::Free(FreeEvent { header, address: reader.u64()?, allocated_at: reader.u64()? }))
        }
        kind if kind == EventKind::Exec as u32 => Ok(Event::Exec(ExecEvent { header })),
        kind if kind == EventKind::Fork as u32 => Ok(Event::Fork(ForkEvent {
            header,
            child: reader.u32()?,
            flags: reader.u32()?,
            start_time: reader.u64()?,
        })),
        kind if kind == EventKind::Map as u32 => decode_map(header, reader),
        kind if kind == EventKind::Unmap as u32 => decode_unmap(header, reader),
        kind if kind == EventKind::Protect as u32 => Ok(Event::Protect(reader.range(header)?)),
        kind if kind == EventKind::Unmapped as u32 => Ok(Event::Unmapped(reader.range(header)?)),
        kind => Err(DecodeError::UnknownKind(kind)),
    }
}

fn decode_alloc<'a>(header: EventHeader, mut reader: Reader<'a>) -> Result<Event<'a>, DecodeError> {
    let event = AllocEvent {
        header,
        address: reader.u64()?,
        size: reader.u64()?,
        probability: reader.u64()?,
        function: reader.u64()?,
        replaces: reader.u64()?,
        stack: reader.snapshot()?,
    };
    if !FunctionKind::from_u32(event.stack.kind).is_some_and(FunctionKind::allocates) {
        return Err(DecodeError::FunctionKind(event.stack.kind));
    }
    if event.probability == 0 || event.probability > CERTAIN {
        return Err(DecodeError::Probability(event.probability));
    }
    let stack = reader.stack(&event.stack)?;
    Ok(Event::Alloc { event, stack })
}

fn decode_map<'a>(header: EventHeader, mut reader: Reader<'a>) -> Result<Event<'a>, DecodeError> {
    let event = MapEvent {
        header,
        address: reader.u64()?,
        length: reader.u64()?,
        old_address: reader.u64()?,
        old_length: reader.u64()?,
        protection: reader.u32()?,
        flags: reader.u32()?,
        stack: reader.snapshot()?,
    };
    let call = [MapCall::Mmap, MapCall::Mremap, MapCall::Brk]
        .into_iter()
        .find(|&call| call as u32 == event.stack.kind);
    let call = call.ok_or(DecodeError::MapCall(event.stack.kind))?;
    let stack = reader.stack(&event.stack)?;
    Ok(Event::Map { call, event, stack })
}

fn decode_unmap<'a>(header: EventHeader, mut reader: Reader<'a>) -> Result<Event<'a>, DecodeError> {
    let event = reader.range(header)?;
    let call = [MapCall::Munmap, MapCall::Mremap, MapCall::Brk]
        .into_iter()
        .find(|&call| call as u64 == event.argument);
    let call = call.ok_or(DecodeError::MapCall(event.argument as u32))?;
    Ok(Event::Unmap { call, event })
}

/// Reads fields one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let needed = self.position.saturating_add(len);
        let taken = self
            .bytes
            .get(self.position..needed)
            .ok_or(DecodeError::TooShort { needed, available: self.bytes.len() })?;
        self.position = needed;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_ne_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_ne_bytes(self.array()?))
    }

    fn header(&mut self) -> Result<EventHeader, DecodeError> {
        Ok(EventHeader {
            kind: self.u32()?,
            tgid: self.u32()?,
            tid: self.u32()?,
            reserved: self.u32()?,
            time: self.u64()?,
        })
    }

    fn range(&mut self, header: EventHeader) -> Result<RangeEvent, DecodeError> {
        Ok(RangeEvent { header, address: self.u64()?, length: self.u64()?, argument: self.u64()? })
    }

    fn snapshot(&mut self) -> Result<StackSnapshot, DecodeError> {
        Ok(StackSnapshot {
            kind: self.u32()?,
            flags: self.u32()?,
            len: self.u32()?,
            hijacked_len: self.u32()?,
            start: self.u64()?,
            holes: self.holes()?,
            comm: self.array()?,
            registers: self.registers()?,
            hijacked: self.hijacked()?,
        })
    }

    /// The stack bytes that follow an event with this snapshot.
    fn stack(&mut self, snapshot: &StackSnapshot) -> Result<&'a [u8], DecodeError> {
        if snapshot.hijacked_len as usize > MAX_HIJACKED_RETURNS {
            return Err(DecodeError::HijackedReturns(snapshot.hijacked_len));
        }
        self.take(snapshot.len as usize)
    }

    fn registers(&mut self) -> Result<Registers, DecodeError> {
        Ok(Registers {
            ip: self.u64()?,
            sp: self.u64()?,
            bp: self.u64()?,
            bx: self.u64()?,
            r12: self.u64()?,
            r13: self.u64()?,
            r14: self.u64()?,
            r15: self.u64()?,
        })
    }

    fn holes(&mut self) -> Result<[u64; HOLE_WORDS], DecodeError> {
        let mut holes = [0; HOLE_WORDS];
        for word in &mut holes {
            *word = self.u64()?;
        }
        Ok(holes)
    }

    fn hijacked(&mut self) -> Result<[HijackedReturn; MAX_HIJACKED_RETURNS], DecodeError> {
        let mut hijacked = [HijackedReturn::default(); MAX_HIJACKED_RETURNS];
        for entry in &mut hijacked {
            *entry = HijackedReturn { slot: self.u64()?, original: self.u64()? };
        }
        Ok(hijacked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_bytes(kind: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in [kind, 11, 12, 0] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend(99_u64.to_ne_bytes());
        bytes
    }

    /// An allocation event whose every field has its own value, with `stack` behind it.
    fn alloc_bytes(stack_len: u32, hijacked_len: u32, stack: &[u8]) -> Vec<u8> {
        let mut bytes = header_bytes(EventKind::Alloc as u32);
        for field in [0x1000, 64, CERTAIN / 2, 0x4000, 7] {
            bytes.extend(u64::to_ne_bytes(field));
        }
        for field in [FunctionKind::Realloc as u32, 3, stack_len, hijacked_len] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend((90..95_u64).flat_map(u64::to_ne_bytes));
        bytes.extend(*b"worker-1\0\0\0\0\0\0\0\0");
        bytes.extend((100..124_u64).flat_map(u64::to_ne_bytes));
        assert_eq!(bytes.len(), size_of::<AllocEvent>());
        bytes.extend(stack);
        bytes
    }

    #[test]
    fn every_field_of_an_allocation_is_where_the_layout_says() {
        let bytes = alloc_bytes(4, 2, &[1, 2, 3, 4, 0xee, 0xee]);
        let Ok(Event::Alloc { event, stack }) = decode(&bytes) else { panic!("an allocation") };
        assert_eq!(event.header, EventHeader { kind: 1, tgid: 11, tid: 12, reserved: 0, time: 99 });
        assert_eq!((event.address, event.size, event.probability), (0x1000, 64, CERTAIN / 2));
        assert_eq!((event.function, event.replaces, event.stack.kind), (0x4000, 7, 2));
        assert_eq!((event.stack.flags, event.stack.len, event.stack.hijacked_len), (3, 4, 2));
        assert_eq!((event.stack.start, event.stack.holes), (90, [91, 92, 93, 94]));
        assert_eq!(&event.stack.comm, b"worker-1\0\0\0\0\0\0\0\0");
        let r = event.stack.registers;
        assert_eq!(
            [r.ip, r.sp, r.bp, r.bx, r.r12, r.r13, r.r14, r.r15],
            [100, 101, 102, 103, 104, 105, 106, 107]
        );
        assert_eq!(event.stack.hijacked[0], HijackedReturn { slot: 108, original: 109 });
        assert_eq!(event.stack.hijacked[7], HijackedReturn { slot: 122, original: 123 });
        assert_eq!(stack, [1, 2, 3, 4], "what follows the stack is not initialised");
    }

    #[test]
    fn free_and_exec() {
        let mut bytes = header_bytes(EventKind::Free as u32);
        bytes.extend(5_u64.to_ne_bytes());
        bytes.extend(6_u64.to_ne_bytes());
        assert!(matches!(decode(&bytes), Ok(Event::Free(FreeEvent { address: 5, allocated_at: 6, .. }))));
        assert!(matches!(decode(&header_bytes(EventKind::Exec as u32)), Ok(Event::Exec(_))));
    }

    #[test]
    fn forks_and_memory_maps() {
        let words = |kind: EventKind, words: &[u64]| {
            let mut bytes = header_bytes(kind as u32);
            bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
            bytes
        };
        let bytes = words(EventKind::Fork, &[3 << 32 | 77, 9]);
        let Ok(Event::Fork(fork)) = decode(&bytes) else { panic!("a fork") };
        assert_eq!((fork.child, fork.flags, fork.start_time), (77, 3, 9));

        let bytes = words(EventKind::Unmap, &[0x1000, 5, MapCall::Mremap as u64]);
        let Ok(Event::Unmap { call: MapCall::Mremap, event }) = decode(&bytes) else { panic!("an unmap") };
        assert_eq!((event.address, event.length), (0x1000, 5));
        for wrong in [MapCall::Mmap, MapCall::Mprotect] {
            let bytes = words(EventKind::Unmap, &[0x1000, 5, wrong as u64]);
            assert_eq!(decode(&bytes), Err(DecodeError::MapCall(wrong as u32)));
        }
        assert!(matches!(
            decode(&words(EventKind::Protect, &[1, 2, 3])),
            Ok(Event::Protect(RangeEvent { address: 1, length: 2, argument: 3, .. }))
        ));
        assert!(matches!(decode(&words(EventKind::Unmapped, &[1, 2, 0])), Ok(Event::Unmapped(_))));

        let mut map = words(EventKind::Map, &[1, 2, 3, 4, 6 << 32 | 5, u64::from(MapCall::Brk as u32), 2]);
        map.extend((0..31_u64).flat_map(u64::to_ne_bytes));
        assert_eq!(map.len(), size_of::<MapEvent>());
        map.extend([8, 9]);
        let Ok(Event::Map { call: MapCall::Brk, event, stack: [8, 9] }) = decode(&map) else {
            panic!("a map")
        };
        assert_eq!((event.address, event.length, event.old_address, event.old_length), (1, 2, 3, 4));
        assert_eq!((event.protection, event.flags, event.stack.start), (5, 6, 0));
        map[24 + 40] = MapCall::Munmap as u8;
        assert_eq!(decode(&map), Err(DecodeError::MapCall(MapCall::Munmap as u32)));
    }

    #[test]
    fn every_prefix_of_an_event_is_an_error() {
        let bytes = alloc_bytes(16, 0, &[0; 16]);
        for len in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..len]), Err(DecodeError::TooShort { .. })), "{len} bytes");
        }
        assert!(decode(&bytes).is_ok());
    }

    #[test]
    fn impossible_fields_are_errors() {
        assert_eq!(decode(&header_bytes(0)), Err(DecodeError::UnknownKind(0)));
        let needed = size_of::<AllocEvent>() + u32::MAX as usize;
        let bytes = alloc_bytes(u32::MAX, 0, &[0; 8]);
        assert_eq!(decode(&bytes), Err(DecodeError::TooShort { needed, available: bytes.len() }));
        assert_eq!(decode(&alloc_bytes(0, 9, &[])), Err(DecodeError::HijackedReturns(9)));

        let patched = |offset: usize, field: &[u8]| {
            let mut bytes = alloc_bytes(0, 0, &[]);
            bytes[offset..offset + field.len()].copy_from_slice(field);
            decode(&bytes).map(|_| ())
        };
        assert_eq!(patched(40, &0_u64.to_ne_bytes()), Err(DecodeError::Probability(0)));
        assert_eq!(patched(40, &(CERTAIN + 1).to_ne_bytes()), Err(DecodeError::Probability(CERTAIN + 1)));
        assert_eq!(patched(64, &6_u32.to_ne_bytes()), Err(DecodeError::FunctionKind(6)), "free");
        assert_eq!(patched(64, &99_u32.to_ne_bytes()), Err(DecodeError::FunctionKind(99)));
    }
}
