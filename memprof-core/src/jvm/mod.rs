//! What HotSpot says of its own memory, in answers to `jcmd`.

mod areas;
mod nmt;

use serde::Serialize;

use crate::address::Avma;

pub use areas::{areas, code_areas, version};
pub use nmt::{Category, Nmt, NmtAnswer, Region, native_memory};

/// What a part of the address space serves a JVM for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JvmPart {
    /// Java objects.
    JavaHeap,
    /// Metadata of classes.
    Metaspace,
    /// Metadata of classes that is addressed by 32 bits.
    ClassSpace,
    /// Compiled code, the interpreter, stubs.
    CodeCache,
    /// Tables of the garbage collector.
    Gc,
    /// The archive of classes shared by JVMs (CDS).
    SharedClasses,
    /// Stacks of threads.
    ThreadStacks,
    /// Anything else that the JVM has mapped.
    Other,
}

/// A part of the address space that a JVM uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JvmArea {
    /// First address.
    pub start: Avma,
    /// One past the last address.
    pub end: Avma,
    /// What for.
    pub part: JvmPart,
}

/// How closely a JVM watches its own memory (`-XX:NativeMemoryTracking`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tracking {
    /// Nobody could ask.
    #[default]
    Unknown,
    /// Not at all: the default.
    Off,
    /// Sums.
    Summary,
    /// Sums, and where each part is.
    Detail,
}

impl Tracking {
    /// Its name, as the JVM's option spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Off => "off",
            Self::Summary => "summary",
            Self::Detail => "detail",
        }
    }
}

/// The JVM, as far as it told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JvmSummary {
    /// Its name and version.
    pub version: Option<String>,
    /// How closely it watches its memory.
    pub tracking: Tracking,
    /// Bytes that it has from malloc, by its own account.
    pub malloc_bytes: Option<u64>,
}

/// What a JVM has said of itself.
#[derive(Clone, Debug, Default)]
pub struct JvmFacts {
    /// Its name and version.
    pub version: Option<String>,
    /// How closely it watches its memory.
    pub tracking: Tracking,
    /// What it has watched.
    pub nmt: Option<Nmt>,
    /// Where its parts are, as far as it says; the first of several that overlap counts.
    pub areas: Vec<JvmArea>,
}

impl JvmFacts {
    /// Puts answers together: those to `VM.native_memory`, `VM.info` and `Compiler.codecache`.
    #[must_use]
    pub fn new(native_memory: NmtAnswer, info: &str, code_cache: &str) -> Self {
        let mut known = areas(info);
        known.extend(code_areas(code_cache));
        let (tracking, nmt) = match native_memory {
            NmtAnswer::Unknown => (Tracking::Unknown, None),
            NmtAnswer::Off => (Tracking::Off, None),
            NmtAnswer::Tracked(nmt) if nmt.regions.is_empty() => (Tracking::Summary, Some(nmt)),
            NmtAnswer::Tracked(nmt) => (Tracking::Detail, Some(nmt)),
        };
        known.extend(nmt.iter().flat_map(Nmt::areas));
        Self { version: version(info), tracking, nmt, areas: known }
    }

    /// The short form.
    #[must_use]
    pub fn summary(&self) -> JvmSummary {
        JvmSummary {
            version: self.version.clone(),
            tracking: self.tracking,
            malloc_bytes: self.nmt.as_ref().map(Nmt::malloc_bytes),
        }
    }
}
