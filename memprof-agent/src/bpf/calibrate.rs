//! What a hit of a probe costs on this machine: measured on functions of this program that do nothing.

use std::arch::global_asm;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use memprof_core::figures::HitCosts;
use memprof_core::process::mappings;

use super::raw::{LinkKind, RelocatedObject, link_uprobes};
use crate::host::proc_fs;

// The first instruction decides: the kernel emulates a push and single-steps a move.
global_asm!(
    ".pushsection .text",
    ".balign 16",
    ".hidden memprof_calibrate_emulated",
    ".globl memprof_calibrate_emulated",
    "memprof_calibrate_emulated:",
    "push rbp",
    "pop rbp",
    "ret",
    ".balign 16",
    ".hidden memprof_calibrate_stepped",
    ".globl memprof_calibrate_stepped",
    "memprof_calibrate_stepped:",
    "mov eax, edi",
    "ret",
    ".balign 16",
    ".hidden memprof_calibrate_returning",
    ".globl memprof_calibrate_returning",
    "memprof_calibrate_returning:",
    "push rbp",
    "pop rbp",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn memprof_calibrate_emulated();
    fn memprof_calibrate_stepped();
    fn memprof_calibrate_returning();
}

/// The program that counts a call and asks for its return.
const COUNT_CALLS: &str = "count_calls";
/// Batches of which the fastest counts: the others were disturbed.
const BATCHES: u32 = 7;
/// Calls in a batch: less than a millisecond where they are emulated, a few where they are not.
const CALLS: u32 = 300;
/// What a sampled block costs beside its traps, in nanoseconds: entering it into the table, finding the
/// stack's end, reserving room in the ring. Copying the stack comes on top.
const SAMPLE: u64 = 1000;

/// Costs to reckon with where they cannot be measured, in nanoseconds: those of a virtual machine.
const TYPICAL: HitCosts =
    HitCosts { entry: 850, stepped_entry: 11_500, returned: 600, sample: SAMPLE, measured: false };

/// Measures the costs; typical ones where that fails.
pub(crate) fn hit_costs(object: &RelocatedObject) -> HitCosts {
    measure(object).unwrap_or_else(|error| {
        log::info!("the cost of a probe cannot be measured, typical costs are used: {error:#}");
        TYPICAL
    })
}

fn measure(object: &RelocatedObject) -> Result<HitCosts> {
    let entries = [memprof_calibrate_emulated as *const (), memprof_calibrate_stepped as *const ()];
    let _entries = link(object, LinkKind::Entry, &entries)?;
    // Without sessions (before kernel 6.13) a return is a probe of its own at the same place.
    let returning = [memprof_calibrate_returning as *const ()];
    let _returns =
        link(object, LinkKind::Session, &returning).map(|session| vec![session]).or_else(|_| {
            let kinds = [LinkKind::Return, LinkKind::Entry];
            kinds.into_iter().map(|kind| link(object, kind, &returning)).collect()
        })?;
    let entry = nanoseconds(memprof_calibrate_emulated);
    Ok(HitCosts {
        entry,
        stepped_entry: nanoseconds(memprof_calibrate_stepped).max(entry),
        returned: nanoseconds(memprof_calibrate_returning).saturating_sub(entry),
        sample: SAMPLE,
        measured: true,
    })
}

/// Puts the counting program at these functions of this process.
fn link(object: &RelocatedObject, kind: LinkKind, functions: &[*const ()]) -> Result<(OwnedFd, OwnedFd)> {
    let program = object.load(COUNT_CALLS, kind)?;
    let offsets = functions.iter().map(|&f| file_offset(f as u64)).collect::<Result<Vec<_>>>()?;
    let link = link_uprobes(program.as_fd(), kind, Path::new("/proc/self/exe"), &offsets, std::process::id())
        .context("attaching to this program")?;
    Ok((link, program))
}

/// Where in this program's file the code at `address` is.
fn file_offset(address: u64) -> Result<u64> {
    let text = proc_fs::maps_text(std::process::id().cast_signed())?;
    mappings::parse(&text)?
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&address))
        .map(|mapping| address - mapping.start + mapping.offset)
        .ok_or_else(|| anyhow!("this program's code is in no mapping"))
}

/// Nanoseconds per call.
fn nanoseconds(function: unsafe extern "C" fn()) -> u64 {
    let batch = || {
        let started = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: the functions above take nothing, touch no memory but their stack, and keep every
            // register that a caller relies on.
            unsafe { function() };
        }
        started.elapsed()
    };
    let fastest = (0..BATCHES).map(|_| batch()).min().unwrap_or_default();
    u64::try_from(fastest.as_nanos()).unwrap_or(u64::MAX) / u64::from(CALLS)
}
