//! Free chunks that look in use: those in fastbins and in threads' caches.

use super::layout::{FLAGS, Layout};
use super::version::Version;
use crate::address::Avma;
use crate::memory::ProcessMemory;

/// Lists of a fastbin array (`NFASTBINS`).
const FASTBINS: u64 = 10;

/// Most chunks followed in one list.
const MAX_LIST: usize = 1 << 20;

/// Most chunks kept of all lists.
const MAX_CHUNKS: usize = 1 << 22;

/// A free chunk in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cached {
    /// Where the chunk starts.
    pub(super) chunk: Avma,
    /// Its bytes.
    pub(super) size: u64,
}

/// The chunks found in lists.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    pub(super) chunks: Vec<Cached>,
    /// Lists that could not be followed to their end: they are long, or were being changed.
    pub(super) cut: u64,
}

/// How a version keeps these lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linking {
    /// Since 2.32 a pointer is stored xor-ed with its own address in pages (`PROTECT_PTR`).
    is_protected: bool,
}

impl Linking {
    /// That of a version; of an unknown one that of the newer ones.
    pub(super) fn of(version: Option<Version>) -> Self {
        Self { is_protected: version.is_none_or(|version| version >= Version(2, 32)) }
    }

    fn reveal(self, field: Avma, stored: u64) -> Avma {
        if self.is_protected { stored ^ (field >> 12) } else { stored }
    }

    /// Follows a list whose pointers lead so many bytes into each chunk as `into` says: `first` is such a pointer.
    fn follow(
        self,
        memory: &mut ProcessMemory<'_>,
        (first, into): (Avma, u64),
        size: Option<u64>,
        most: usize,
        lists: &mut Lists,
    ) {
        let mut at = first;
        for _ in 0..most {
            if at == 0 {
                return;
            }
            let chunk = at.wrapping_sub(into);
            let field = memory.u64(chunk.wrapping_add(8)).map(|field| field & !FLAGS);
            let link = chunk.wrapping_add(16);
            let (Some(found), Some(stored)) = (field, memory.u64(link)) else { break };
            if !chunk.is_multiple_of(16)
                || size.is_some_and(|size| size != found)
                || lists.chunks.len() >= MAX_CHUNKS
            {
                break;
            }
            lists.chunks.push(Cached { chunk, size: found });
            at = self.reveal(link, stored);
        }
        lists.cut += u64::from(at != 0);
    }
}

/// The chunks in an arena's fastbins.
pub(super) fn fastbins(
    memory: &mut ProcessMemory<'_>,
    layout: Layout,
    linking: Linking,
    arena: Avma,
    lists: &mut Lists,
) {
    let Some(bins) = layout.fastbins(arena) else { return };
    for index in 0..FASTBINS {
        if let Some(first) = memory.u64(bins + index * 8) {
            linking.follow(memory, (first, 0), Some((index + 2) * 16), MAX_LIST, lists);
        }
    }
}

/// How a thread's cache is laid out (`tcache_perthread_struct`).
#[derive(Clone, Copy, Debug)]
struct CacheLayout {
    /// Bytes of its chunk.
    chunk: u64,
    /// Lists.
    bins: usize,
    /// Bytes of a count.
    count: usize,
    /// Whether free places are counted instead of chunks.
    counts_free: bool,
}

/// 2.26 to 2.29, 2.30 to 2.41, and 2.42.
const CACHES: [CacheLayout; 3] = [
    CacheLayout { chunk: 0x250, bins: 64, count: 1, counts_free: false },
    CacheLayout { chunk: 0x290, bins: 64, count: 2, counts_free: false },
    CacheLayout { chunk: 0x300, bins: 76, count: 2, counts_free: true },
];

fn cache_layouts(version: Option<Version>) -> &'static [CacheLayout] {
    match version {
        None => &CACHES,
        Some(version) if version < Version(2, 26) => &[],
        Some(version) if version < Version(2, 30) => &CACHES[..1],
        Some(version) if version < Version(2, 42) => &CACHES[1..2],
        Some(_) => &CACHES[2..],
    }
}

/// Bytes of the chunks that may hold a thread's cache.
pub(super) fn cache_sizes(version: Option<Version>) -> Vec<u64> {
    cache_layouts(version).iter().map(|layout| layout.chunk).collect()
}

/// The chunks in what may be a thread's cache; nothing when it is none. Whether it is one.
pub(super) fn thread_cache(
    memory: &mut ProcessMemory<'_>,
    version: Option<Version>,
    (chunk, size): (Avma, u64),
    lists: &mut Lists,
) -> bool {
    let Some(layout) = cache_layouts(version).iter().find(|layout| layout.chunk == size) else {
        return false;
    };
    let Some(bytes) = memory.bytes(chunk + 16, layout.bins * (layout.count + 8)) else { return false };
    let Some(bins) = bins(layout, &bytes) else { return false };
    let expected = |index: usize| (index < 64).then_some((index as u64 + 2) * 16);
    let first_is_right = |&(index, count, entry): &(usize, usize, Avma)| {
        count == 0 || {
            let size = memory.u64(entry.wrapping_sub(8)).map(|field| field & !FLAGS);
            expected(index).is_none_or(|expected| size == Some(expected)) && size.is_some()
        }
    };
    if !bins.iter().all(first_is_right) || bins.iter().all(|&(_, count, _)| count == 0) {
        return false;
    }
    for (index, count, entry) in bins.into_iter().filter(|&(_, count, _)| count > 0) {
        let linking = Linking::of(version);
        linking.follow(memory, (entry, 16), expected(index), count, lists);
    }
    true
}

/// Index, number of chunks and first entry of each list; none when they contradict each other.
fn bins(layout: &CacheLayout, bytes: &[u8]) -> Option<Vec<(usize, usize, Avma)>> {
    let counts: Vec<usize> = (0..layout.bins)
        .map(|index| {
            let at = index * layout.count;
            bytes[at..at + layout.count].iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte))
        })
        .collect();
    // At least one list is empty, and has all its places free.
    let places = counts.iter().copied().max().filter(|_| layout.counts_free);
    let entries = &bytes[layout.bins * layout.count..];
    let bins: Vec<(usize, usize, Avma)> = counts
        .into_iter()
        .enumerate()
        .map(|(index, count)| {
            let entry = entries[index * 8..index * 8 + 8].try_into().expect("eight bytes");
            (index, places.map_or(count, |places| places - count), u64::from_ne_bytes(entry))
        })
        .collect();
    let agrees = |&(_, count, entry): &(usize, usize, Avma)| (count > 0) == (entry != 0) && entry % 16 == 0;
    bins.iter().all(agrees).then_some(bins)
}
