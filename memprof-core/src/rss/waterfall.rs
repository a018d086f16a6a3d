//! Every resident page to its owner.

use rustc_hash::FxHashSet;

use super::land::Land;
use super::surroundings::beside;
use super::{Account, Allocator, Line, Owner};
use crate::address::Avma;
use crate::glibc::{self, Surroundings, Version, Walk};
use crate::jvm::{JvmFacts, JvmPart, Nmt};
use crate::memory::ProcessMemory;
use crate::pages::{PAGE, PageSource, PageState};
use crate::process::mappings::Mapping;
use crate::process::module::FileId;
use crate::process::smaps::MappedMemory;

/// Bytes that each of the JVM's blocks takes beside what it counts: glibc's header and rounding (estimate).
const BLOCK_OVERHEAD: u64 = 16;

/// The largest guard below a thread's stack: HotSpot's zones with large pages of guard take up to 100 KiB.
const MAX_GUARD: u64 = 128 << 10;

/// Pages looked at in one go.
const BATCH: u64 = 1 << 16;

/// What was read of a process from outside.
#[derive(Clone, Copy, Debug)]
pub struct Process<'a> {
    /// Its mappings and what of them is in memory.
    pub smaps: &'a [MappedMemory<'a>],
    /// The text of `/proc/PID/status`.
    pub status: &'a str,
    /// Its glibc's version.
    pub glibc: Option<Version>,
    /// What it says of itself, if it is a JVM.
    pub jvm: Option<&'a JvmFacts>,
}

/// Walks the heaps and accounts for every resident page.
pub fn account(memory: &mut ProcessMemory<'_>, pages: &mut dyn PageSource, process: &Process<'_>) -> Account {
    let mappings: Vec<Mapping<'_>> = process.smaps.iter().map(|memory| memory.mapping).collect();
    let mut land = Land::default();
    for area in process.jvm.iter().flat_map(|jvm| &jvm.areas) {
        land.claim(area.start, area.end, Place::Owned(Owner::Jvm(area.part)));
    }
    let elsewhere = land.ranges();
    let around = Surroundings { mappings: &mappings, elsewhere: &elsewhere, version: process.glibc };
    let heaps = glibc::walk(memory, pages, &around).map_err(|error| error.to_string());
    let other = glibc::other_allocator(&mappings).filter(|_| heaps.is_err());
    if let Ok(walk) = &heaps {
        walk.heaps.iter().for_each(|heap| land.claim(heap.start, heap.end, Place::Heap));
        walk.mmapped_areas.iter().for_each(|area| land.claim(area.start, area.end, Place::Block));
    }
    claim_by_neighbours(&mut land, &mappings);

    let mut sums = Sums::default();
    let mut blocks = 0;
    let code = code_files(&mappings);
    for memory in process.smaps.iter().filter(|memory| memory.rss > 0) {
        let mapping = &memory.mapping;
        if is_plain_memory(mapping) {
            for (start, end, place) in land.pieces(mapping.start, mapping.end) {
                match place {
                    // The walk tells, to the byte.
                    Some(Place::Heap) => {}
                    Some(Place::Block) => blocks += resident(pages, start, end),
                    Some(Place::Owned(owner)) => sums.add(owner, resident(pages, start, end)),
                    None if other.is_some() => sums.add(Owner::OtherAllocator, resident(pages, start, end)),
                    None => sums.add(Owner::Anonymous, resident(pages, start, end)),
                }
            }
        } else if let Some(Place::Owned(owner)) = land.owner(mapping.start) {
            sums.add(owner, memory.rss);
        } else {
            file(&mut sums, memory, &code);
        }
    }
    let mut lines = sums.lines();
    if let Ok(walk) = &heaps {
        heap_lines(&mut lines, walk, blocks, process.jvm.and_then(|jvm| jvm.nmt.as_ref()));
    }
    let place = |line: &Line| Owner::ALL.iter().position(|owner| *owner == line.owner);
    lines.sort_by_key(|line| (place(line), std::cmp::Reverse(line.bytes)));
    let rss_bytes: u64 = process.smaps.iter().map(|memory| memory.rss).sum();
    let explained: u64 = lines.iter().map(|line| line.bytes).sum();
    let name = if heaps.is_ok() { Some("glibc") } else { other };
    Account {
        rss_bytes,
        lines,
        unexplained_bytes: rss_bytes.cast_signed() - explained.cast_signed(),
        beside: beside(process.smaps, process.status),
        allocator: Allocator { name, version: process.glibc, heaps },
        jvm: process.jvm.map(JvmFacts::summary),
    }
}

/// What lies at an address of anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// One of glibc's heaps.
    Heap,
    /// A block with a mapping of its own.
    Block,
    /// Something that belongs to one owner as a whole.
    Owned(Owner),
}

/// Memory whose pages belong to no file, which the kernel merges where neighbours are alike.
fn is_plain_memory(mapping: &Mapping<'_>) -> bool {
    !mapping.shared && (mapping.is_anonymous() || mapping.name == "[heap]")
}

/// Variables of libraries lie behind a writable mapping of their file, stacks behind a guard.
fn claim_by_neighbours(land: &mut Land<Place>, mappings: &[Mapping<'_>]) {
    for pair in mappings.windows(2) {
        let [before, mapping] = pair else { continue };
        if before.end != mapping.start || !mapping.read_write || !is_plain_memory(mapping) {
            continue;
        }
        if before.file.is_some() && before.read_write && !before.shared {
            land.claim(mapping.start, mapping.end, Place::Owned(Owner::LibraryData));
        } else if before.no_access && before.end - before.start <= MAX_GUARD {
            land.claim(mapping.start, mapping.end, Place::Owned(Owner::Jvm(JvmPart::ThreadStacks)));
        }
    }
}

fn resident(pages: &mut dyn PageSource, start: Avma, end: Avma) -> u64 {
    let mut count = 0;
    let mut at = start & !(PAGE - 1);
    while at < end {
        let batch = (end - at).div_ceil(PAGE).min(BATCH);
        let mut states = vec![PageState::Absent; batch as usize];
        pages.pages(at, &mut states);
        count += states.iter().filter(|state| **state == PageState::Resident).count() as u64;
        at += batch * PAGE;
    }
    count * PAGE
}

/// Files of which some part is mapped as code.
fn code_files(mappings: &[Mapping<'_>]) -> FxHashSet<FileId> {
    mappings.iter().filter(|mapping| mapping.executable).filter_map(|mapping| mapping.file).collect()
}

fn file(sums: &mut Sums, memory: &MappedMemory<'_>, code: &FxHashSet<FileId>) {
    let mapping = &memory.mapping;
    let path = mapping.path();
    let name = path.rsplit('/').next().unwrap_or(path);
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if mapping.name == "[stack]" {
        sums.add(Owner::Jvm(JvmPart::ThreadStacks), memory.rss);
    } else if mapping.file.is_none() {
        sums.add(Owner::Kernel, memory.rss);
    } else if name.starts_with("memfd:java_heap") {
        // ZGC's heap.
        sums.add(Owner::Jvm(JvmPart::JavaHeap), memory.rss);
    } else if ends(&[".jsa"]) {
        sums.add(Owner::Jvm(JvmPart::SharedClasses), memory.rss);
    } else if is_shared_memory(path) {
        sums.add(Owner::Shared, memory.rss);
    } else if mapping.file.is_some_and(|file| code.contains(&file)) || ends(&[".so"]) || name.contains(".so.")
    {
        let data = memory.anonymous.min(memory.rss);
        sums.add(Owner::LibraryData, data);
        sums.add(Owner::LibraryCode, memory.rss - data);
    } else if ends(&[".jar", ".war", ".jmod"]) || name == "modules" {
        sums.add(Owner::Archives, memory.rss);
    } else {
        sums.add(Owner::Files, memory.rss);
    }
}

/// Files that are nowhere but in memory, as the kernel names them.
fn is_shared_memory(path: &str) -> bool {
    ["/dev/zero", "/dev/shm/", "/memfd:", "/SYSV", "/anon_hugepage", "/PostgreSQL."]
        .iter()
        .any(|start| path.starts_with(start))
}

/// Bytes by owner.
#[derive(Debug, Default)]
struct Sums(Vec<(Owner, u64)>);

impl Sums {
    fn add(&mut self, owner: Owner, bytes: u64) {
        match self.0.iter_mut().find(|(of, _)| *of == owner) {
            Some((_, sum)) => *sum += bytes,
            None => self.0.push((owner, bytes)),
        }
    }

    fn lines(&self) -> Vec<Line> {
        let line = |&(owner, bytes): &(Owner, u64)| Line { owner, category: None, bytes };
        self.0.iter().filter(|(_, bytes)| *bytes > 0).map(line).collect()
    }
}

/// The lines of glibc's heaps and of blocks with mappings of their own, of which `blocks` bytes are in memory.
fn heap_lines(lines: &mut Vec<Line>, walk: &Walk, blocks: u64, nmt: Option<&Nmt>) {
    let total = &walk.total;
    let in_use = total.in_use.resident_bytes + blocks;
    let of_jvm =
        nmt.map_or_else(Vec::new, |nmt| jvm_blocks(nmt, in_use, total.in_use.bytes + walk.mmapped.bytes));
    let sum_of_jvm: u64 = of_jvm.iter().map(|line| line.bytes).sum();
    lines.extend(of_jvm);
    let trimmable = total.trimmable_bytes + total.trimmable_top_bytes;
    // Fastbins are free for `malloc_trim`, which merges them with what is free beside them.
    let free = total.free.resident_bytes + total.fast.resident_bytes + total.top.resident_bytes;
    let stays = free.saturating_sub(trimmable);
    let tops = total.top.resident_bytes.saturating_sub(total.trimmable_top_bytes).min(stays);
    let parts = [
        (Owner::Malloc, in_use - sum_of_jvm),
        (Owner::Trimmable, trimmable.min(free)),
        (Owner::Tops, tops),
        (Owner::PartialPages, stays - tops),
        (Owner::Caches, total.thread_caches.resident_bytes),
        (Owner::Heads, total.heads.resident_bytes),
        (Owner::UnreadHeap, total.unknown.resident_bytes),
    ];
    let line = |(owner, bytes)| Line { owner, category: None, bytes };
    lines.extend(parts.into_iter().filter(|(_, bytes)| *bytes > 0).map(line));
}

/// The JVM's own blocks by purpose: its bytes with headers, by the share of all blocks in use that is in memory.
fn jvm_blocks(nmt: &Nmt, resident: u64, bytes: u64) -> Vec<Line> {
    let mut amounts: Vec<(String, u64)> = nmt
        .categories
        .iter()
        .map(|category| {
            let amount = category.malloc + category.arena + category.blocks * BLOCK_OVERHEAD;
            (category.name.clone(), amount)
        })
        .collect();
    amounts.push(("tracking overhead".to_owned(), nmt.overhead));
    // No more than there is: the JVM goes on between its answer and the walk.
    let whole = bytes.max(amounts.iter().map(|(_, amount)| amount).sum::<u64>()).max(1);
    amounts
        .into_iter()
        .map(|(name, amount)| {
            let share = u128::from(amount) * u128::from(resident) / u128::from(whole);
            (name, u64::try_from(share).expect("no more than what is resident"))
        })
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(name, bytes)| Line { owner: Owner::MallocOfJvm, category: Some(name), bytes })
        .collect()
}
