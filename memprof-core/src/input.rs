//! Everything the core can learn, in the order in which it learnt it. A recording is a list of these.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::address::Svma;
use crate::figures::RunFigures;
use crate::memory::MemoryReads;
use crate::process::module::{FileId, ModuleImage};
use crate::run_event::RunEvent;
use crate::symbols::SymbolizedFrame;

/// One process in one life: process ids are reused, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    /// Process id in the root pid namespace.
    pub tgid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: u64,
}

/// Facts about a process that is being watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Which process.
    pub key: ProcessKey,
    /// Its command name (`/proc/PID/comm`).
    pub comm: String,
    /// Its executable's path as the process sees it.
    pub executable: String,
}

/// How the recording was made; fixed for its whole length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Version of memprof that made it.
    pub version: String,
    /// Sampling interval in bytes; 1 = every block.
    pub sample_interval: u64,
    /// How the probes were attached, in words.
    pub attach_mode: String,
    /// `CLOCK_MONOTONIC` nanoseconds when all probes were in place.
    pub started_at: u64,
    /// Seconds since the Unix epoch at that moment.
    pub started_at_unix: u64,
    /// What is recorded besides blocks; comes with [`Input::Scope`].
    #[serde(skip)]
    pub scope: Scope,
}

/// What is recorded besides the blocks of the processes that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Memory that the processes map themselves.
    pub maps: bool,
    /// The processes' children.
    pub children: bool,
}

/// Which part of a module is an allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocatorPart {
    /// All of it.
    Whole,
    /// Functions, by address as linked and size in bytes; 0 when the size is not known.
    Functions(Vec<(Svma, u64)>),
}

/// A Java virtual machine, as its file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Jvm {
    /// HotSpot (OpenJDK): its exported `gHotSpotVM*` variables by name, with their addresses as linked.
    HotSpot {
        /// Name and address.
        symbols: Vec<(String, Svma)>,
    },
    /// Eclipse OpenJ9, whose frames cannot be told.
    OpenJ9,
    /// A program that GraalVM has compiled ahead of time: it has no Java frames.
    NativeImage,
}

/// Names a block to the kernel's live table: process id, address, time of its allocation.
pub type BlockName = (u32, u64, u64);

/// One thing that the core learns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input<'a> {
    /// How the run was set up. First of all inputs.
    Run(RunInfo),
    /// A process is watched from now on; after an exec, the same key with its new facts.
    Process(ProcessInfo),
    /// A file that processes map as code. Comes before the mappings that refer to it.
    Module(ModuleImage),
    /// The text of `/proc/PID/maps`, read now. Replaces what was known of the process.
    Mappings {
        /// Process id.
        tgid: u32,
        /// The text.
        text: Cow<'a, str>,
    },
    /// One event of the ring, as the probes wrote it (see `memprof_common::event`).
    Event(#[serde(serialize_with = "serialize_bytes", deserialize_with = "deserialize_bytes")] Cow<'a, [u8]>),
    /// The kernel side's counters so far, summed over all CPUs, by `memprof_common::counter::Counter` index.
    /// Those that the recording's memprof did not know yet are missing at the end.
    Counters(Vec<u64>),
    /// The kernel's whole live table (tgid, address, allocated_at), sent after all events have been
    /// ingested when free events were lost: blocks that the kernel no longer holds are freed. Blocks
    /// of processes that have ended are left alone: for them, it comes before their [`Input::Exit`].
    LiveBlocks(Vec<(u32, u64, u64)>),
    /// A process has ended. Comes after all of its events. Its live blocks stay in the profile, as
    /// what was in use when it ended.
    Exit {
        /// Process id.
        tgid: u32,
        /// `CLOCK_MONOTONIC` nanoseconds.
        time: u64,
    },
    /// Inputs that a recording lost because its writer was too slow or failed, or because they were larger
    /// than a record may be; a replay is incomplete.
    RecordingLost {
        /// How many.
        inputs: u64,
    },
    /// The end of the run: the moment that ages count back from.
    End {
        /// `CLOCK_MONOTONIC` nanoseconds.
        time: u64,
    },
    /// Names for code addresses: module index, address to look up (svma), frames innermost first.
    Symbols(Vec<(u32, u64, Vec<SymbolizedFrame>)>),
    /// Something happened to the run as a whole.
    RunEvent(RunEvent),
    /// How much may be kept. Nothing is bounded before it comes.
    Limits {
        /// Bytes of stacks and sites: samples of further stacks go to one site that stands for them all.
        stack_bytes: u64,
    },
    /// The live table is nearly full: blocks are sampled at this interval from about now on, and those
    /// held are thinned to it.
    Thin {
        /// `CLOCK_MONOTONIC` nanoseconds.
        time: u64,
        /// The new sampling interval in bytes.
        interval: u64,
        /// Random bits that decide which blocks stay.
        seed: u64,
    },
    /// All events have come that were in the ring when the last [`Input::Thin`] or [`Input::LiveBlocks`]
    /// had been dealt with.
    Settled {
        /// Blocks whose entries in the kernel's live table were taken out in place of thinned ones at the
        /// same address.
        lost: Vec<BlockName>,
    },
    /// What the run cost; near its end.
    Figures(RunFigures),
    /// What is recorded besides blocks. Comes after [`Input::Run`].
    Scope(Scope),
    /// A file that processes map as code is, or holds, an allocator whose functions are probed. Comes after
    /// its [`Input::Module`].
    Allocator {
        /// The file.
        file: FileId,
        /// Its path as the process sees it.
        path: String,
        /// Which part of it.
        part: AllocatorPart,
    },
    /// From now on, all blocks of a child are seen.
    ProbesInPlace {
        /// Process id.
        tgid: u32,
        /// `CLOCK_MONOTONIC` nanoseconds.
        time: u64,
    },
    /// A file that processes map as code is, or holds, a JVM. Comes after its [`Input::Module`].
    Jvm {
        /// The file.
        file: FileId,
        /// Its path as the process sees it.
        path: String,
        /// Which one.
        jvm: Jvm,
    },
    /// What was read of a process's memory to unwind the stack of the event that comes next.
    Memory(MemoryReads),
}

// Bytes in one piece: a sequence, serde's choice for slices, would visit each byte of a stack on its own.
fn serialize_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

fn deserialize_bytes<'de, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, [u8]>, D::Error> {
    deserializer.deserialize_byte_buf(OwnedBytes).map(Cow::Owned)
}

struct OwnedBytes;

impl Visitor<'_> for OwnedBytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }
}
