use super::*;

const K: u64 = 0x1000;

fn call(number: u64) -> Call {
    Call { site: SiteId(number as u32), number, made_at: number }
}

fn pages_of(space: &AddressSpace, number: u64) -> u64 {
    space.usable().filter(|(call, _)| call.number == number).map(|(_, length)| length / PAGE).sum()
}

fn ranges_of(space: &AddressSpace, number: u64) -> Vec<(u64, u64, bool)> {
    space.ranges().filter(|(_, r)| r.call.number == number).map(|(s, r)| (s, r.end, r.usable)).collect()
}

#[test]
fn the_worked_example() {
    let mut space = AddressSpace::default();
    space.map(0x10000, 0x1a000, call(1), true);
    assert_eq!(pages_of(&space, 1), 10);
    space.cut(0x13000, 0x17000);
    assert_eq!(pages_of(&space, 1), 6);
    assert_eq!(ranges_of(&space, 1), [(0x10000, 0x13000, true), (0x17000, 0x1a000, true)]);
    space.map(0x12000, 0x14000, call(2), true);
    assert_eq!((pages_of(&space, 1), pages_of(&space, 2)), (5, 2));
    space.protect(0x18000, 0x1a000, false);
    assert_eq!(pages_of(&space, 1), 3);
    assert_eq!(ranges_of(&space, 1)[1..], [(0x17000, 0x18000, true), (0x18000, 0x1a000, false)]);

    space.take(7, 0x12000, 0x14000, true);
    assert_eq!(pages_of(&space, 2), 2, "on the move, but in use");
    let taken = space.settle(7).expect("taken");
    space.put_back(
        taken.ranges.into_iter().map(|(s, r)| (s + 0x2e000, Range { end: r.end + 0x2e000, ..r })).collect(),
    );
    space.map(0x42000, 0x43000, call(3), true);
    assert_eq!(ranges_of(&space, 2), [(0x40000, 0x42000, true)]);
    assert_eq!(ranges_of(&space, 3), [(0x42000, 0x43000, true)]);
    assert!(space.at(0x12000).is_none());
}

#[test]
fn ranges_that_become_alike_again_are_one() {
    let mut space = AddressSpace::default();
    space.map(0, 10 * K, call(1), false);
    assert_eq!(space.protect(2 * K, 4 * K, true), [(call(1), 2 * K)]);
    assert_eq!(space.len(), 3);
    assert_eq!(space.protect(0, 10 * K, true), [(call(1), 2 * K), (call(1), 6 * K)]);
    assert_eq!(ranges_of(&space, 1), [(0, 10 * K, true)]);
    assert_eq!(space.protect(3 * K, 5 * K, true), [], "usable already");
    assert_eq!(space.len(), 1);
    space.map(10 * K, 12 * K, call(2), true);
    assert_eq!(space.len(), 2, "every byte keeps its own call");
}

#[test]
fn a_failed_call_changes_nothing_but_what_others_did_meanwhile() {
    let mut space = AddressSpace::default();
    space.map(0, 10 * K, call(1), true);
    space.take(1, 2 * K, 8 * K, false);
    assert_eq!(pages_of(&space, 1), 4, "already given back");
    space.map(4 * K, 5 * K, call(2), true);
    let taken = space.settle(1).expect("taken");
    assert_eq!(space.settle(1), None);
    space.put_back(taken.ranges);
    assert_eq!(ranges_of(&space, 1), [(0, 4 * K, true), (5 * K, 10 * K, true)]);
    assert_eq!(ranges_of(&space, 2), [(4 * K, 5 * K, true)]);
}

#[test]
fn calls_in_use_are_counted_once_however_many_ranges_they_have() {
    let mut mapped = Mapped::default();
    let process = ProcessIndex(0);
    let first = mapped.call(SiteId(4), 10).expect("room");
    let second = mapped.call(SiteId(4), 20).expect("room");
    mapped.space(process).map(0, 10 * K, first, true);
    mapped.space(process).map(20 * K, 30 * K, second, false);
    mapped.space(process).cut(3 * K, 7 * K);
    mapped.space(ProcessIndex(1)).map(0, K, second, true);
    let in_use: Vec<_> = mapped.in_use().collect();
    assert_eq!(in_use, [(process, first, 6 * K), (ProcessIndex(1), second, K)], "reserved is not in use");
    mapped.clear(process);
    assert_eq!(mapped.in_use().count(), 1);
}

/// Number of the page's call, and whether it is usable.
type ModelPage = (u64, bool);

/// Random operations against an array of pages.
#[test]
fn agrees_with_a_naive_model() {
    const PAGES: usize = 96;
    let mut state = 11u64;
    let mut random = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut space = AddressSpace::default();
    let mut model: [Option<ModelPage>; PAGES] = [None; PAGES];
    let mut taken = BTreeMap::<u32, Vec<(usize, ModelPage)>>::new();
    for step in 1..40_000 {
        let first = random(PAGES as u64) as usize;
        let last = (first + random(12) as usize).min(PAGES);
        let (start, end) = (first as u64 * K, last as u64 * K);
        let usable = random(3) != 0;
        match random(8) {
            0..3 => {
                if first < last {
                    space.map(start, end, call(step), usable);
                    model[first..last].fill(Some((step, usable)));
                }
            }
            3 => {
                space.cut(start, end);
                model[first..last].fill(None);
            }
            4 => {
                let became: u64 =
                    space.protect(start, end, usable).iter().map(|(_, length)| length / K).sum();
                let pages = model[first..last].iter_mut().flatten();
                let mut expected = 0;
                for page in pages {
                    expected += u64::from(usable && !page.1);
                    page.1 = usable;
                }
                assert_eq!(became, expected);
            }
            5 => {
                let thread = random(3) as u32;
                space.take(thread, start, end, random(2) == 0);
                let pages = (first..last).filter_map(|i| Some((i, model[i].take()?))).collect();
                taken.insert(thread, pages);
            }
            _ => {
                let thread = random(3) as u32;
                let by = random(20) as usize;
                let (ours, theirs) = (space.settle(thread), taken.remove(&thread));
                assert_eq!(ours.is_some(), theirs.is_some());
                let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
                // Nothing may leave the model's pages.
                let by = if theirs.iter().any(|(i, _)| i + by >= PAGES) { 0 } else { by };
                let shift = by as u64 * K;
                let moved =
                    ours.ranges.into_iter().map(|(s, r)| (s + shift, Range { end: r.end + shift, ..r }));
                space.put_back(moved.collect());
                for (i, page) in theirs {
                    model[i + by].get_or_insert(page);
                }
            }
        }
        let mut previous = None;
        for (start, range) in space.ranges() {
            assert!(start < range.end);
            if let Some((end, call, usable)) = previous {
                assert!(end < start || (end == start && (call, usable) != (range.call, range.usable)));
            }
            previous = Some((range.end, range.call, range.usable));
        }
        for (i, page) in model.iter().enumerate() {
            let found = space.at(i as u64 * K).map(|range| (range.call.number, range.usable));
            assert_eq!(found, *page, "page {i} after step {step}");
        }
    }
}
