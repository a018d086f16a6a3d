//! The walk through all arenas of a process.

use std::ops::AddAssign;

use rustc_hash::FxHashMap;
use serde::Serialize;
use thiserror::Error;

use super::arenas::{self, Arenas, HeapInfo};
use super::caches::{Linking, Lists, cache_sizes, fastbins, thread_cache};
use super::heap::{Heap, HeapUse, HeapWalk, Noted};
use super::layout::Layout;
use super::mmapped::{self, MmappedChunks};
use super::version::Version;
use super::window::Residency;
use crate::address::Avma;
use crate::memory::ProcessMemory;
use crate::pages::{PAGE, PageSource};
use crate::process::mappings::Mapping;

/// What is known of the process before its heaps are read.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Its mappings.
    pub mappings: &'a [Mapping<'a>],
    /// Memory that others than malloc use, ascending and apart: a JVM's heap, its code. It is not searched.
    pub elsewhere: &'a [(Avma, Avma)],
    /// Its glibc's version, if that is known.
    pub version: Option<Version>,
}

/// Why there is no walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoWalk {
    /// No arena holds together: there is no glibc, or its malloc is not in use.
    #[error("glibc's malloc is not in use here (no arena was found)")]
    NoArena,
    /// The arenas have no memory.
    #[error("glibc's malloc is not in use here (its arenas are empty)")]
    Empty,
}

/// So many chunks, their bytes with headers, and how many of these are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Use {
    /// Chunks.
    pub chunks: u64,
    /// Bytes, headers included.
    pub bytes: u64,
    /// Bytes of these in pages that are in memory.
    pub resident_bytes: u64,
}

impl AddAssign for Use {
    fn add_assign(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.resident_bytes += other.resident_bytes;
    }
}

impl Use {
    /// Moves chunks from here to another use; no more than are here.
    fn give(&mut self, moved: Self, to: &mut Self) {
        let moved = Self {
            chunks: moved.chunks.min(self.chunks),
            bytes: moved.bytes.min(self.bytes),
            resident_bytes: moved.resident_bytes.min(self.resident_bytes),
        };
        self.chunks -= moved.chunks;
        self.bytes -= moved.bytes;
        self.resident_bytes -= moved.resident_bytes;
        *to += moved;
    }
}

/// What an arena, or all of them together, holds. The parts add up to all bytes of its heaps.
// tidy: wide: one number for each state that memory can have in an arena
#[derive(Clone, Debug, Default, Serialize)]
pub struct Arena {
    /// Where its structure is; 0 for the sum of arenas.
    pub address: Avma,
    /// Heaps.
    pub heaps: u64,
    /// Bytes that the arena says it has from the system (`system_mem`).
    pub system_bytes: u64,
    /// Handed out.
    pub in_use: Use,
    /// Given back by the program and kept, in bins.
    pub free: Use,
    /// Given back and kept in fastbins.
    pub fast: Use,
    /// Given back and kept in threads' caches. glibc's own figures count these as in use.
    pub thread_caches: Use,
    /// Never handed out, or merged with what was not: the end of the arena.
    pub top: Use,
    /// The allocator's own structures.
    pub heads: Use,
    /// Could not be read as chunks.
    pub unknown: Use,
    /// Resident bytes that `malloc_trim` would give back to the system now: of free chunks, those in fastbins
    /// included, which it merges first.
    pub trimmable_bytes: u64,
    /// The same of the top, with the free chunks that merge with it; only the main arena gives it back.
    pub trimmable_top_bytes: u64,
}

impl Arena {
    /// All bytes in memory.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let uses =
            [self.in_use, self.free, self.fast, self.thread_caches, self.top, self.heads, self.unknown];
        uses.iter().map(|part| part.resident_bytes).sum()
    }

    fn add_heap(&mut self, heap: &HeapUse) {
        self.heaps += 1;
        self.in_use += heap.in_use;
        self.free += heap.free;
        self.top += heap.top;
        self.heads += heap.heads;
        self.unknown += heap.unknown;
        self.trimmable_bytes += heap.trimmable;
        self.trimmable_top_bytes += heap.trimmable_top;
    }

    fn add(&mut self, other: &Self) {
        self.heaps += other.heaps;
        self.system_bytes += other.system_bytes;
        self.in_use += other.in_use;
        self.free += other.free;
        self.fast += other.fast;
        self.thread_caches += other.thread_caches;
        self.top += other.top;
        self.heads += other.heads;
        self.unknown += other.unknown;
        self.trimmable_bytes += other.trimmable_bytes;
        self.trimmable_top_bytes += other.trimmable_top_bytes;
    }
}

/// What a walk could not see as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WalkLosses {
    /// How often a header could not be one, because the target went on meanwhile; the bytes are in `unknown`.
    pub derailments: u64,
    /// Heaps read twice because of that.
    pub heaps_read_again: u64,
    /// Heaps that were gone before they were read.
    pub heaps_vanished: u64,
    /// Lists of free chunks that could not be followed to their end; the rest counts as in use.
    pub lists_cut: u64,
    /// Bins that hold together, of `bins`.
    pub bins_closed: u64,
    /// Bins of all arenas.
    pub bins: u64,
}

/// A heap's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapArea {
    /// First byte.
    pub start: Avma,
    /// One past the last byte.
    pub end: Avma,
}

/// The result of a walk.
#[derive(Clone, Debug)]
pub struct Walk {
    /// All arenas together.
    pub total: Arena,
    /// Each arena, the main one first.
    pub arenas: Vec<Arena>,
    /// Chunks outside the arenas.
    pub mmapped: MmappedChunks,
    /// Where heaps are, ascending.
    pub heaps: Vec<HeapArea>,
    /// Where chunks with a mapping of their own are, ascending.
    pub mmapped_areas: Vec<HeapArea>,
    /// Threads whose cache of free chunks was found.
    pub thread_caches: u64,
    /// What went wrong.
    pub losses: WalkLosses,
}

/// Reads all heaps of a process.
///
/// # Errors
/// When there is no glibc heap.
pub fn walk(
    memory: &mut ProcessMemory<'_>,
    pages: &mut dyn PageSource,
    around: &Surroundings<'_>,
) -> Result<Walk, NoWalk> {
    let found = arenas::find(memory, around.mappings).ok_or(NoWalk::NoArena)?;
    let mut walker = Walker {
        memory,
        pages,
        version: around.version,
        noted: Noted { cache_sizes: cache_sizes(around.version), ..Noted::default() },
        fast: Lists::default(),
        layout: found.layout,
        read: Vec::new(),
        arenas: Vec::new(),
        losses: WalkLosses::default(),
    };
    walker.read_arenas(&found, around.mappings);
    if walker.arenas.iter().all(|arena| arena.system_bytes == 0) {
        return Err(NoWalk::Empty);
    }
    let thread_caches = walker.sort_out_lists();
    let Walker { arenas, read, losses, memory, pages, .. } = walker;
    let mut heaps: Vec<HeapArea> =
        read.iter().map(|heap| HeapArea { start: heap.place.start, end: heap.place.end }).collect();
    heaps.sort_unstable_by_key(|heap| heap.start);
    let mmapped_areas = mmapped_areas(memory, pages, around, &heaps);
    let mut total = Arena::default();
    arenas.iter().for_each(|arena| total.add(arena));
    let mmapped = MmappedChunks {
        chunks: mmapped_areas.len() as u64,
        bytes: mmapped_areas.iter().map(|area| area.end - area.start).sum(),
        expected_chunks: found.parameters.map(|parameters| parameters.mmapped_chunks),
        expected_bytes: found.parameters.map(|parameters| parameters.mmapped_bytes),
    };
    Ok(Walk { total, arenas, mmapped, heaps, mmapped_areas, thread_caches, losses })
}

/// A heap that has been read.
struct ReadHeap {
    place: Heap,
    arena: usize,
    residency: Residency,
    maybe_caches: Vec<(Avma, u64)>,
}

struct Walker<'a, 'm> {
    memory: &'a mut ProcessMemory<'m>,
    pages: &'a mut dyn PageSource,
    version: Option<Version>,
    noted: Noted,
    fast: Lists,
    layout: Layout,
    read: Vec<ReadHeap>,
    arenas: Vec<Arena>,
    losses: WalkLosses,
}

impl Walker<'_, '_> {
    fn read_arenas(&mut self, found: &Arenas, mappings: &[Mapping<'_>]) {
        let index: FxHashMap<Avma, usize> = [found.main]
            .iter()
            .chain(&found.others)
            .enumerate()
            .map(|(index, &arena)| (arena, index))
            .collect();
        for &address in [found.main].iter().chain(&found.others) {
            let (system_bytes, _) = self.layout.system_bytes(self.memory, address).unwrap_or_default();
            self.arenas.push(Arena { address, system_bytes, ..Arena::default() });
            self.losses.bins += Layout::bins();
            self.losses.bins_closed += self.layout.bins_that_close(self.memory, address);
            fastbins(self.memory, self.layout, Linking::of(self.version), address, &mut self.fast);
        }
        self.noted.fast = self.fast.chunks.iter().map(|chunk| chunk.chunk).collect();
        if let Some(main) = mappings.iter().find(|mapping| mapping.name == "[heap]") {
            let start = found.parameters.map_or(main.start, |parameters| parameters.heap_start);
            let first = start.next_multiple_of(16);
            self.read_heap(0, |walker| {
                let top = walker.memory.u64(found.main + walker.layout.top)?;
                // The kernel's end of the heap may be behind the one in an older list of mappings.
                let size = walker.memory.u64(top.wrapping_add(8)).unwrap_or(0) & !7;
                let end =
                    top.checked_add(size).filter(|end| (main.start..=main.end + (1 << 30)).contains(end));
                let top = end.is_some().then_some(top).filter(|top| *top >= first);
                let end = end.unwrap_or(main.end);
                (first < end).then_some(Heap { start: main.start, first, end, top, is_main: true })
            });
        }
        for info in &found.heaps {
            let arena = index[&info.arena];
            self.read_heap(arena, |walker| walker.heap_of_thread(found, info.start));
        }
    }

    /// Where the heap's chunks are, read anew right before they are.
    fn heap_of_thread(&mut self, found: &Arenas, start: Avma) -> Option<Heap> {
        let info = HeapInfo::read(self.memory, start)?;
        let (_, structure) = self.layout.system_bytes(self.memory, info.arena)?;
        let behind = if info.head().is_some() { info.arena + structure } else { start + found.head };
        let end = start + info.size;
        let top = self.memory.u64(info.arena + self.layout.top)?;
        let first = behind.next_multiple_of(16);
        let top = (first..end).contains(&top).then_some(top);
        (first < end).then_some(Heap { start, first, end, top, is_main: false })
    }

    /// Reads one heap, a second time if headers did not hold together, and keeps the better result.
    fn read_heap(&mut self, arena: usize, place: impl Fn(&mut Self) -> Option<Heap>) {
        let mut best: Option<(HeapUse, Heap, Residency)> = None;
        for _ in 0..2 {
            let Some(heap) = place(self) else { break };
            let residency =
                Residency::of(self.pages, heap.start & !(PAGE - 1), heap.end.next_multiple_of(PAGE));
            let found = HeapWalk::run(self.memory, &residency, heap, &self.noted);
            self.losses.heaps_read_again += u64::from(best.is_some());
            let is_whole = found.derailments == 0;
            if best.as_ref().is_none_or(|(best, ..)| found.unknown.bytes < best.unknown.bytes) {
                best = Some((found, heap, residency));
            }
            if is_whole {
                break;
            }
        }
        let Some((found, place, residency)) = best else {
            self.losses.heaps_vanished += 1;
            return;
        };
        self.losses.derailments += found.derailments;
        self.arenas[arena].add_heap(&found);
        self.read.push(ReadHeap { place, arena, residency, maybe_caches: found.maybe_caches });
    }

    /// Moves chunks in fastbins and threads' caches out of those in use. How many threads' caches there are.
    fn sort_out_lists(&mut self) -> u64 {
        let (fast, mut cached, mut threads) = (std::mem::take(&mut self.fast), Lists::default(), 0);
        let caches: Vec<_> = self.read.iter().flat_map(|heap| heap.maybe_caches.iter().copied()).collect();
        for cache in caches {
            threads += u64::from(thread_cache(self.memory, self.version, cache, &mut cached));
        }
        self.losses.lists_cut += fast.cut + cached.cut;
        self.read.sort_unstable_by_key(|heap| heap.place.start);
        for (lists, is_fast) in [(&fast, true), (&cached, false)] {
            for chunk in &lists.chunks {
                let behind = self.read.partition_point(|heap| heap.place.start <= chunk.chunk);
                let Some(heap) = behind.checked_sub(1).map(|index| &self.read[index]) else { continue };
                let Some(end) = chunk.chunk.checked_add(chunk.size).filter(|&end| end <= heap.place.end)
                else {
                    continue;
                };
                let resident_bytes = heap.residency.resident_bytes(chunk.chunk, end);
                let moved = Use { chunks: 1, bytes: chunk.size, resident_bytes };
                let arena = &mut self.arenas[heap.arena];
                let to = if is_fast { &mut arena.fast } else { &mut arena.thread_caches };
                arena.in_use.give(moved, to);
            }
        }
        threads
    }
}

/// The chunks in anonymous memory that is neither heap nor somebody else's.
fn mmapped_areas(
    memory: &mut ProcessMemory<'_>,
    pages: &mut dyn PageSource,
    around: &Surroundings<'_>,
    heaps: &[HeapArea],
) -> Vec<HeapArea> {
    let mut taken: Vec<(Avma, Avma)> = heaps.iter().map(|heap| (heap.start, heap.end)).collect();
    taken.extend_from_slice(around.elsewhere);
    taken.sort_unstable();
    let mut found = Vec::new();
    for mapping in around.mappings.iter().filter(|mapping| mapping.read_write && mapping.is_anonymous()) {
        let mut at = mapping.start;
        let from = taken.partition_point(|&(_, end)| end <= mapping.start);
        for &(start, end) in taken[from..].iter().take_while(|&&(start, _)| start < mapping.end) {
            let start = start & !(PAGE - 1);
            if at < start {
                mmapped::find(memory, pages, (at, start), &mut found);
            }
            at = at.max(end.next_multiple_of(PAGE));
        }
        if at < mapping.end {
            mmapped::find(memory, pages, (at, mapping.end), &mut found);
        }
    }
    found.into_iter().map(|(start, size)| HeapArea { start, end: start + size }).collect()
}
