//! All state of the probes. Sizes given here are placeholders where user space sets them at load.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, RingBuf};
use memprof_common::counter::Counter;
use memprof_common::function::FunctionKind;
use memprof_common::live::{LiveKey, LiveValue, OCCUPANCY_SLOTS};
use memprof_common::settings::Settings;

/// A call of an allocating function that has been entered: thread and stack pointer at entry. A
/// thread can have several (a signal handler that allocates inside `malloc`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CallKey {
    /// `bpf_get_current_pid_tgid`
    pub pid_tgid: u64,
    /// Stack pointer at entry: the address of the return address.
    pub stack_pointer: u64,
}

/// What the return of a call must know of its entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// Requested bytes.
    pub size: u64,
    /// Probability with which the block is recorded; 0 when it is not.
    pub probability: u64,
    /// Address of the probe.
    pub function: u64,
    /// Block handed to `realloc`; meaningful when `old_allocated_at` is not 0.
    pub old_address: u64,
    /// Allocation time of that block when it was in the live table, else 0.
    pub old_allocated_at: u64,
    /// Where `posix_memalign` stores its result; the extra bytes that `xallocx` may add.
    pub detail: u64,
    /// A `FunctionKind`.
    pub kind: u32,
    /// Whether the call has marked its thread in `OUTER`: 1 or 0.
    pub outer: u32,
}

/// The outermost allocator function that a thread is in, when that function may call others.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OuterCall {
    /// Stack pointer at its entry.
    pub stack_pointer: u64,
    /// When it was entered.
    pub entered_at: u64,
}

/// Settings, one element.
#[map]
pub(crate) static SETTINGS: Array<Settings> = Array::with_max_entries(1, 0);

/// Counters by `Counter` index.
#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::COUNT as u32, 0);

/// Calls by `FunctionKind`: what a call costs depends on where its probe could be put.
#[map]
pub(crate) static CALLS_BY_KIND: PerCpuArray<u64> =
    PerCpuArray::with_max_entries(FunctionKind::ALL.len() as u32, 0);

/// Calls seen by the counting program, which measures how busy a target is.
#[map]
pub(crate) static CALLS_COUNTED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// How full `LIVE` is: see `memprof_common::live::OCCUPANCY_PROBES`.
#[map]
pub(crate) static OCCUPANCY: Array<u64> = Array::with_max_entries(OCCUPANCY_SLOTS, 0);

/// Events to user space. One ring for all CPUs: its order is causal for every block.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Sampled blocks that are alive.
#[map]
pub(crate) static LIVE: HashMap<LiveKey, LiveValue> = HashMap::with_max_entries(1024, 0);

/// Calls whose return is awaited.
#[map]
pub(crate) static CALLS: HashMap<CallKey, Call> = HashMap::with_max_entries(16384, 0);

/// Threads inside an allocator function that may call others, by thread id.
#[map]
pub(crate) static OUTER: HashMap<u32, OuterCall> = HashMap::with_max_entries(16384, 0);

/// Watched processes by tgid: whose exec, forks and memory maps are reported.
#[map]
pub(crate) static TARGETS: HashMap<u32, u32> = HashMap::with_max_entries(4096, 0);

/// Processes that run in the memory of another one (children of `vfork`), by tgid: whose memory. When it
/// is full, what such a child allocates or frees is not seen.
#[map]
pub(crate) static ALIASES: HashMap<u32, u32> = HashMap::with_max_entries(1024, 0);

/// How many entries [`ALIASES`] has, one element: nearly always none, and looking here is cheaper.
#[map]
pub(crate) static ALIAS_COUNT: Array<u64> = Array::with_max_entries(1, 0);
