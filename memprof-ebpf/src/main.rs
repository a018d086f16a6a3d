//! The memprof kernel probes: entry points only, one line each. What they do is in the modules.
//!
//! Three ways to attach share this code (see ARCHITECTURE.md, "Attaching"):
//! - *session* (`session_*`): one program sees entry and return, and skips the return of a call that
//!   nobody wants to see;
//! - *multi* and *perf* (`entry_*` with `returned`): two programs, the return probe always fires.
//!
//! The programs are written by hand instead of with aya's `#[uprobe]`, whose wrapper throws the
//! return value away: in a session it decides whether the return is seen.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
// Stable core offers no atomic addition on this target (it has no compare-and-swap before version 3
// of the instruction set); building core for BPF needs RUSTC_BOOTSTRAP anyway.
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(target_arch = "bpf", expect(internal_features, reason = "atomic_xadd, see above"))]

#[cfg(target_arch = "bpf")]
mod counter;
#[cfg(target_arch = "bpf")]
mod emit;
#[cfg(target_arch = "bpf")]
mod kernel;
#[cfg(target_arch = "bpf")]
mod live;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod probe;
#[cfg(target_arch = "bpf")]
mod stack;

/// On the host this crate is empty, so that plain `cargo check` needs no BPF toolchain.
#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
mod programs {
    use core::ffi::c_void;

    use aya_ebpf::programs::RawTracePointContext;
    use memprof_common::function::{FunctionKind, Nesting};

    use crate::counter;
    use crate::probe::{call, free, map, process};

    /// One kind of allocating functions: its session program and its entry program. User space takes
    /// them by the names that `bpf/programs.rs` makes.
    macro_rules! allocating {
        ($session:ident, $entry:ident, $kind:ident, $nesting:ident) => {
            #[unsafe(no_mangle)]
            #[unsafe(link_section = "uprobe")]
            extern "C" fn $session(ctx: *mut c_void) -> u32 {
                call::session(ctx, FunctionKind::$kind, Nesting::$nesting)
            }

            #[unsafe(no_mangle)]
            #[unsafe(link_section = "uprobe")]
            extern "C" fn $entry(ctx: *mut c_void) -> u32 {
                call::entry_alone(ctx, FunctionKind::$kind, Nesting::$nesting)
            }
        };
    }

    allocating!(session_malloc, entry_malloc, Malloc, Leaf);
    allocating!(session_malloc_outer, entry_malloc_outer, Malloc, Outer);
    allocating!(session_calloc, entry_calloc, Calloc, Leaf);
    allocating!(session_calloc_outer, entry_calloc_outer, Calloc, Outer);
    allocating!(session_aligned_alloc, entry_aligned_alloc, AlignedAlloc, Leaf);
    allocating!(session_aligned_alloc_outer, entry_aligned_alloc_outer, AlignedAlloc, Outer);
    allocating!(session_new, entry_new, New, Leaf);
    allocating!(session_new_outer, entry_new_outer, New, Outer);
    // Kinds that always nest.
    allocating!(session_new_array_outer, entry_new_array_outer, NewArray, Outer);
    allocating!(session_realloc_outer, entry_realloc_outer, Realloc, Outer);
    allocating!(session_realloc_or_free_outer, entry_realloc_or_free_outer, ReallocOrFree, Outer);
    allocating!(session_reallocarray_outer, entry_reallocarray_outer, ReallocArray, Outer);
    allocating!(session_posix_memalign_outer, entry_posix_memalign_outer, PosixMemalign, Outer);
    allocating!(session_resize_in_place_outer, entry_resize_in_place_outer, ResizeInPlace, Outer);

    #[unsafe(no_mangle)]
    #[unsafe(link_section = "uretprobe")]
    extern "C" fn returned(ctx: *mut c_void) -> u32 {
        call::returned(ctx)
    }

    #[unsafe(no_mangle)]
    #[unsafe(link_section = "uprobe")]
    extern "C" fn entry_free(ctx: *mut c_void) -> u32 {
        free::entry(ctx)
    }

    /// Does nothing, and asks for no return: what the traps alone cost, for comparison.
    #[unsafe(no_mangle)]
    #[unsafe(link_section = "uprobe")]
    extern "C" fn empty(_ctx: *mut c_void) -> u32 {
        1
    }

    /// Counts calls and asks for returns: what a probe costs here, and how often a target would pay it.
    #[unsafe(no_mangle)]
    #[unsafe(link_section = "uprobe")]
    extern "C" fn count_calls(_ctx: *mut c_void) -> u32 {
        counter::count_trial_call();
        0
    }

    #[unsafe(no_mangle)]
    #[unsafe(link_section = "raw_tracepoint")]
    extern "C" fn process_exec(ctx: *mut c_void) -> u32 {
        process::exec(RawTracePointContext::new(ctx))
    }

    #[unsafe(no_mangle)]
    #[unsafe(link_section = "raw_tracepoint")]
    extern "C" fn process_fork(ctx: *mut c_void) -> u32 {
        process::fork(RawTracePointContext::new(ctx))
    }

    #[unsafe(no_mangle)]
    #[unsafe(link_section = "raw_tracepoint")]
    extern "C" fn process_exit(_ctx: *mut c_void) -> u32 {
        process::exit()
    }

    #[unsafe(no_mangle)]
    #[unsafe(link_section = "raw_tracepoint")]
    extern "C" fn syscall_enter(ctx: *mut c_void) -> u32 {
        map::enter(RawTracePointContext::new(ctx))
    }

    #[unsafe(no_mangle)]
    #[unsafe(link_section = "raw_tracepoint")]
    extern "C" fn syscall_exit(ctx: *mut c_void) -> u32 {
        map::exit(RawTracePointContext::new(ctx))
    }
}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    // The verifier refuses a program in which this is reachable: there is nothing to do here.
    loop {}
}

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
