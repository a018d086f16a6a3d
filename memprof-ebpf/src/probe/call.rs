//! Calls of allocating functions: the decision at entry, the block at return.
//!
//! ```text
//! entry ── nested in another allocator function? ── yes ─► nothing
//!   │ no
//!   ├─ malloc, calloc:   sampled? ── no ─► nothing (a session skips the return)
//!   │                       └─ yes ─► CALLS[(thread, sp)]
//!   └─ functions that may call others: OUTER[thread], CALLS[(thread, sp)] always;
//!      realloc also takes its old block out of LIVE: from here on the allocator may give it away
//! return ── old block: freed, or put back when realloc failed
//!        └─ sampled and successful ─► LIVE[block], event with the stack
//! ```

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_get_func_ip, bpf_get_prandom_u32, bpf_ktime_get_ns, bpf_probe_read_user};
use memprof_common::counter::Counter;
use memprof_common::function::FunctionKind;
use memprof_common::live::{LiveKey, LiveValue};
use memprof_common::sampling::{CERTAIN, is_sampled, probability};

use super::{free, pid_tgid, registers, settings};
use crate::maps::{CALLS, Call, CallKey, LIVE, OUTER, OuterCall};
use crate::{counter, emit};

/// A thread is not believed to be inside one allocator call for longer than this: it left by
/// `longjmp`, and its mark must not hide what it allocates from then on.
const OUTER_CALL_EXPIRES_NS: u64 = 10_000_000_000;

/// The return value with which a session program skips the return of this call.
const SKIP_RETURN: u32 = 1;
/// The return value with which a session program asks for the return of this call.
const SEE_RETURN: u32 = 0;

/// Session program: entry and return of a call are told apart by the instruction pointer, which is
/// at the probe only on entry.
#[inline(always)]
pub(crate) fn session(ctx: *mut c_void, kind: FunctionKind) -> u32 {
    // SAFETY: the context is passed on unchanged, as the helper demands.
    let probe = unsafe { bpf_get_func_ip(ctx) };
    if registers(ctx).rip == probe { entry(ctx, kind) } else { returned(ctx) }
}

/// Entry of an allocating function.
#[inline(always)]
pub(crate) fn entry(ctx: *mut c_void, kind: FunctionKind) -> u32 {
    counter::count(Counter::AllocCalls);
    let Some(settings) = settings() else { return SKIP_RETURN };
    let registers = registers(ctx);
    let size = match kind {
        FunctionKind::Malloc => registers.rdi,
        FunctionKind::Calloc => product(registers.rdi, registers.rsi),
        FunctionKind::Realloc | FunctionKind::AlignedAlloc => registers.rsi,
        FunctionKind::ReallocArray => product(registers.rsi, registers.rdx),
        FunctionKind::PosixMemalign => registers.rdx,
        FunctionKind::Free => return SKIP_RETURN,
    };
    let probability = probability(size, settings.sample_interval, settings.sample_slope);
    let sampled =
        settings.sample_interval != 0 && (probability >= CERTAIN || is_sampled(probability, random()));
    if !sampled && !kind.may_nest() {
        return SKIP_RETURN;
    }

    let pid_tgid = pid_tgid();
    let key = CallKey { pid_tgid, stack_pointer: registers.rsp };
    if is_nested(&key) {
        counter::count(Counter::Nested);
        return SKIP_RETURN;
    }
    if sampled {
        counter::count(Counter::Sampled);
    }
    let mut call = Call {
        size,
        probability: if sampled { probability } else { 0 },
        function: registers.rip,
        old_address: 0,
        old_allocated_at: 0,
        result_slot: if matches!(kind, FunctionKind::PosixMemalign) { registers.rdi } else { 0 },
        kind: kind as u32,
        reserved: 0,
    };
    if kind.may_nest() && !mark_outer(&key) {
        return SKIP_RETURN;
    }
    if matches!(kind, FunctionKind::Realloc | FunctionKind::ReallocArray) && registers.rdi != 0 {
        call.old_address = registers.rdi;
        call.old_allocated_at = free::take(pid_tgid, registers.rdi).unwrap_or(0);
    }
    await_return(&key, &call)
}

/// Remembers a call until its return.
#[inline(always)]
fn await_return(key: &CallKey, call: &Call) -> u32 {
    // SAFETY: the old value is only compared with null and its one field copied.
    if let Some(stale) = unsafe { CALLS.get(key) } {
        counter::count(Counter::ReturnMissed);
        // That call's realloc has certainly come to an end; its old block is taken as freed.
        if stale.old_allocated_at != 0 {
            emit::free(key.pid_tgid, stale.old_address, stale.old_allocated_at);
        }
    }
    if CALLS.insert(key, call, 0).is_ok() {
        return SEE_RETURN;
    }
    counter::count(Counter::InFlightFull);
    if call.old_allocated_at != 0 {
        emit::free(key.pid_tgid, call.old_address, call.old_allocated_at);
    }
    let _ = OUTER.remove(key.pid_tgid as u32);
    SKIP_RETURN
}

/// Return of a call whose entry asked for it.
#[inline(always)]
pub(crate) fn returned(ctx: *mut c_void) -> u32 {
    let pid_tgid = pid_tgid();
    let registers = registers(ctx);
    // The return has popped the return address.
    let key = CallKey { pid_tgid, stack_pointer: registers.rsp.wrapping_sub(8) };
    // SAFETY: the call belongs to this thread alone, and is copied before it is removed.
    let Some(call) = (unsafe { CALLS.get(key) }).copied() else { return 0 };
    let _ = CALLS.remove(key);
    let Some(kind) = FunctionKind::from_u32(call.kind) else { return 0 };
    if kind.may_nest() {
        let _ = OUTER.remove(pid_tgid as u32);
    }

    let address = result(kind, registers.rax, call.result_slot);
    if call.old_allocated_at != 0 {
        settle_old_block(pid_tgid, &call, address);
    }
    if call.probability == 0 {
        return 0;
    }
    if address == 0 {
        counter::count(Counter::FailedAllocations);
        return 0;
    }
    emit::alloc(ctx, &call, address);
    0
}

/// What became of the block that was handed to `realloc`: it is gone, unless the call failed.
/// `realloc(block, 0)` frees the block and returns null (glibc).
#[inline(always)]
fn settle_old_block(pid_tgid: u64, call: &Call, address: u64) {
    if address != 0 || call.size == 0 {
        emit::free(pid_tgid, call.old_address, call.old_allocated_at);
        return;
    }
    counter::count(Counter::FailedReallocs);
    let key = LiveKey { address: call.old_address, tgid: (pid_tgid >> 32) as u32, reserved: 0 };
    let value = LiveValue { allocated_at: call.old_allocated_at };
    if LIVE.insert(key, value, 0).is_err() {
        // The table filled up meanwhile: without an entry the block's free would go unseen.
        counter::count(Counter::LiveTableFullAllocs);
        emit::free(pid_tgid, call.old_address, call.old_allocated_at);
    }
}

/// The block that a call handed out, or 0.
#[inline(always)]
fn result(kind: FunctionKind, returned: u64, result_slot: u64) -> u64 {
    if !matches!(kind, FunctionKind::PosixMemalign) {
        return returned;
    }
    if returned as u32 != 0 {
        return 0;
    }
    // SAFETY: bpf_probe_read_user checks the address itself.
    unsafe { bpf_probe_read_user(result_slot as *const u64) }.unwrap_or(0)
}

/// Whether this call happens inside another allocator function of the same thread. A tail call has
/// the same stack pointer.
#[inline(always)]
fn is_nested(key: &CallKey) -> bool {
    let tid = key.pid_tgid as u32;
    // SAFETY: the mark belongs to this thread alone.
    let Some(outer) = (unsafe { OUTER.get(tid) }) else { return false };
    key.stack_pointer <= outer.stack_pointer && now().wrapping_sub(outer.entered_at) < OUTER_CALL_EXPIRES_NS
}

/// Marks the thread as inside a function that may call other allocator functions.
#[inline(always)]
fn mark_outer(key: &CallKey) -> bool {
    let outer = OuterCall { stack_pointer: key.stack_pointer, entered_at: now() };
    let marked = OUTER.insert(key.pid_tgid as u32, outer, 0).is_ok();
    if !marked {
        counter::count(Counter::InFlightFull);
    }
    marked
}

/// `count * size`, or `u64::MAX` where that is beyond the address space of 2⁴⁸ bytes, so that no such
/// request can succeed. Spelt without an overflow check, for which LLVM would want 128-bit arithmetic.
#[inline(always)]
fn product(count: u64, size: u64) -> u64 {
    let (small, large) = if count < size { (count, size) } else { (size, count) };
    if small == 0 {
        0
    } else if large >> 32 == 0 || (large >> 48 == 0 && small >> 16 == 0) {
        small * large
    } else {
        u64::MAX
    }
}

#[inline(always)]
fn random() -> u32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_prandom_u32() }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
