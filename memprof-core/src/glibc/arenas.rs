//! Finding the arenas without symbols.

use rustc_hash::FxHashSet;

use super::layout::{HEAP_ALIGN, Layout, TOP_OFFSETS};
use super::version::is_libc;
use crate::address::Avma;
use crate::memory::ProcessMemory;
use crate::process::mappings::Mapping;

/// Most arenas of a process: glibc makes at most eight per processor.
const MAX_ARENAS: usize = 1 << 16;

/// Most threads' heaps: 4 TiB of them.
const MAX_HEAPS: usize = 1 << 16;

/// Most bytes of libc's data that are searched.
const MAX_DATA: u64 = 1 << 20;

/// The head of a thread's heap (`heap_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeapInfo {
    /// Where the heap starts.
    pub(super) start: Avma,
    /// The arena it belongs to.
    pub(super) arena: Avma,
    /// Bytes in use as heap.
    pub(super) size: u64,
}

impl HeapInfo {
    /// Reads the head of a heap, if there is a plausible one.
    pub(super) fn read(memory: &mut ProcessMemory<'_>, start: Avma) -> Option<Self> {
        let bytes = memory.bytes(start, 32)?;
        let word = |i: usize| u64::from_ne_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        let (arena, size, writable) = (word(0), word(2), word(3));
        let plausible =
            arena != 0 && arena % 16 == 0 && size % 4096 == 0 && (4096..=HEAP_ALIGN).contains(&size);
        (plausible && size <= writable && writable <= HEAP_ALIGN).then_some(Self { start, arena, size })
    }

    /// Bytes of the head, if the arena's structure follows it: that is so in an arena's first heap.
    pub(super) fn head(&self) -> Option<u64> {
        self.arena.checked_sub(self.start).filter(|head| matches!(head, 0x20 | 0x30 | 0x40))
    }
}

/// The arenas of a process.
#[derive(Debug)]
pub(super) struct Arenas {
    pub(super) layout: Layout,
    /// In libc's data.
    pub(super) main: Avma,
    /// Those of threads, in the order of their ring.
    pub(super) others: Vec<Avma>,
    /// Threads' heaps, ascending.
    pub(super) heaps: Vec<HeapInfo>,
    /// Bytes of `heap_info`.
    pub(super) head: u64,
    /// Parameters of malloc, if they were found.
    pub(super) parameters: Option<Parameters>,
}

/// What is read of `mp_` (`struct malloc_par`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Where the main arena starts (`sbrk_base`).
    pub(super) heap_start: Avma,
    /// Chunks with a mapping of their own (`n_mmaps`).
    pub(super) mmapped_chunks: u64,
    /// Their bytes (`mmapped_mem`).
    pub(super) mmapped_bytes: u64,
}

/// Finds the arenas; none when this process has no glibc, or does not use its malloc.
pub(super) fn find(memory: &mut ProcessMemory<'_>, mappings: &[Mapping<'_>]) -> Option<Arenas> {
    let data = data_of_libc(mappings);
    let mut heaps = heaps(memory, mappings);
    let (layout, main, others) = by_ring(memory, &heaps, &data).or_else(|| {
        let (layout, main) = by_itself(memory, &data)?;
        Some((layout, main, Vec::new()))
    })?;
    let known: FxHashSet<Avma> = others.iter().copied().collect();
    heaps.retain(|heap| known.contains(&heap.arena));
    let head = heaps.iter().find_map(HeapInfo::head).unwrap_or(0x30);
    let parameters = parameters(memory, mappings, &data);
    Some(Arenas { layout, main, others, heaps, head, parameters })
}

/// Where libc keeps its variables: its writable mappings with the anonymous memory behind them; those of the
/// program where there is no library.
fn data_of_libc(mappings: &[Mapping<'_>]) -> Vec<(Avma, Avma)> {
    let program = mappings.iter().find(|mapping| mapping.file.is_some()).map(|mapping| mapping.path());
    let has_library = mappings.iter().any(is_libc);
    let is_data = |mapping: &Mapping<'_>| {
        mapping.read_write
            && !mapping.shared
            && if has_library {
                is_libc(mapping)
            } else {
                Some(mapping.path()) == program && mapping.file.is_some()
            }
    };
    let mut found: Vec<(Avma, Avma)> = Vec::new();
    for mapping in mappings {
        match found.last_mut() {
            // What follows without a gap: .bss.
            Some((_, end)) if *end == mapping.start && mapping.read_write && mapping.is_anonymous() => {
                *end = mapping.end;
            }
            _ if is_data(mapping) => found.push((mapping.start, mapping.end)),
            _ => {}
        }
    }
    found.iter().map(|&(start, end)| (start, end.min(start.saturating_add(MAX_DATA)))).collect()
}

fn is_in(ranges: &[(Avma, Avma)], address: Avma) -> bool {
    ranges.iter().any(|&(start, end)| (start..end).contains(&address))
}

/// Everything that looks like the head of a heap at the addresses where heaps start. Java heaps may lie there, too.
fn heaps(memory: &mut ProcessMemory<'_>, mappings: &[Mapping<'_>]) -> Vec<HeapInfo> {
    let mut found = Vec::new();
    for mapping in mappings.iter().filter(|mapping| mapping.read_write && mapping.is_anonymous()) {
        let mut address = mapping.start.next_multiple_of(HEAP_ALIGN);
        while address < mapping.end && found.len() < MAX_HEAPS {
            found.extend(HeapInfo::read(memory, address));
            address += HEAP_ALIGN;
        }
    }
    found
}

/// The arenas by their ring, which passes once through libc's data.
fn by_ring(
    memory: &mut ProcessMemory<'_>,
    heaps: &[HeapInfo],
    data: &[(Avma, Avma)],
) -> Option<(Layout, Avma, Vec<Avma>)> {
    let starts = heaps.iter().filter(|heap| heap.head().is_some()).take(64);
    for first in starts {
        for top in TOP_OFFSETS {
            let layout = Layout { top };
            if let Some((main, others)) = ring(memory, layout, first.arena, data) {
                return Some((layout, main, others));
            }
        }
    }
    None
}

fn ring(
    memory: &mut ProcessMemory<'_>,
    layout: Layout,
    first: Avma,
    data: &[(Avma, Avma)],
) -> Option<(Avma, Vec<Avma>)> {
    let (mut main, mut others, mut seen) = (None, Vec::new(), FxHashSet::default());
    let mut arena = first;
    while seen.insert(arena) {
        if is_in(data, arena) {
            if main.replace(arena).is_some() {
                return None;
            }
        } else {
            others.push(arena);
        }
        if seen.len() > MAX_ARENAS {
            return None;
        }
        arena = memory.u64(layout.next(arena))?;
    }
    (arena == first).then_some((main?, others))
}

/// The main arena where it is the only one: its `next` leads to itself, and its bins hold together.
fn by_itself(memory: &mut ProcessMemory<'_>, data: &[(Avma, Avma)]) -> Option<(Layout, Avma)> {
    for &(start, end) in data {
        let Some(bytes) = memory.bytes(start, (end - start) as usize) else { continue };
        for (address, word) in words(start, &bytes) {
            for top in TOP_OFFSETS {
                let layout = Layout { top };
                let is_ring = is_in(data, word) && layout.next(word) == address;
                // Bins that are being changed may not close.
                if is_ring && layout.bins_that_close(memory, word) + 8 >= Layout::bins() {
                    return Some((layout, word));
                }
            }
        }
    }
    None
}

fn words(start: Avma, bytes: &[u8]) -> impl Iterator<Item = (Avma, u64)> {
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    (start..).step_by(8).zip(words)
}

/// malloc's parameters: found by `sbrk_base`, which leads to the start of `[heap]`, and confirmed by the default of
/// `n_mmaps_max` nearby.
fn parameters(
    memory: &mut ProcessMemory<'_>,
    mappings: &[Mapping<'_>],
    data: &[(Avma, Avma)],
) -> Option<Parameters> {
    /// `DEFAULT_MMAP_MAX`
    const MMAP_MAX: u32 = 65536;
    let heap = mappings.iter().find(|mapping| mapping.name == "[heap]")?;
    for &(start, end) in data {
        let Some(bytes) = memory.bytes(start, (end - start) as usize) else { continue };
        for (address, word) in words(start, &bytes) {
            if word < heap.start || word >= heap.end || word - heap.start >= 4096 {
                continue;
            }
            let at = (address - start) as usize;
            // Up to 2.23 a third count (max_total_mem) lies between.
            for mmapped_at in [at.checked_sub(16), at.checked_sub(24)].into_iter().flatten() {
                let int = |back: usize| {
                    let bytes = bytes.get(mmapped_at.checked_sub(back)?..)?.get(..4)?;
                    Some(u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
                };
                // Since 2.35 another int lies before, which pads the four to three words.
                let count = [(12, 16), (16, 20)].into_iter().find(|&(max, _)| int(max) == Some(MMAP_MAX));
                if let Some((_, back)) = count {
                    let bytes = bytes[mmapped_at..mmapped_at + 8].try_into().expect("eight bytes");
                    let (mmapped_bytes, mmapped_chunks) = (u64::from_ne_bytes(bytes), u64::from(int(back)?));
                    return Some(Parameters { heap_start: word, mmapped_chunks, mmapped_bytes });
                }
            }
        }
    }
    None
}
