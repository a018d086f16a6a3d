//! Events in the ring buffer. All of one target machine: native endianness.
//!
//! ```text
//! AllocEvent   | header 24 | facts of the block | snapshot | stack bytes …
//! FreeEvent    | header 24 | address | allocated_at |
//! ExecEvent    | header 24 |
//! ForkEvent    | header 24 | child | flags | start time |
//! MapEvent     | header 24 | facts of the call  | snapshot | stack bytes …
//! RangeEvent   | header 24 | address | length | argument |
//! ```
//! The events of all CPUs share one ring, whose reservation order is causal per block: a block's
//! allocation is reserved before its function returns to the program, its free at the entry of
//! `free`, before the allocator can hand the address out again. So it is for memory maps: what a call
//! takes away is reserved before the kernel does it, what it gives after the kernel has done it and
//! before the program learns of it.

/// Kind of an event: the first field of every event.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An [`AllocEvent`].
    Alloc = 1,
    /// A [`FreeEvent`].
    Free = 2,
    /// An [`ExecEvent`].
    Exec = 3,
    /// A [`ForkEvent`].
    Fork = 4,
    /// A [`MapEvent`].
    Map = 5,
    /// A [`RangeEvent`]: a call of kind `argument` ([`MapCall`]) is about to take this range away. For
    /// [`MapCall::Brk`] the range goes from the present program break (`address`) to the wanted one, `length`
    /// bytes further, wrapping.
    Unmap = 6,
    /// A [`RangeEvent`]: this range has the protection `argument` (`PROT_*`) from now on.
    Protect = 7,
    /// A [`RangeEvent`]: the call that an [`EventKind::Unmap`] of the same thread announced has come to an
    /// end and no [`MapEvent`] follows. `argument` is 0 when it did what it should, else it changed nothing.
    Unmapped = 8,
}

/// First bytes of every event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHeader {
    /// An [`EventKind`].
    pub kind: u32,
    /// Process (thread group) id in the root pid namespace.
    pub tgid: u32,
    /// Thread id in the root pid namespace.
    pub tid: u32,
    /// Always zero.
    pub reserved: u32,
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub time: u64,
}

/// The registers from which an unwinder starts, x86-64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer. At the return of an allocator function: the return address in its caller. At a
    /// system call: the instruction after it.
    pub ip: u64,
    /// Stack pointer that goes with `ip`.
    pub sp: u64,
    /// rbp
    pub bp: u64,
    /// rbx
    pub bx: u64,
    /// r12
    pub r12: u64,
    /// r13
    pub r13: u64,
    /// r14
    pub r14: u64,
    /// r15
    pub r15: u64,
}

/// A return address on the stack that a uretprobe (ours or another tracer's) has replaced by its
/// trampoline, and what was there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HijackedReturn {
    /// Address of the stack slot.
    pub slot: u64,
    /// The return address that belongs there.
    pub original: u64,
}

/// Most hijacked returns that one event carries.
pub const MAX_HIJACKED_RETURNS: usize = 8;

/// Bytes of a thread's name: the kernel's `TASK_COMM_LEN`, the last one a zero.
pub const COMM_LEN: usize = 16;

/// The snapshot ends at the configured limit, not at the stack's end.
pub const STACK_LIMITED: u32 = 1;
/// Parts of the snapshot, or its end, could not be read.
pub const STACK_FAULTED: u32 = 2;
/// The stack's end was not known.
pub const STACK_UNBOUNDED: u32 = 4;
/// More return addresses were hijacked than the event carries.
pub const STACK_HIJACKED_OVERFLOW: u32 = 8;

/// A copy of the top of a thread's stack. Its bytes follow the event that it is the last part of.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSnapshot {
    /// Kind of the call that this is the stack of: the event says in which terms.
    pub kind: u32,
    /// `STACK_*` flags.
    pub flags: u32,
    /// Bytes of stack that follow the event. The record in the ring may be longer; what follows is
    /// not initialised.
    pub len: u32,
    /// Entries used in `hijacked`.
    pub hijacked_len: u32,
    /// Address of the first byte of the stack that follows: the stack pointer, rounded down to a
    /// multiple of [`STACK_PIECE`].
    pub start: u64,
    /// Which pieces of [`STACK_PIECE`] bytes could not be read, bit n % 64 of word n / 64 for piece n.
    /// Their bytes are not initialised.
    pub holes: [u64; HOLE_WORDS],
    /// Name of the thread (`/proc/PID/task/TID/comm`).
    pub comm: [u8; COMM_LEN],
    /// Registers from which unwinding starts.
    pub registers: Registers,
    /// Return addresses in the snapshot that were replaced by a uretprobe trampoline.
    pub hijacked: [HijackedReturn; MAX_HIJACKED_RETURNS],
}

/// A sampled allocation, taken when its function returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocEvent {
    /// Kind [`EventKind::Alloc`]; the time is that of the return.
    pub header: EventHeader,
    /// Address that the allocator returned.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Probability with which this block was recorded, see [`crate::sampling`].
    pub probability: u64,
    /// Address of the probed instruction in the allocator function.
    pub function: u64,
    /// [`AllocEvent::header`] time of the block that the kernel's live table still held at this
    /// address (its free was missed), or 0.
    pub replaces: u64,
    /// The stack at the return; its kind is a [`crate::function::FunctionKind`].
    pub stack: StackSnapshot,
}

/// The free of a sampled block, taken before the allocator sees the block.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeEvent {
    /// Kind [`EventKind::Free`].
    pub header: EventHeader,
    /// Address of the block.
    pub address: u64,
    /// Time of its [`AllocEvent`].
    pub allocated_at: u64,
}

/// A traced process has replaced its program: all its memory is gone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecEvent {
    /// Kind [`EventKind::Exec`]. Its tid is the id that the calling thread had: when that is not the
    /// tgid, the thread that the probes' process filters know as the process is gone.
    pub header: EventHeader,
}

/// The child of a fork runs in its parent's memory until it executes a program or ends (vfork).
pub const FORK_SHARES_MEMORY: u32 = 1;
/// The child is watched from its first instruction on, as far as the kernel's tracepoints go.
pub const FORK_WATCHED: u32 = 2;

/// A watched process has a child.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkEvent {
    /// Kind [`EventKind::Fork`], of the parent.
    pub header: EventHeader,
    /// Process id of the child in the root pid namespace.
    pub child: u32,
    /// `FORK_*` flags.
    pub flags: u32,
    /// When the child was started, in nanoseconds since boot, time asleep included; 0 when not known.
    pub start_time: u64,
}

/// A system call that changes memory maps.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapCall {
    /// `mmap`
    Mmap = 0,
    /// `munmap`
    Munmap = 1,
    /// `mremap`
    Mremap = 2,
    /// `brk`
    Brk = 3,
    /// `mprotect` and `pkey_mprotect`
    Mprotect = 4,
}

impl MapCall {
    /// The call with this number on x86-64 (`arch/x86/entry/syscalls/syscall_64.tbl`).
    #[inline(always)]
    #[must_use]
    pub const fn of_syscall(number: u64) -> Option<Self> {
        match number {
            9 => Some(Self::Mmap),
            10 | 329 => Some(Self::Mprotect),
            11 => Some(Self::Munmap),
            12 => Some(Self::Brk),
            25 => Some(Self::Mremap),
            _ => None,
        }
    }
}

/// A system call that has mapped memory: `mmap`, `mremap` or `brk`, with success.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEvent {
    /// Kind [`EventKind::Map`]; the time is that of the call's end.
    pub header: EventHeader,
    /// What the call returned: the mapping's address; of `brk`, the new program break.
    pub address: u64,
    /// Bytes that were asked for, not rounded. Of `brk` 0.
    pub length: u64,
    /// Of `mremap`, the old address.
    pub old_address: u64,
    /// Of `mremap`, the old length in bytes, not rounded.
    pub old_length: u64,
    /// Of `mmap`, `PROT_*`.
    pub protection: u32,
    /// Of `mmap`, `MAP_*`; of `mremap`, `MREMAP_*`.
    pub flags: u32,
    /// The stack at the call; its kind is a [`MapCall`].
    pub stack: StackSnapshot,
}

/// Something that happens to a range of addresses, see [`EventKind`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeEvent {
    /// Kind [`EventKind::Unmap`], [`EventKind::Protect`] or [`EventKind::Unmapped`].
    pub header: EventHeader,
    /// First address.
    pub address: u64,
    /// Bytes, not rounded.
    pub length: u64,
    /// What this is depends on the kind.
    pub argument: u64,
}

/// The unit in which snapshots are aligned and holes in them are marked, in bytes. It divides the page
/// size, so a piece is readable as a whole or not at all.
pub const STACK_PIECE: u32 = 256;

/// Words in the map of holes.
pub const HOLE_WORDS: usize = (MAX_STACK / STACK_PIECE / 64) as usize;

/// Bytes of stack that the snapshot classes can hold, ascending: a ring buffer reservation must
/// have a constant size, so a snapshot takes the smallest class that holds it.
pub const STACK_CLASSES: [u32; 7] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The largest snapshot, in bytes.
pub const MAX_STACK: u32 = STACK_CLASSES[STACK_CLASSES.len() - 1];

const _: () = {
    assert!(size_of::<EventHeader>() == 24);
    assert!(size_of::<AllocEvent>() == 24 + 5 * 8 + size_of::<StackSnapshot>());
    assert!(align_of::<AllocEvent>() == 8);
    assert!(size_of::<FreeEvent>() == 40);
    assert!(size_of::<ExecEvent>() == 24);
    assert!(size_of::<ForkEvent>() == 40);
    assert!(size_of::<StackSnapshot>() == 4 * 4 + 8 + 32 + 16 + 64 + 128);
    assert!(size_of::<MapEvent>() == 24 + 4 * 8 + 2 * 4 + size_of::<StackSnapshot>());
    assert!(size_of::<RangeEvent>() == 48);
};
