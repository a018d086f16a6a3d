//! How much of the user stack there is to copy, and copying it.
//!
//! ```text
//!   sp ──►│ frames of the caller … │ thread entry │ TLS │ TCB │      pthread: fsbase is the TCB
//!   sp ──►│ frames of the caller … │ _start │ argc argv env …        primordial: mm.start_stack
//! ```

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use memprof_common::event::{
    HijackedReturn, MAX_HIJACKED_RETURNS, STACK_FAULTED, STACK_HIJACKED_OVERFLOW, STACK_LIMITED, STACK_UNBOUNDED,
};
use memprof_common::settings::{KernelOffsets, Settings};

use crate::kernel::{current_task, read_word};

/// No thread's stack is believed to be larger than this (64 MiB): a thread control block further
/// away belongs to something else (the primordial thread's, a coroutine's).
const MAX_STACK_SPAN: u64 = 64 << 20;

/// Bytes that one read takes when the whole cannot be read at once. A multiple of this never
/// crosses more than one page boundary.
const CHUNK: u32 = 256;

/// How many bytes of stack a snapshot should take.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes from the stack pointer upwards.
    pub len: u32,
    /// `STACK_*` flags.
    pub flags: u32,
}

/// How much stack there is above `sp`, at most the configured limit.
#[inline(always)]
pub(crate) fn extent(settings: &Settings, sp: u64) -> Extent {
    let limit = settings.stack_limit;
    let (span, flags) = match span(&settings.kernel, sp) {
        Some(span) => (span, 0),
        None => (u64::from(limit), STACK_UNBOUNDED | STACK_LIMITED),
    };
    if span > u64::from(limit) {
        Extent { len: limit, flags: flags | STACK_LIMITED }
    } else {
        Extent { len: span as u32, flags }
    }
}

/// Distance from `sp` to the end of the thread's stack.
#[inline(always)]
fn span(offsets: &KernelOffsets, sp: u64) -> Option<u64> {
    let task = current_task();
    if let Some(fsbase) = read_word(task, offsets.task_fsbase) {
        let span = fsbase.wrapping_sub(sp);
        if span != 0 && span <= MAX_STACK_SPAN {
            return Some(span);
        }
    }
    let mm = read_word(task, offsets.task_mm)?;
    let top = read_word(mm, offsets.mm_start_stack)?;
    let span = top.wrapping_sub(sp);
    (span != 0 && span <= MAX_STACK_SPAN).then_some(span)
}

/// Copies `len` bytes of user memory at `source` to `target`, which has room for `CAPACITY` bytes;
/// returns how many could be copied and [`STACK_FAULTED`] when that is fewer.
///
/// Page faults cannot be served here, so pages that are swapped out or were never touched end the
/// copy. One large read fails as a whole; then the copy goes on in small pieces up to the bad page.
#[inline(always)]
pub(crate) fn copy<const CAPACITY: u32>(target: *mut u8, source: u64, len: u32) -> (u32, u32) {
    if len > CAPACITY {
        return (0, STACK_FAULTED);
    }
    // SAFETY: target has CAPACITY >= len bytes; the helper checks the source address itself.
    if unsafe { bpf_probe_read_user(target.cast::<c_void>(), len, source as *const c_void) } == 0 {
        return (len, 0);
    }
    let mut copied = 0;
    let mut chunk = 0;
    while chunk < CAPACITY / CHUNK {
        let offset = chunk * CHUNK;
        if offset + CHUNK > len {
            break;
        }
        // SAFETY: offset + CHUNK <= CAPACITY by the loop's bound.
        let failed = unsafe {
            bpf_probe_read_user(
                target.add(offset as usize).cast::<c_void>(),
                CHUNK,
                (source + u64::from(offset)) as *const c_void,
            )
        };
        if failed != 0 {
            break;
        }
        copied = offset + CHUNK;
        chunk += 1;
    }
    (copied, STACK_FAULTED)
}

/// Writes the return addresses on this thread's stack that uretprobes have replaced (ours of outer
/// calls, or another tracer's) to `target`; returns how many and an overflow flag.
///
/// The kernel keeps them in `uprobe_task.return_instances`, innermost first, and has already taken
/// out the one that is returning.
#[inline(always)]
pub(crate) fn hijacked_returns(
    offsets: &KernelOffsets,
    target: *mut [HijackedReturn; MAX_HIJACKED_RETURNS],
) -> (u32, u32) {
    let mut instance = read_word(current_task(), offsets.task_utask)
        .and_then(|utask| read_word(utask, offsets.utask_return_instances))
        .unwrap_or(0);
    let mut len = 0;
    while len < MAX_HIJACKED_RETURNS {
        let (Some(slot), Some(original)) = (
            read_word(instance, offsets.return_instance_stack),
            read_word(instance, offsets.return_instance_original),
        ) else {
            return (len as u32, 0);
        };
        // SAFETY: len is below the array's length.
        unsafe { (&raw mut (*target)[len]).write(HijackedReturn { slot, original }) };
        len += 1;
        instance = read_word(instance, offsets.return_instance_next).unwrap_or(0);
    }
    (len as u32, if instance == 0 { 0 } else { STACK_HIJACKED_OVERFLOW })
}
