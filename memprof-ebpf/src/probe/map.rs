//! System calls that change memory maps, seen where every system call begins and ends.
//!
//! The tracepoints `sys_enter` and `sys_exit` fire outside of the kernel's lock of the address space, so
//! events of several threads may come in another order than what they tell of. This order is right:
//!
//! ```text
//! thread 1   munmap A: Unmap event ── kernel unmaps A ── Unmapped event
//! thread 2                                      mmap: kernel maps A ── Map event
//! ```
//! What a call takes away is told *before* the kernel does it, as long as nobody else can have the
//! addresses; what it gives is told *after* the kernel has done it, before the program knows. Thread 2 can
//! get A only after thread 1's kernel has unmapped it, so Unmap comes before Map. `mremap` takes its old
//! range like `munmap` and gives the new one like `mmap`. When a call fails, its end says so and the range
//! is put back: nobody can have had it meanwhile. Threads that change the same range at the same time
//! without taking turns do not know themselves what comes out, and neither do we.
//!
//! All arguments are still in the registers when a call ends, so nothing is kept between the two.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::programs::RawTracePointContext;
use memprof_common::event::{EventKind, MapCall};

use super::{pid_tgid, settings, unwinding};
use crate::emit::map::{self, Mapped};
use crate::kernel::{current_task, read_word};
use crate::maps::TARGETS;

/// `MREMAP_DONTUNMAP`: the old range stays mapped.
const MREMAP_DONTUNMAP: u64 = 4;
/// Values above this, as unsigned numbers, are errors of system calls (-4095 to -1).
const MAX_RESULT: u64 = -4096_i64 as u64;

/// A system call begins (`sys_enter`: registers, number).
#[inline(always)]
pub(crate) fn enter(ctx: RawTracePointContext) -> u32 {
    let Some(call) = MapCall::of_syscall(ctx.arg(1)) else { return 0 };
    if matches!(call, MapCall::Mmap | MapCall::Mprotect) {
        return 0;
    }
    let Some((pid_tgid, registers)) = of_target(&ctx) else { return 0 };
    let (address, length) = match call {
        MapCall::Brk => {
            let Some(now) = program_break() else { return 0 };
            if registers.rdi == 0 {
                return 0;
            }
            (now, registers.rdi.wrapping_sub(now))
        }
        // A length of 0 asks for a second mapping of shared memory.
        MapCall::Mremap if registers.rsi == 0 || registers.r10 & MREMAP_DONTUNMAP != 0 => return 0,
        _ => (registers.rdi, registers.rsi),
    };
    map::range(EventKind::Unmap, pid_tgid, address, length, call as u64)
}

/// A system call has come to its end (`sys_exit`: registers, result).
#[inline(always)]
pub(crate) fn exit(ctx: RawTracePointContext) -> u32 {
    let registers: u64 = ctx.arg(0);
    let number = core::mem::offset_of!(pt_regs, orig_rax) as u32;
    let Some(call) = read_word(registers, number).and_then(MapCall::of_syscall) else { return 0 };
    let result: u64 = ctx.arg(1);
    let failed = result > MAX_RESULT;
    if failed && matches!(call, MapCall::Mmap | MapCall::Mprotect) {
        return 0;
    }
    let Some((pid_tgid, registers)) = of_target(&ctx) else { return 0 };
    let mut mapped = Mapped {
        pid_tgid,
        call,
        address: result,
        length: registers.rsi,
        old_address: 0,
        old_length: 0,
        protection: 0,
        flags: registers.r10 as u32,
    };
    match call {
        MapCall::Mmap => mapped.protection = registers.rdx as u32,
        MapCall::Mremap if !failed => {
            mapped.length = registers.rdx;
            mapped.old_address = registers.rdi;
            mapped.old_length = registers.rsi;
        }
        // The call answers with the break that is in force.
        MapCall::Brk if registers.rdi == 0 => return 0,
        MapCall::Brk if result == registers.rdi => mapped.length = 0,
        MapCall::Mprotect => {
            return map::range(EventKind::Protect, pid_tgid, registers.rdi, registers.rsi, registers.rdx);
        }
        MapCall::Munmap | MapCall::Mremap | MapCall::Brk => {
            let changed_nothing = u64::from(failed || matches!(call, MapCall::Brk));
            return map::range(EventKind::Unmapped, pid_tgid, registers.rdi, registers.rsi, changed_nothing);
        }
    }
    map::mapped(&mapped, &unwinding(&registers))
}

/// Thread and user registers, if this thread belongs to a watched process.
#[inline(always)]
fn of_target(ctx: &RawTracePointContext) -> Option<(u64, pt_regs)> {
    let pid_tgid = pid_tgid();
    TARGETS.get_ptr((pid_tgid >> 32) as u32)?;
    let registers: u64 = ctx.arg(0);
    // SAFETY: bpf_probe_read_kernel checks the address itself.
    let registers = unsafe { bpf_probe_read_kernel(registers as *const pt_regs) }.ok()?;
    Some((pid_tgid, registers))
}

#[inline(always)]
fn program_break() -> Option<u64> {
    let offsets = &settings()?.kernel;
    let mm = read_word(current_task(), offsets.task_mm)?;
    read_word(mm, offsets.mm_brk)
}
