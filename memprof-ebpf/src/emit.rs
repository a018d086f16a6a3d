//! Events into the ring. Whatever cannot be sent is counted.

pub(crate) mod map;

use core::ffi::c_void;

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_RING_SIZE};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::ProbeContext;
use aya_log_ebpf::warn;
use memprof_common::counter::Counter;
use memprof_common::event::{
    AllocEvent, EventHeader, EventKind, ExecEvent, ForkEvent, FreeEvent, STACK_CLASSES,
};
use memprof_common::live::{LiveKey, LiveValue};
use memprof_common::sampling::weighted_bytes;

use crate::maps::{Call, EVENTS, LIVE};
use crate::probe::{pid_tgid, registers, settings, unwinding};
use crate::stack::{self, Extent};
use crate::{counter, live};

#[inline(always)]
pub(crate) fn header(kind: EventKind, pid_tgid: u64) -> EventHeader {
    EventHeader {
        kind: kind as u32,
        tgid: (pid_tgid >> 32) as u32,
        tid: pid_tgid as u32,
        reserved: 0,
        // SAFETY: the helper has no preconditions.
        time: unsafe { bpf_ktime_get_ns() },
    }
}

/// A sampled block is gone (or about to be).
#[inline(never)]
pub(crate) fn free(pid_tgid: u64, address: u64, allocated_at: u64) {
    let Some(mut entry) = EVENTS.reserve::<FreeEvent>(0) else {
        counter::count(Counter::RingFullFrees);
        return;
    };
    entry.write(FreeEvent { header: header(EventKind::Free, pid_tgid), address, allocated_at });
    entry.submit(0);
}

/// A watched process has replaced its program; `caller` is the thread that asked for it.
#[inline(always)]
pub(crate) fn exec(tgid: u32, caller: u32) {
    let Some(mut entry) = EVENTS.reserve::<ExecEvent>(0) else {
        counter::count(Counter::RingFullExecs);
        return;
    };
    entry.write(ExecEvent { header: header(EventKind::Exec, u64::from(tgid) << 32 | u64::from(caller)) });
    entry.submit(0);
}

/// A watched process (of this header's tgid) has a child.
#[inline(always)]
pub(crate) fn fork(parent: u64, child: u32, flags: u32, start_time: u64) {
    let Some(mut entry) = EVENTS.reserve::<ForkEvent>(0) else {
        counter::count(Counter::RingFullForks);
        return;
    };
    entry.write(ForkEvent { header: header(EventKind::Fork, parent), child, flags, start_time });
    entry.submit(0);
}

/// A sampled block was handed out: enters it into the live table and sends it with its stack.
#[inline(never)]
pub(crate) fn alloc(ctx: *mut c_void, call: &Call, address: u64) -> u32 {
    let Some(settings) = settings() else { return 0 };
    let extent = stack::extent(settings, registers(ctx).rsp);
    match extent.len {
        len if len <= u64::from(STACK_CLASSES[0]) => {
            record::<{ STACK_CLASSES[0] }>(ctx, call, address, extent)
        }
        len if len <= u64::from(STACK_CLASSES[1]) => {
            record::<{ STACK_CLASSES[1] }>(ctx, call, address, extent)
        }
        len if len <= u64::from(STACK_CLASSES[2]) => {
            record::<{ STACK_CLASSES[2] }>(ctx, call, address, extent)
        }
        len if len <= u64::from(STACK_CLASSES[3]) => {
            record::<{ STACK_CLASSES[3] }>(ctx, call, address, extent)
        }
        len if len <= u64::from(STACK_CLASSES[4]) => {
            record::<{ STACK_CLASSES[4] }>(ctx, call, address, extent)
        }
        len if len <= u64::from(STACK_CLASSES[5]) => {
            record::<{ STACK_CLASSES[5] }>(ctx, call, address, extent)
        }
        _ => record::<{ STACK_CLASSES[6] }>(ctx, call, address, extent),
    }
}

/// [`alloc`] with room for `CAPACITY` bytes of stack.
#[inline(always)]
fn record<const CAPACITY: u32>(ctx: *mut c_void, call: &Call, address: u64, extent: Extent) -> u32 {
    let Some(mut entry) = EVENTS.reserve_bytes(size_of::<AllocEvent>() + CAPACITY as usize, 0) else {
        counter::count(Counter::RingFullAllocs);
        counter::add(Counter::RingFullBytes, weighted_bytes(call.size, call.probability));
        return 0;
    };
    let pid_tgid = pid_tgid();
    let header = header(EventKind::Alloc, pid_tgid);
    let key = LiveKey { address, tgid: header.tgid, reserved: 0 };
    // SAFETY: the value is copied at once.
    let replaces = unsafe { LIVE.get(key) }.map_or(0, |missed| missed.allocated_at);
    if !live::insert(key, LiveValue { allocated_at: header.time }) {
        entry.discard(0);
        live_table_full(ctx, call);
        return 0;
    }
    if replaces != 0 {
        counter::count(Counter::FreeMissed);
    }
    if is_ring_under_pressure() {
        counter::count(Counter::RingPressure);
    }

    let start = entry.as_mut_ptr();
    let event = start.cast::<AllocEvent>();
    // SAFETY: the entry holds an AllocEvent followed by CAPACITY bytes and is 8-byte aligned, as all
    // ring entries are. Fields are written in place: the structure is too large for the BPF stack.
    unsafe {
        (&raw mut (*event).header).write(header);
        (&raw mut (*event).address).write(address);
        (&raw mut (*event).size).write(call.size);
        (&raw mut (*event).probability).write(call.probability);
        (&raw mut (*event).function).write(call.function);
        (&raw mut (*event).replaces).write(replaces);
        let registers = unwinding(registers(ctx));
        let bytes = start.add(size_of::<AllocEvent>());
        stack::write::<CAPACITY>(&raw mut (*event).stack, bytes, call.kind, &registers, extent);
    }
    entry.submit(0);
    0
}

/// Whether user space has yet to read more than three quarters of the ring.
#[inline(always)]
fn is_ring_under_pressure() -> bool {
    EVENTS.query(BPF_RB_AVAIL_DATA.into()) > EVENTS.query(BPF_RB_RING_SIZE.into()) / 4 * 3
}

#[inline(never)]
fn live_table_full(ctx: *mut c_void, call: &Call) -> u32 {
    let before = counter::add(Counter::LiveTableFullAllocs, 1);
    counter::add(Counter::LiveTableFullBytes, weighted_bytes(call.size, call.probability));
    if before == 0 {
        let ctx = ProbeContext::new(ctx);
        warn!(
            &ctx,
            "live table full: blocks are not tracked until it has been thinned; raise --memory-budget"
        );
    }
    0
}
