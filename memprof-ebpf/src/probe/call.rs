//! Calls of allocating functions: the decision at entry, the block at return.
//!
//! ```text
//! entry ── nested in another allocator function? ── yes ─► nothing
//!   │ no
//!   ├─ leaf functions:   sampled? ── no ─► nothing (a session skips the return)
//!   │                       └─ yes ─► CALLS[(thread, sp)]
//!   └─ functions that may call others: OUTER[thread], CALLS[(thread, sp)] always;
//!      realloc also takes its old block out of LIVE: from here on the allocator may give it away
//! return ── old block: freed, or put back when realloc failed
//!        └─ sampled and successful ─► LIVE[block], event with the stack
//! ```

use core::ffi::c_void;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::{bpf_get_func_ip, bpf_ktime_get_ns, bpf_probe_read_user};
use memprof_common::counter::Counter;
use memprof_common::function::{FunctionKind, Nesting};
use memprof_common::live::{LiveKey, LiveValue};

use super::{decision, free, pid_tgid, registers, settings};
use crate::maps::{CALLS, Call, CallKey, OUTER, OuterCall};
use crate::{counter, emit, live};

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
pub(crate) fn session(ctx: *mut c_void, kind: FunctionKind, nesting: Nesting) -> u32 {
    // SAFETY: the context is passed on unchanged, as the helper demands.
    let probe = unsafe { bpf_get_func_ip(ctx) };
    if registers(ctx).rip == probe { entry(ctx, kind, nesting) } else { returned(ctx) }
}

/// Entry program, beside a return program that sees every return: one that is not awaited must not
/// meet what a call without a return (it threw, or jumped out) has left at its place in the stack.
#[inline(always)]
pub(crate) fn entry_alone(ctx: *mut c_void, kind: FunctionKind, nesting: Nesting) -> u32 {
    if entry(ctx, kind, nesting) == SKIP_RETURN {
        let key = CallKey { pid_tgid: pid_tgid(), stack_pointer: registers(ctx).rsp };
        // SAFETY: the old value is only compared with null and copied.
        if let Some(stale) = unsafe { CALLS.get(key) }.copied()
            && !is_nested(&key)
        {
            drop_stale(&key, &stale);
            let _ = CALLS.remove(key);
        }
    }
    SEE_RETURN
}

/// Entry of an allocating function.
#[inline(always)]
fn entry(ctx: *mut c_void, kind: FunctionKind, nesting: Nesting) -> u32 {
    counter::count_call(kind);
    let Some(settings) = settings() else { return SKIP_RETURN };
    let registers = registers(ctx);
    let Some(size) = requested(kind, registers) else { return SKIP_RETURN };
    let probability = decision::draw(settings, size);
    let sampled = probability != 0;
    if !sampled && matches!(nesting, Nesting::Leaf) {
        return SKIP_RETURN;
    }

    let pid_tgid = pid_tgid();
    let key = CallKey { pid_tgid, stack_pointer: registers.rsp };
    if is_nested(&key) {
        counter::count(Counter::Nested);
        return SKIP_RETURN;
    }
    if kind.may_throw() && size > settings.throw_limit {
        counter::count(Counter::UnsafeReturns);
        return SKIP_RETURN;
    }
    if sampled {
        counter::count(Counter::Sampled);
    }
    let outer = matches!(nesting, Nesting::Outer);
    let mut call = Call {
        size,
        probability,
        function: registers.rip,
        old_address: 0,
        old_allocated_at: 0,
        detail: match kind {
            FunctionKind::PosixMemalign => registers.rdi,
            FunctionKind::ResizeInPlace => registers.rdx,
            _ => 0,
        },
        kind: kind as u32,
        outer: outer as u32,
    };
    if kind.takes_old_block() && registers.rdi != 0 {
        call.old_address = registers.rdi;
        call.old_allocated_at = free::take(pid_tgid, registers.rdi).unwrap_or(0);
    }
    if (!outer || mark_outer(&key)) && await_return(&key, &call) {
        return SEE_RETURN;
    }
    counter::count(Counter::InFlightFull);
    // What becomes of the old block will not be seen; nearly always it is gone.
    if call.old_allocated_at != 0 {
        emit::free(pid_tgid, call.old_address, call.old_allocated_at);
    }
    let _ = OUTER.remove(pid_tgid as u32);
    SKIP_RETURN
}

/// The bytes that a call asks for.
#[inline(always)]
fn requested(kind: FunctionKind, registers: &pt_regs) -> Option<u64> {
    Some(match kind {
        FunctionKind::Malloc | FunctionKind::New => registers.rdi,
        FunctionKind::Calloc | FunctionKind::NewArray => product(registers.rdi, registers.rsi),
        FunctionKind::Realloc
        | FunctionKind::ReallocOrFree
        | FunctionKind::ResizeInPlace
        | FunctionKind::AlignedAlloc => registers.rsi,
        FunctionKind::ReallocArray => product(registers.rsi, registers.rdx),
        FunctionKind::PosixMemalign => registers.rdx,
        FunctionKind::Free => return None,
    })
}

/// Remembers a call until its return. Whether there was room for it.
#[inline(always)]
fn await_return(key: &CallKey, call: &Call) -> bool {
    // SAFETY: the old value is only compared with null and copied.
    if let Some(stale) = unsafe { CALLS.get(key) }.copied() {
        drop_stale(key, &stale);
    }
    CALLS.insert(key, call, 0).is_ok()
}

/// Gives up a call that never returned.
#[inline(always)]
fn drop_stale(key: &CallKey, stale: &Call) {
    counter::count(Counter::ReturnMissed);
    // Its realloc has certainly come to an end; its old block is taken as freed.
    if stale.old_allocated_at != 0 {
        emit::free(key.pid_tgid, stale.old_address, stale.old_allocated_at);
    }
}

/// Return of a call whose entry asked for it.
#[inline(always)]
pub(crate) fn returned(ctx: *mut c_void) -> u32 {
    counter::count(Counter::Returns);
    let pid_tgid = pid_tgid();
    let registers = registers(ctx);
    // The return has popped the return address.
    let key = CallKey { pid_tgid, stack_pointer: registers.rsp.wrapping_sub(8) };
    // SAFETY: the call belongs to this thread alone, and is copied before it is removed.
    let Some(mut call) = (unsafe { CALLS.get(key) }).copied() else { return 0 };
    let _ = CALLS.remove(key);
    let Some(kind) = FunctionKind::from_u32(call.kind) else { return 0 };
    if call.outer != 0 {
        let _ = OUTER.remove(pid_tgid as u32);
    }

    let address = result(kind, registers.rax, &mut call);
    if call.old_allocated_at != 0 {
        settle_old_block(pid_tgid, kind, &call, address);
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
/// `realloc(block, 0)` frees the block and returns null (glibc, tcmalloc).
#[inline(always)]
fn settle_old_block(pid_tgid: u64, kind: FunctionKind, call: &Call, address: u64) {
    let freed = match kind {
        FunctionKind::ReallocOrFree => true,
        FunctionKind::ResizeInPlace => address != 0,
        _ => address != 0 || call.size == 0,
    };
    if freed {
        emit::free(pid_tgid, call.old_address, call.old_allocated_at);
        return;
    }
    counter::count(Counter::FailedReallocs);
    let key = LiveKey { address: call.old_address, tgid: (pid_tgid >> 32) as u32, reserved: 0 };
    let value = LiveValue { allocated_at: call.old_allocated_at };
    if !live::insert(key, value) {
        // The table filled up meanwhile: without an entry the block's free would go unseen.
        counter::count(Counter::LiveTableFullAllocs);
        emit::free(pid_tgid, call.old_address, call.old_allocated_at);
    }
}

/// The block that a call handed out, or 0. A resize in place hands out the old block anew, with as many
/// of the extra bytes as it got.
#[inline(always)]
fn result(kind: FunctionKind, returned: u64, call: &mut Call) -> u64 {
    match kind {
        FunctionKind::PosixMemalign if returned as u32 != 0 => 0,
        // SAFETY: bpf_probe_read_user checks the address itself.
        FunctionKind::PosixMemalign => unsafe { bpf_probe_read_user(call.detail as *const u64) }.unwrap_or(0),
        FunctionKind::ResizeInPlace if returned < call.size => 0,
        FunctionKind::ResizeInPlace => {
            let extra = returned - call.size;
            call.size += if extra < call.detail { extra } else { call.detail };
            call.old_address
        }
        _ => returned,
    }
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

/// Marks the thread as inside a function that may call other allocator functions. Whether there was room.
#[inline(always)]
fn mark_outer(key: &CallKey) -> bool {
    let outer = OuterCall { stack_pointer: key.stack_pointer, entered_at: now() };
    OUTER.insert(key.pid_tgid as u32, outer, 0).is_ok()
}

/// Forgets the call that a thread was in when it ended: it hands out nothing any more.
#[inline(always)]
pub(crate) fn thread_ended(pid_tgid: u64) {
    let tid = pid_tgid as u32;
    // SAFETY: the mark belongs to this thread alone, and is copied before it is removed.
    let Some(outer) = (unsafe { OUTER.get(tid) }).copied() else { return };
    let _ = OUTER.remove(tid);
    let _ = CALLS.remove(CallKey { pid_tgid, stack_pointer: outer.stack_pointer });
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
fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
