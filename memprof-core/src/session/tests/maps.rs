//! Memory maps in a session: what counts, what is an allocator's own, and what is lost.

use memprof_common::event::{MapCall, MapEvent};

use super::*;
use crate::input::AllocatorPart;

const PAGE: u64 = 4096;
const USABLE: u64 = 3;
/// Code that maps memory, and code of an allocator that does.
const DIRECT: u64 = 0x40_0500;
const INSIDE: u64 = 0x40_0300;
/// Pages at this address.
const AT: u64 = 0x7000_0000;

fn map_event(call: MapCall, time: u64, fields: [u64; 4], protection: u64, ip: u64) -> Input<'static> {
    let mut bytes = header(EventKind::Map, 12, time);
    for field in fields.into_iter().chain([protection, u64::from(call as u32)]) {
        bytes.extend(field.to_ne_bytes());
    }
    // Rest of the snapshot up to the registers.
    bytes.extend([0_u8; 64]);
    bytes.extend(ip.to_ne_bytes());
    bytes.resize(size_of::<MapEvent>(), 0);
    Input::Event(Cow::Owned(bytes))
}

fn mmap(time: u64, start: u64, pages: u64, ip: u64) -> Input<'static> {
    map_event(MapCall::Mmap, time, [start, pages * PAGE, 0, 0], USABLE, ip)
}

fn range(kind: EventKind, time: u64, fields: [u64; 3]) -> Input<'static> {
    let mut bytes = header(kind, 12, time);
    bytes.extend(fields.into_iter().flat_map(u64::to_ne_bytes));
    Input::Event(Cow::Owned(bytes))
}

fn munmap(time: u64, start: u64, pages: u64) -> [Input<'static>; 2] {
    [
        range(EventKind::Unmap, time, [start, pages * PAGE, MapCall::Munmap as u64]),
        range(EventKind::Unmapped, time + 1, [start, pages * PAGE, 0]),
    ]
}

/// Pages and calls in use.
fn pages(session: &Session) -> (f64, f64) {
    let (bytes, objects) = in_use(&session.snapshot(0));
    (bytes / PAGE as f64, objects)
}

#[test]
fn a_part_that_is_unmapped_is_gone() {
    let mut session = session([mmap(1000, AT, 10, DIRECT)]);
    assert_eq!(pages(&session), (10.0, 1.0));
    feed(&mut session, munmap(1100, AT + 3 * PAGE, 4));
    assert_eq!(pages(&session), (6.0, 1.0));
    feed(&mut session, munmap(1200, AT, 100));
    assert_eq!(pages(&session), (0.0, 0.0));
    let profile = session.snapshot(0);
    assert_eq!(profile.totals().allocated.bytes, 10.0 * PAGE as f64);
    assert_eq!(profile.coverage.samples, 1);
}

#[test]
fn a_failed_call_puts_back_what_it_took() {
    let mut session = session([mmap(1000, AT, 10, DIRECT)]);
    for call in [MapCall::Munmap, MapCall::Mremap] {
        feed(&mut session, [range(EventKind::Unmap, 1100, [AT, 4 * PAGE, call as u64])]);
        feed(&mut session, [range(EventKind::Unmapped, 1101, [AT, 4 * PAGE, 1])]);
        assert_eq!(pages(&session), (10.0, 1.0), "{call:?}");
    }
    // Its beginning was lost, so only the end tells of it.
    feed(&mut session, [range(EventKind::Unmapped, 1200, [AT, 4 * PAGE, 0])]);
    assert_eq!(pages(&session), (6.0, 1.0));
}

#[test]
fn mremap_moves_bytes_and_adds_its_own() {
    let (to, grown) = (AT + 100 * PAGE, DIRECT + 1);
    let mremap = |time, ip| map_event(MapCall::Mremap, time, [to, 10 * PAGE, AT, 6 * PAGE], 0, ip);
    let unmap = range(EventKind::Unmap, 1100, [AT, 6 * PAGE, MapCall::Mremap as u64]);
    for beginning_is_seen in [true, false] {
        let mut session = session([mmap(1000, AT, 8, DIRECT)]);
        if beginning_is_seen {
            feed(&mut session, [unmap.clone()]);
            assert_eq!(pages(&session), (8.0, 1.0), "in use on the way too");
        }
        feed(&mut session, [mremap(1200, grown)]);
        assert_eq!(pages(&session), (12.0, 2.0));
        feed(&mut session, munmap(1300, to, 6));
        assert_eq!(pages(&session), (6.0, 2.0), "two pages stayed where they were");
    }
}

#[test]
fn the_break_grows_and_shrinks() {
    let brk = |time, old: u64, new: u64| {
        [
            range(EventKind::Unmap, time, [old, new.wrapping_sub(old), MapCall::Brk as u64]),
            map_event(MapCall::Brk, time + 1, [new, 0, 0, 0], 0, DIRECT),
        ]
    };
    let mut session = session(brk(1000, AT + 100, AT + 5 * PAGE));
    assert_eq!(pages(&session), (4.0, 1.0), "the first page was there before");
    feed(&mut session, brk(1100, AT + 5 * PAGE, AT + 2 * PAGE + 1));
    assert_eq!(pages(&session), (2.0, 1.0));
    feed(&mut session, [map_event(MapCall::Brk, 1200, [AT + 50 * PAGE, 0, 0, 0], 0, DIRECT)]);
    assert_eq!(pages(&session), (2.0, 1.0), "from where it grew is not known");
}

#[test]
fn what_cannot_be_accessed_is_reserved() {
    let mut session = session([map_event(MapCall::Mmap, 1000, [AT, 9 * PAGE, 0, 0], 0, DIRECT)]);
    assert_eq!(pages(&session), (0.0, 0.0));
    feed(&mut session, [range(EventKind::Protect, 1100, [AT + PAGE, 2 * PAGE, 1])]);
    assert_eq!(pages(&session), (2.0, 1.0));
    feed(&mut session, [range(EventKind::Protect, 1200, [AT, PAGE * 2, 0])]);
    assert_eq!(pages(&session), (1.0, 1.0));
    let allocated = session.snapshot(0).totals().allocated;
    assert_eq!((allocated.bytes, allocated.objects), (2.0 * PAGE as f64, 1.0));
}

#[test]
fn large_pages_are_mapped_whole() {
    const MAP_HUGETLB: u64 = 0x40000;
    let huge = |time, size_logarithm: u64| {
        let flags = (MAP_HUGETLB | size_logarithm << 26) << 32;
        map_event(MapCall::Mmap, time, [AT, 1, 0, 0], USABLE | flags, DIRECT)
    };
    assert_eq!(pages(&session([huge(1000, 0)])), (512.0, 1.0));
    assert_eq!(pages(&session([huge(1000, 30)])), (262_144.0, 1.0));
}

/// Also when the allocator becomes known only later.
#[test]
fn what_an_allocator_maps_for_its_blocks_is_left_out() {
    let allocator = |part| Input::Allocator {
        file: FileId { major: 8, minor: 1, inode: 77 },
        path: "/tmp/leak".into(),
        part,
    };
    let mut session =
        session([alloc(12, 900, BLOCK), mmap(1000, AT, 10, INSIDE), mmap(1001, AT + 10 * PAGE, 1, DIRECT)]);
    assert_eq!(session.snapshot(0).coverage.samples, 3);
    feed(&mut session, [allocator(AllocatorPart::Functions(vec![(0x280, 0x100)]))]);
    let profile = session.snapshot(0);
    assert_eq!(in_use(&profile), (100.0 + PAGE as f64, 2.0));
    assert_eq!((profile.coverage.samples, profile.coverage.truncated, profile.sites.len()), (2, 2, 2));
    // A direct map takes a part of it over.
    feed(&mut session, [mmap(1100, AT + PAGE, 2, DIRECT)]);
    assert_eq!(in_use(&session.snapshot(0)), (100.0 + 3.0 * PAGE as f64, 3.0));
    feed(&mut session, [allocator(AllocatorPart::Whole)]);
    assert_eq!(in_use(&session.snapshot(0)), (100.0, 1.0), "blocks stay, whoever calls malloc");
}

#[test]
fn exec_drops_memory_maps_and_exit_keeps_them() {
    let mut session = session([mmap(1000, AT, 10, DIRECT)]);
    feed(&mut session, [exec(12, 1100)]);
    assert_eq!(pages(&session), (0.0, 0.0));
    feed(&mut session, [process(12, 1, "next"), mappings(12), mmap(1200, AT, 3, DIRECT)]);
    feed(&mut session, [Input::Exit { tgid: 12, time: 1300 }, mmap(1400, AT, 3, DIRECT)]);
    assert_eq!(pages(&session), (3.0, 1.0));
    assert_eq!(session.snapshot(0).losses.foreign_events, 1);
}
