//! The account of a process's whole RSS: every resident page has one owner, and what glibc's heaps hold is split
//! to the byte.
//!
//! ```text
//!  a page of …              belongs to …                                       known from
//!  anonymous memory         the JVM's part that lies there                     VM.info, then NMT
//!                           glibc's heap ─► in use, free, top, caches, heads   the walk
//!                           a chunk with a mapping of its own                  the walk
//!                           the variables of a library (.bss)                  a writable mapping right before
//!                           a thread's stack                                   a guard right before
//!                           nobody known
//!  a file, shared memory    what the file is                                   smaps
//! ```
//! The first that applies counts. Neighbours of different owners may be one mapping, so that anonymous memory is
//! told apart by pages. What the parts do not add up to is shown as unexplained, with its sign: a process that runs
//! changes while it is read.

mod forecast;
mod land;
mod surroundings;
mod verdict;
mod waterfall;

use serde::{Serialize, Serializer};

use crate::glibc::{Version, Walk};
use crate::jvm::{JvmPart, JvmSummary};

pub use forecast::{Forecast, forecast};
pub use surroundings::{Beside, Cgroup, CgroupVersion, beside};
pub use verdict::{Look, Movement, Verdict, VerdictKind, verdict};
pub use waterfall::{Process, account};

/// Whom a part of the RSS belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A part of the JVM.
    Jvm(JvmPart),
    /// Blocks from malloc that the JVM itself has, by its account (estimate: its bytes by the share of all blocks
    /// that is in memory).
    MallocOfJvm,
    /// Blocks from malloc of everybody else: native libraries, the JVM's own where it does not track them.
    Malloc,
    /// Free in glibc's heaps, and `malloc_trim` would return it.
    Trimmable,
    /// Never used or given back at the end of a heap; `malloc_trim` does not return it.
    Tops,
    /// Free, fastbins included, in pages that hold blocks in use, too.
    PartialPages,
    /// Free, kept for threads (tcache).
    Caches,
    /// glibc's own structures.
    Heads,
    /// In glibc's heaps, but it could not be read.
    UnreadHeap,
    /// Another allocator's, in use or kept.
    OtherAllocator,
    /// Code and constants of libraries and of the program, which the kernel can drop and read again.
    LibraryCode,
    /// Variables of libraries and of the program.
    LibraryData,
    /// Java archives and modules.
    Archives,
    /// Other mapped files.
    Files,
    /// Memory shared with other processes.
    Shared,
    /// What the kernel maps: `[vdso]` and the like.
    Kernel,
    /// Anonymous memory that nobody is known to own.
    Anonymous,
}

impl Owner {
    /// All owners, in the order of the account.
    pub const ALL: [Self; 24] = [
        Self::Jvm(JvmPart::JavaHeap),
        Self::Jvm(JvmPart::Metaspace),
        Self::Jvm(JvmPart::ClassSpace),
        Self::Jvm(JvmPart::SharedClasses),
        Self::Jvm(JvmPart::CodeCache),
        Self::Jvm(JvmPart::Gc),
        Self::Jvm(JvmPart::Other),
        Self::Jvm(JvmPart::ThreadStacks),
        Self::MallocOfJvm,
        Self::Malloc,
        Self::Trimmable,
        Self::Tops,
        Self::PartialPages,
        Self::Caches,
        Self::Heads,
        Self::UnreadHeap,
        Self::OtherAllocator,
        Self::LibraryCode,
        Self::LibraryData,
        Self::Archives,
        Self::Files,
        Self::Shared,
        Self::Kernel,
        Self::Anonymous,
    ];

    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Jvm(JvmPart::JavaHeap) => "java_heap",
            Self::Jvm(JvmPart::Metaspace) => "metaspace",
            Self::Jvm(JvmPart::ClassSpace) => "class_space",
            Self::Jvm(JvmPart::SharedClasses) => "shared_classes",
            Self::Jvm(JvmPart::CodeCache) => "code_cache",
            Self::Jvm(JvmPart::Gc) => "gc",
            Self::Jvm(JvmPart::Other) => "jvm_other",
            Self::Jvm(JvmPart::ThreadStacks) => "thread_stacks",
            Self::MallocOfJvm => "malloc_jvm",
            Self::Malloc => "malloc",
            Self::Trimmable => "glibc_trimmable",
            Self::Tops => "glibc_tops",
            Self::PartialPages => "glibc_partial_pages",
            Self::Caches => "glibc_caches",
            Self::Heads => "glibc_heads",
            Self::UnreadHeap => "glibc_unread",
            Self::OtherAllocator => "other_allocator",
            Self::LibraryCode => "library_code",
            Self::LibraryData => "library_data",
            Self::Archives => "archives",
            Self::Files => "files",
            Self::Shared => "shared",
            Self::Kernel => "kernel",
            Self::Anonymous => "other_anonymous",
        }
    }

    /// Whether glibc has been given this back, or never handed it out, and keeps it.
    #[must_use]
    pub fn is_retained(self) -> bool {
        matches!(self, Self::Trimmable | Self::Tops | Self::PartialPages | Self::Caches)
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One line of the account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Whose.
    pub owner: Owner,
    /// What the JVM calls it; only for its blocks from malloc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Bytes in memory.
    pub bytes: u64,
}

/// The allocator.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Its name, if it is known.
    pub name: Option<&'static str>,
    /// glibc's version, if there is a glibc.
    pub version: Option<Version>,
    /// What its heaps hold, or why that cannot be told.
    pub heaps: Result<Walk, String>,
}

/// The whole account.
#[derive(Clone, Debug)]
pub struct Account {
    /// The sum of all mappings' RSS. (`VmRSS` lags behind it.)
    pub rss_bytes: u64,
    /// Who has how much, in the order of [`Owner::ALL`]; owners of nothing are left out.
    pub lines: Vec<Line>,
    /// RSS less all lines.
    pub unexplained_bytes: i64,
    /// What stands beside the RSS in smaps.
    pub beside: Beside,
    /// The allocator.
    pub allocator: Allocator,
    /// The JVM, if this is one and it was asked.
    pub jvm: Option<JvmSummary>,
}

impl Account {
    /// Bytes of an owner.
    #[must_use]
    pub fn bytes(&self, owner: Owner) -> u64 {
        self.sum(|of| of == owner)
    }

    /// Bytes of all owners that are chosen.
    #[must_use]
    pub fn sum(&self, is_chosen: impl Fn(Owner) -> bool) -> u64 {
        self.lines.iter().filter(|line| is_chosen(line.owner)).map(|line| line.bytes).sum()
    }

    /// Bytes of blocks in use from malloc.
    #[must_use]
    pub fn malloc_in_use(&self) -> u64 {
        self.sum(|owner| matches!(owner, Owner::Malloc | Owner::MallocOfJvm))
    }

    /// Bytes that glibc keeps without a use.
    #[must_use]
    pub fn retained(&self) -> u64 {
        self.sum(Owner::is_retained)
    }
}
