//! The chunks of one heap.

use rustc_hash::FxHashSet;

use super::layout::{ALIGN, FLAGS, IS_MMAPPED, MIN_CHUNK, NON_MAIN, PREV_IN_USE};
use super::walk::Use;
use super::window::{Residency, Window};
use crate::address::Avma;
use crate::memory::ProcessMemory;
use crate::pages::PAGE;

/// How many headers in a row must hold together where the walk begins anew.
const PROOF: usize = 16;

/// No chunk behind the last one of a full heap is smaller than its fence (two headers).
const FENCE: u64 = 64;

/// Most chunks noted as perhaps a thread's cache.
const MAX_NOTED: usize = 1 << 16;

/// Fields of a free chunk that `malloc_trim` leaves alone (`sizeof (struct malloc_chunk)`).
const FREE_HEAD: u64 = 48;

/// A stretch of memory that is divided into chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heap {
    /// The first byte, that of the heap's head if it has one.
    pub(super) start: Avma,
    /// The first chunk.
    pub(super) first: Avma,
    /// One past the last byte.
    pub(super) end: Avma,
    /// The arena's last chunk, if it is in this heap.
    pub(super) top: Option<Avma>,
    /// Whether it is the main arena's.
    pub(super) is_main: bool,
}

/// What the chunks of a heap are.
#[derive(Clone, Debug, Default)]
pub(super) struct HeapUse {
    pub(super) in_use: Use,
    pub(super) free: Use,
    pub(super) top: Use,
    /// Heads, arenas, fences.
    pub(super) heads: Use,
    /// Between a header that cannot be and the next ones that hold together.
    pub(super) unknown: Use,
    /// What `malloc_trim` gives back of free chunks: whole pages. It first merges chunks in fastbins with free ones
    /// beside them.
    pub(super) trimmable: u64,
    /// What it gives back of the main arena's top.
    pub(super) trimmable_top: u64,
    /// How often the walk began anew.
    pub(super) derailments: u64,
    /// Chunks as large as a thread's cache of free chunks is.
    pub(super) maybe_caches: Vec<(Avma, u64)>,
}

/// One walk through a heap.
pub(super) struct HeapWalk<'a, 'm> {
    memory: &'a mut ProcessMemory<'m>,
    residency: &'a Residency,
    window: Window,
    heap: Heap,
    lists: &'a Noted,
    /// Where the free chunks that reach up to here begin.
    free_from: Option<Avma>,
    found: HeapUse,
}

/// What is known of chunks before their heap is read.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Chunks in fastbins.
    pub(super) fast: FxHashSet<Avma>,
    /// Bytes of the chunks that may hold a thread's cache.
    pub(super) cache_sizes: Vec<u64>,
}

impl<'a, 'm> HeapWalk<'a, 'm> {
    /// Walks through `heap`, whose pages are known.
    pub(super) fn run(
        memory: &'a mut ProcessMemory<'m>,
        residency: &'a Residency,
        heap: Heap,
        lists: &'a Noted,
    ) -> HeapUse {
        let window = Window::new(heap.end);
        let found = HeapUse::default();
        let mut walk = Self { memory, residency, window, heap, lists, free_from: None, found };
        walk.add_head(heap.start, heap.first);
        let mut at = heap.first;
        while at < heap.end {
            at = match walk.step(at) {
                Some(next) => next,
                None => walk.begin_anew(at),
            };
        }
        walk.end_free(heap.end);
        walk.found
    }

    fn use_of(&self, start: Avma, end: Avma) -> Use {
        Use { chunks: 1, bytes: end - start, resident_bytes: self.residency.resident_bytes(start, end) }
    }

    fn add_head(&mut self, start: Avma, end: Avma) {
        let head = self.use_of(start, end);
        self.found.heads += head;
    }

    fn word(&mut self, address: Avma) -> Option<u64> {
        self.window.word(self.memory, self.residency, address)
    }

    /// Deals with the chunk at `at`; where the next one starts. None when there is no chunk.
    fn step(&mut self, at: Avma) -> Option<Avma> {
        if self.heap.top == Some(at) {
            self.add_top(at);
            return Some(self.heap.end);
        }
        let field = self.word(at + 8)?;
        let size = field & !FLAGS;
        if size <= ALIGN && self.heap.end - at <= FENCE {
            self.end_free(at);
            self.add_head(at, self.heap.end);
            return Some(self.heap.end);
        }
        if !self.is_plausible(at, field) {
            return None;
        }
        let next = at + size;
        let is_in_use = next == self.heap.end || self.word(next + 8)? & PREV_IN_USE != 0;
        let chunk = self.use_of(at, next);
        if is_in_use {
            self.found.in_use += chunk;
            if self.lists.fast.contains(&at) {
                self.free_from.get_or_insert(at);
            } else {
                self.end_free(at);
            }
            if self.lists.cache_sizes.contains(&size) && self.found.maybe_caches.len() < MAX_NOTED {
                self.found.maybe_caches.push((at, size));
            }
        } else {
            self.found.free += chunk;
            self.free_from.get_or_insert(at);
        }
        Some(next)
    }

    /// The free chunks before `at` end here.
    fn end_free(&mut self, at: Avma) {
        if let Some(start) = self.free_from.take() {
            self.found.trimmable += self.residency.whole_pages(start + FREE_HEAD, at);
        }
    }

    /// What `systrim` leaves of the top is a smallest chunk, rounded up to a page (`top_pad` is 0 in `malloc_trim`).
    fn add_top(&mut self, at: Avma) {
        let end = self.heap.end;
        let top = self.use_of(at, end);
        self.found.top += top;
        // Free chunks before it become part of it. Of a thread's arena nothing of that is given back.
        let at = self.free_from.take().unwrap_or(at);
        if self.heap.is_main {
            let kept = end - at;
            let returned = kept.saturating_sub(MIN_CHUNK + 1) & !(PAGE - 1);
            self.found.trimmable_top = self.residency.whole_pages(end - returned, end);
        }
    }

    fn is_plausible(&self, at: Avma, field: u64) -> bool {
        let size = field & !FLAGS;
        let limit = self.heap.top.filter(|&top| at < top).unwrap_or(self.heap.end);
        size >= MIN_CHUNK
            && size.is_multiple_of(ALIGN)
            && field & IS_MMAPPED == 0
            && !(self.heap.is_main && field & NON_MAIN != 0)
            // Not at + size, which may overflow.
            && size <= limit - at
    }

    /// Finds the next address from which headers hold together, and counts what lies before it as unknown.
    fn begin_anew(&mut self, from: Avma) -> Avma {
        self.found.derailments += 1;
        self.end_free(from);
        let limit = self.heap.top.filter(|&top| from < top).unwrap_or(self.heap.end);
        let mut at = from + ALIGN;
        while at < limit {
            if !self.residency.is_resident(at + 8) {
                at = ((at + 8) & !(PAGE - 1)) + PAGE - 8;
                at = at.next_multiple_of(ALIGN);
                continue;
            }
            if self.holds_together(at, limit) {
                break;
            }
            at += ALIGN;
        }
        let at = at.min(limit);
        let unknown = self.use_of(from, at);
        self.found.unknown += unknown;
        at
    }

    fn holds_together(&mut self, mut at: Avma, limit: Avma) -> bool {
        for _ in 0..PROOF {
            if at == limit {
                return true;
            }
            let Some(field) = self.window.peek(self.memory, self.residency, at + 8) else { return false };
            if !self.is_plausible(at, field) {
                return false;
            }
            let size = field & !FLAGS;
            let next = at + size;
            if next < self.heap.end {
                let Some(behind) = self.window.peek(self.memory, self.residency, next + 8) else {
                    return false;
                };
                let is_free = behind & PREV_IN_USE == 0;
                if is_free && self.window.peek(self.memory, self.residency, next) != Some(size) {
                    return false;
                }
            }
            at = next;
        }
        true
    }
}
