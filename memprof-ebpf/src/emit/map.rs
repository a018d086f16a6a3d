//! Events of memory maps.

use memprof_common::counter::Counter;
use memprof_common::event::{EventKind, MapCall, MapEvent, RangeEvent, Registers, STACK_CLASSES};

use super::header;
use crate::counter;
use crate::maps::EVENTS;
use crate::probe::settings;
use crate::stack::{self, Extent};

/// What a call that has mapped memory gave and was given; the fields are those of [`MapEvent`].
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    pub(crate) pid_tgid: u64,
    pub(crate) call: MapCall,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) old_address: u64,
    pub(crate) old_length: u64,
    pub(crate) protection: u32,
    pub(crate) flags: u32,
}

/// Something happens, or has happened, to a range.
#[inline(never)]
pub(crate) fn range(kind: EventKind, pid_tgid: u64, address: u64, length: u64, argument: u64) -> u32 {
    let Some(mut entry) = EVENTS.reserve::<RangeEvent>(0) else {
        counter::count(Counter::RingFullMaps);
        return 0;
    };
    entry.write(RangeEvent { header: header(kind, pid_tgid), address, length, argument });
    entry.submit(0);
    0
}

/// A call has mapped memory: sends it with its stack.
#[inline(never)]
pub(crate) fn mapped(mapped: &Mapped, registers: &Registers) -> u32 {
    let Some(settings) = settings() else { return 0 };
    let extent = stack::extent(settings, registers.sp);
    match extent.len {
        len if len <= u64::from(STACK_CLASSES[0]) => {
            record::<{ STACK_CLASSES[0] }>(mapped, registers, extent)
        }
        len if len <= u64::from(STACK_CLASSES[1]) => {
            record::<{ STACK_CLASSES[1] }>(mapped, registers, extent)
        }
        len if len <= u64::from(STACK_CLASSES[2]) => {
            record::<{ STACK_CLASSES[2] }>(mapped, registers, extent)
        }
        len if len <= u64::from(STACK_CLASSES[3]) => {
            record::<{ STACK_CLASSES[3] }>(mapped, registers, extent)
        }
        len if len <= u64::from(STACK_CLASSES[4]) => {
            record::<{ STACK_CLASSES[4] }>(mapped, registers, extent)
        }
        len if len <= u64::from(STACK_CLASSES[5]) => {
            record::<{ STACK_CLASSES[5] }>(mapped, registers, extent)
        }
        _ => record::<{ STACK_CLASSES[6] }>(mapped, registers, extent),
    }
}

/// [`mapped`] with room for `CAPACITY` bytes of stack.
#[inline(always)]
fn record<const CAPACITY: u32>(mapped: &Mapped, registers: &Registers, extent: Extent) -> u32 {
    let Some(mut entry) = EVENTS.reserve_bytes(size_of::<MapEvent>() + CAPACITY as usize, 0) else {
        counter::count(Counter::RingFullMaps);
        counter::add(Counter::RingFullMapBytes, mapped.length);
        return 0;
    };
    let start = entry.as_mut_ptr();
    let event = start.cast::<MapEvent>();
    // SAFETY: the entry holds a MapEvent followed by CAPACITY bytes and is 8-byte aligned, as all ring
    // entries are.
    unsafe {
        (&raw mut (*event).header).write(header(EventKind::Map, mapped.pid_tgid));
        (&raw mut (*event).address).write(mapped.address);
        (&raw mut (*event).length).write(mapped.length);
        (&raw mut (*event).old_address).write(mapped.old_address);
        (&raw mut (*event).old_length).write(mapped.old_length);
        (&raw mut (*event).protection).write(mapped.protection);
        (&raw mut (*event).flags).write(mapped.flags);
        let bytes = start.add(size_of::<MapEvent>());
        stack::write::<CAPACITY>(&raw mut (*event).stack, bytes, mapped.call as u32, registers, extent);
    }
    entry.submit(0);
    0
}
