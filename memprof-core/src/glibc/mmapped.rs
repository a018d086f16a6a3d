//! Chunks so large that each has a mapping of its own.

use serde::Serialize;

use super::layout::{FLAGS, IS_MMAPPED};
use crate::address::Avma;
use crate::memory::{Part, ProcessMemory};
use crate::pages::{PAGE, PageSource, PageState};

/// Bytes read of each page.
const HEAD: usize = 16;

/// Pages looked at in one go.
const BATCH: u64 = 1 << 16;

/// Chunks with a mapping of their own (`IS_MMAPPED`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MmappedChunks {
    /// How many were found.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many glibc counts (`n_mmaps`); unknown where its parameters were not found.
    pub expected_chunks: Option<u64>,
    /// Their bytes (`mmapped_mem`).
    pub expected_bytes: Option<u64>,
}

/// Finds such chunks in `start..end`, anonymous memory that nothing else is known to use: what starts at a resident
/// page, has that size and fits. Mappings merge, so a chunk may start at any page.
pub(super) fn find(
    memory: &mut ProcessMemory<'_>,
    pages: &mut dyn PageSource,
    (start, end): (Avma, Avma),
    found: &mut Vec<(Avma, u64)>,
) {
    let mut at = start;
    let mut behind_last = start;
    while at < end {
        let batch = (end - at).div_ceil(PAGE).min(BATCH);
        let mut states = vec![PageState::Absent; batch as usize];
        pages.pages(at, &mut states);
        let resident: Vec<Avma> = (at..)
            .step_by(PAGE as usize)
            .zip(&states)
            .filter(|&(page, state)| *state == PageState::Resident && page >= behind_last)
            .map(|(page, _)| page)
            .collect();
        for (page, head) in heads(memory, &resident) {
            if page < behind_last {
                continue;
            }
            if let Some(size) = size_of(head, end - page) {
                found.push((page, size));
                behind_last = page + size;
            }
        }
        at = at.saturating_add(batch * PAGE);
    }
}

/// The first bytes of pages; pages that have gone are left out.
fn heads(memory: &mut ProcessMemory<'_>, pages: &[Avma]) -> Vec<(Avma, [u64; 2])> {
    let mut found = Vec::with_capacity(pages.len());
    let mut rest = pages;
    let mut buffer = vec![0; pages.len() * HEAD];
    while !rest.is_empty() {
        let parts: Vec<Part> = rest.iter().map(|&address| Part { address, length: HEAD }).collect();
        let read = memory.read_parts(&parts, &mut buffer[..rest.len() * HEAD]) / HEAD;
        for (&page, bytes) in rest[..read].iter().zip(buffer.chunks_exact(HEAD)) {
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            found.push((page, [word(0), word(8)]));
        }
        rest = &rest[(read + 1).min(rest.len())..];
    }
    found
}

/// The size of the chunk that a page starts with, if it starts with one that fits into `room`. What aligned blocks
/// leave before them is less than a page (`prev_size`).
fn size_of([before, field]: [u64; 2], room: u64) -> Option<u64> {
    let size = field & !FLAGS;
    let is_chunk = field & FLAGS == IS_MMAPPED && before < PAGE && size >= PAGE && size <= room;
    (is_chunk && (size + before).is_multiple_of(PAGE)).then_some(size)
}
