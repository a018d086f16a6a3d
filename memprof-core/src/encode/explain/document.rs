//! The account as a document for programs.

use serde::Serialize;

use super::Explanation;
use crate::glibc::{Arena, MmappedChunks, WalkLosses};
use crate::jvm::JvmSummary;
use crate::rss::{Beside, Cgroup, Forecast, Line, Verdict, forecast};

/// The document.
// tidy: wide: one field for each part of the document
#[derive(Clone, Debug, Serialize)]
pub struct Document<'a> {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: &'a str,
    /// Path of the executable.
    pub executable: &'a str,
    /// Sum of all mappings' RSS.
    pub rss_bytes: u64,
    /// Who has how much of it.
    pub lines: &'a [Line],
    /// RSS less the sum of the lines.
    pub unexplained_bytes: i64,
    /// Memory beside the RSS.
    pub beside: Beside,
    /// The limit; null when there is no control group for memory.
    pub cgroup: Option<&'a Cgroup>,
    /// The JVM; null when this is none, or it was not asked.
    pub jvm: Option<&'a JvmSummary>,
    /// Name of the allocator, if it is known.
    pub allocator: Option<&'static str>,
    /// Version of glibc, if it is known.
    pub glibc_version: Option<String>,
    /// What glibc's heaps hold; null when they were not read.
    pub heaps: Option<ArenasReport<'a>>,
    /// Why they were not read; null when they were.
    pub heaps_unread: Option<&'a str>,
    /// What cures would give back; null when the heaps were not read.
    pub forecast: Option<Forecast>,
    /// What several looks tell; null after one look.
    pub verdict: Option<&'a Verdict>,
    /// What could not be learnt, and why.
    pub gaps: &'a [String],
}

/// What glibc's heaps hold.
#[derive(Clone, Debug, Serialize)]
pub struct ArenasReport<'a> {
    /// All arenas together.
    pub total: &'a Arena,
    /// Each of them, the main one first.
    pub arenas: &'a [Arena],
    /// Blocks with a mapping of their own.
    pub mmapped: MmappedChunks,
    /// Threads whose cache of free blocks was found.
    pub thread_caches: u64,
    /// What could not be read as it should be.
    pub losses: WalkLosses,
}

impl Explanation<'_> {
    /// As a document for programs.
    #[must_use]
    pub fn document(&self) -> Document<'_> {
        let account = self.account;
        let walk = account.allocator.heaps.as_ref();
        Document {
            pid: self.process.key.tgid,
            comm: &self.process.comm,
            executable: &self.process.executable,
            rss_bytes: account.rss_bytes,
            lines: &account.lines,
            unexplained_bytes: account.unexplained_bytes,
            beside: account.beside,
            cgroup: self.cgroup,
            jvm: account.jvm.as_ref(),
            allocator: account.allocator.name,
            glibc_version: account.allocator.version.map(|version| version.to_string()),
            heaps: walk.ok().map(|walk| ArenasReport {
                total: &walk.total,
                arenas: &walk.arenas,
                mmapped: walk.mmapped,
                thread_caches: walk.thread_caches,
                losses: walk.losses,
            }),
            heaps_unread: walk.err().map(String::as_str),
            forecast: forecast(account),
            verdict: self.verdict,
            gaps: self.gaps,
        }
    }
}
