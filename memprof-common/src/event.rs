//! Events in the ring buffer. All of one target machine: native endianness.
//!
//! ```text
//! AllocEvent   | header 24 | facts of the block | registers | hijacked returns | stack bytes …
//! FreeEvent    | header 24 | address | allocated_at |
//! ExecEvent    | header 24 |
//! ```
//! The events of all CPUs share one ring, whose reservation order is causal per block: a block's
//! allocation is reserved before its function returns to the program, its free at the entry of
//! `free`, before the allocator can hand the address out again.

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
    /// Instruction pointer: the return address in the caller of the allocator function.
    pub ip: u64,
    /// Stack pointer in the caller, after the return.
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

/// The snapshot ends at the configured limit, not at the stack's end.
pub const STACK_LIMITED: u32 = 1;
/// Parts of the snapshot, or its end, could not be read.
pub const STACK_FAULTED: u32 = 2;
/// The stack's end was not known.
pub const STACK_UNBOUNDED: u32 = 4;
/// More return addresses were hijacked than the event carries.
pub const STACK_HIJACKED_OVERFLOW: u32 = 8;

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
    /// A [`crate::function::FunctionKind`].
    pub function_kind: u32,
    /// `STACK_*` flags.
    pub stack_flags: u32,
    /// Bytes of stack that follow this structure. The record in the ring may be longer; what follows is
    /// not initialised.
    pub stack_len: u32,
    /// Entries used in `hijacked`.
    pub hijacked_len: u32,
    /// Address of the first byte of the stack that follows: the stack pointer, rounded down to a
    /// multiple of [`STACK_PIECE`].
    pub stack_start: u64,
    /// Which pieces of [`STACK_PIECE`] bytes could not be read, bit n % 64 of word n / 64 for piece n.
    /// Their bytes are not initialised.
    pub holes: [u64; HOLE_WORDS],
    /// Registers at the return.
    pub registers: Registers,
    /// Return addresses in the snapshot that were replaced by a uretprobe trampoline.
    pub hijacked: [HijackedReturn; MAX_HIJACKED_RETURNS],
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
    assert!(size_of::<AllocEvent>() == 24 + 5 * 8 + 4 * 4 + 8 + 32 + 64 + 128);
    assert!(align_of::<AllocEvent>() == 8);
    assert!(size_of::<FreeEvent>() == 40);
    assert!(size_of::<ExecEvent>() == 24);
};
