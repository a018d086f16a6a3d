//! How much of the user stack there is to copy, and copying it.
//!
//! ```text
//!   sp ──►│ frames of the caller … │ thread entry │ TLS │ TCB │      pthread: fsbase is the TCB
//!   sp ──►│ frames of the caller … │ _start │ argc argv env …        primordial: mm.start_stack
//! ```

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_probe_read_user};
use memprof_common::event::{
    COMM_LEN, HOLE_WORDS, HijackedReturn, MAX_HIJACKED_RETURNS, Registers, STACK_FAULTED,
    STACK_HIJACKED_OVERFLOW, STACK_LIMITED, STACK_PIECE, STACK_UNBOUNDED, StackSnapshot,
};
use memprof_common::settings::{KernelOffsets, Settings};

use memprof_common::counter::Counter;

use crate::counter;
use crate::kernel::{current_task, read_word};
use crate::probe::settings;

/// No thread's stack is believed to be larger than this (64 MiB): a thread control block further
/// away belongs to something else (the primordial thread's, a coroutine's).
const MAX_STACK_SPAN: u64 = 64 << 20;

/// The part of the stack that a snapshot should take.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Address of its first byte, a multiple of `STACK_PIECE`.
    pub(crate) start: u64,
    /// Bytes, a multiple of `STACK_PIECE`. As wide as a register: the verifier forgets a bound that was
    /// checked on a narrower copy of a value.
    pub(crate) len: u64,
    /// `STACK_*` flags.
    pub(crate) flags: u32,
}

/// How much stack there is from `sp` upwards, at most the configured limit. Rounding outwards takes in
/// a few bytes of dead stack below and of the thread control block above.
#[inline(always)]
pub(crate) fn extent(settings: &Settings, sp: u64) -> Extent {
    let piece = u64::from(STACK_PIECE);
    let limit = u64::from(settings.stack_limit) & !(piece - 1);
    let start = sp & !(piece - 1);
    let Some(span) = span(&settings.kernel, sp) else {
        return Extent { start, len: limit, flags: STACK_UNBOUNDED | STACK_LIMITED };
    };
    let len = (sp - start + span + piece - 1) & !(piece - 1);
    if len > limit {
        Extent { start, len: limit, flags: STACK_LIMITED }
    } else {
        Extent { start, len, flags: 0 }
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

/// Fills in a snapshot and copies `extent` of the stack to `bytes`, which must have room for `CAPACITY`.
///
/// # Safety
/// `snapshot` and `bytes` must point into a reserved entry of the ring.
#[inline(always)]
pub(crate) unsafe fn write<const CAPACITY: u32>(
    snapshot: *mut StackSnapshot,
    bytes: *mut u8,
    kind: u32,
    registers: &Registers,
    extent: Extent,
) {
    // SAFETY: by the caller's promise. Fields are written in place: the structure is too large for the BPF
    // stack.
    unsafe {
        (&raw mut (*snapshot).kind).write(kind);
        (&raw mut (*snapshot).registers).write(*registers);
        (&raw mut (*snapshot).start).write(extent.start);
        // On failure the helper clears the name.
        bpf_get_current_comm((&raw mut (*snapshot).comm).cast(), COMM_LEN as u32);
        for word in 0..HOLE_WORDS {
            // Volatile, or the compiler makes a loop over single bytes of it.
            (&raw mut (*snapshot).holes[word]).write_volatile(0);
        }
        let (copied, faulted) = copy::<CAPACITY>(bytes, &raw mut (*snapshot).holes, extent);
        if faulted != 0 {
            counter::count(Counter::StackUnreadable);
        }
        (&raw mut (*snapshot).len).write(copied);
        let (hijacked, overflow) = match settings() {
            Some(settings) => hijacked_returns(&settings.kernel, &raw mut (*snapshot).hijacked),
            None => (0, 0),
        };
        (&raw mut (*snapshot).hijacked_len).write(hijacked);
        (&raw mut (*snapshot).flags).write(extent.flags | faulted | overflow);
    }
}

/// Copies a part of the stack to `target`, which has room for `CAPACITY` bytes, and marks in `holes`
/// (all zero before) what could not be read. Returns the bytes up to the last one that could, and
/// [`STACK_FAULTED`] when there are holes or fewer bytes than asked for.
///
/// Page faults cannot be served here, and one large read fails as a whole. So when it does, the copy goes
/// on piece by piece: pages that were never touched (large buffers) or are swapped out become holes.
#[inline(always)]
fn copy<const CAPACITY: u32>(target: *mut u8, holes: *mut [u64; HOLE_WORDS], extent: Extent) -> (u32, u32) {
    let Extent { start, len, .. } = extent;
    if len > CAPACITY as u64 {
        return (0, STACK_FAULTED);
    }
    // SAFETY: target has CAPACITY >= len bytes; the helper checks the source address itself.
    if unsafe { bpf_probe_read_user(target.cast::<c_void>(), len as u32, start as *const c_void) } == 0 {
        return (len as u32, 0);
    }
    let mut copied = 0;
    let mut piece = 0;
    while piece < CAPACITY / STACK_PIECE {
        let offset = piece * STACK_PIECE;
        if u64::from(offset) >= len {
            break;
        }
        // SAFETY: offset + STACK_PIECE <= CAPACITY by the loop's bound, and the map of holes has a bit
        // for every piece of the largest capacity.
        unsafe {
            let source = (start + u64::from(offset)) as *const c_void;
            let to = target.add(offset as usize).cast::<c_void>();
            if bpf_probe_read_user(to, STACK_PIECE, source) == 0 {
                copied = offset + STACK_PIECE;
            } else {
                let word = &raw mut (*holes)[(piece / 64) as usize % HOLE_WORDS];
                word.write(word.read() | 1 << (piece % 64));
            }
        }
        piece += 1;
    }
    (copied, STACK_FAULTED)
}

/// Writes the return addresses on this thread's stack that uretprobes have replaced (ours of outer
/// calls, or another tracer's) to `target`; returns how many and an overflow flag.
///
/// The kernel keeps them in `uprobe_task.return_instances`, innermost first, and has already taken
/// out the one that is returning.
#[inline(always)]
fn hijacked_returns(
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
