use memprof_common::counter::Counter;
use memprof_common::sampling::{
    CERTAIN, is_sampled, pressure_level, pressure_marks, probability, slope, under_pressure,
};

use super::mix;
use crate::estimate::Estimate;
use crate::input::Input;
use crate::run_event::RunEventKind;
use crate::session::Session;
use crate::session::tests::{Alloc, BLOCK, alloc, feed, free, session};
use crate::stack::{Frame, Truncation};

fn thin(interval: u64, seed: u64) -> Input<'static> {
    Input::Thin { time: 9000, interval, seed }
}

/// Blocks of mixed sizes at two sites, recorded at interval 256.
fn mixed_blocks() -> Vec<Input<'static>> {
    (0..400u64)
        .map(|i| {
            let size = 16 + (i * 7919) % 3000;
            let ip = 0x40_0100 + i % 2 * 0x100;
            let probability = probability(size, 256, slope(256));
            alloc(12, 1000 + i, Alloc { address: 0x1000 + i * 16, size, probability, ip, ..BLOCK })
        })
        .collect()
}

fn estimate(session: &Session) -> Estimate {
    session.snapshot(0).totals().in_use
}

fn names(session: &Session) -> Vec<(u64, u64)> {
    session.live.iter().map(|(key, block)| (key.address, block.probability)).collect()
}

#[test]
fn thinned_estimates_are_unbiased_with_the_stated_error() {
    let before = estimate(&session(mixed_blocks()));
    let (runs, mut sum, mut objects, mut held) = (1000, 0.0, 0.0, 0);
    for seed in 0..runs {
        let inputs = mixed_blocks();
        let mut session = session(inputs);
        // In steps, as in a run: the last one decides.
        feed(&mut session, [thin(512, seed), thin(4096, seed + 5000), thin(16384, seed + 77_777)]);
        let after = estimate(&session);
        sum += after.bytes;
        objects += after.objects;
        // The error that thinning adds, beside what the blocks had before.
        let added = (after.bytes_variance - before.bytes_variance).max(0.0).sqrt();
        held += u64::from((after.bytes - before.bytes).abs() <= 2.0 * added);
        assert_eq!(session.snapshot(0).totals().allocated, before, "what was allocated is past");
    }
    let runs = runs as f64;
    assert!((sum / runs / before.bytes - 1.0).abs() < 0.02, "mean {} of {}", sum / runs, before.bytes);
    assert!((objects / runs / before.objects - 1.0).abs() < 0.05, "{} of {}", objects / runs, before.objects);
    assert!(held as f64 > 0.88 * runs, "only {held} of {runs} intervals hold the truth");
}

/// The whole scheme as it runs: the probes sample less as the table fills, user space thins it late. Half of
/// the blocks are freed on the way.
#[test]
fn pressure_and_thinning_together_are_unbiased() {
    const CAPACITY: u64 = 512;
    let (from, step) = pressure_marks(CAPACITY);
    let (runs, mut sum, mut truth, mut fullest) = (150, 0.0, 0, 0);
    for seed in 1..=runs {
        let mut random = seed * 0x9e37_79b9;
        let mut session = session([]);
        let (mut interval, mut late) = (1, 0);
        truth = 0;
        for i in 0..4000u64 {
            random = mix(random);
            let size = 16 + (i * 7919) % 500;
            let live = session.live_len() as u64;
            fullest = fullest.max(live);
            let plain = probability(size, interval, slope(interval));
            let drawn = under_pressure(plain, size, pressure_level(live, from, step));
            let freed = i % 2 == 0;
            truth += if freed { 0 } else { size };
            if is_sampled(drawn, random as u32) {
                let block = Alloc { address: i * 16, size, probability: drawn, ..BLOCK };
                feed(&mut session, [alloc(12, i, block)]);
                if freed {
                    feed(&mut session, [free(12, i, i * 16, i)]);
                }
            }
            late += u64::from(live >= from);
            if late == 300 {
                interval = session.interval_to_keep(CAPACITY as usize / 2, interval).expect("a larger one");
                feed(&mut session, [thin(interval, random)]);
                late = 0;
            }
        }
        sum += estimate(&session).bytes / runs as f64;
    }
    assert!((from..CAPACITY).contains(&fullest), "{fullest} blocks at most");
    // One run has a standard deviation of about 10 %.
    assert!((sum / truth as f64 - 1.0).abs() < 0.03, "mean {sum} of {truth}");
}

#[test]
fn each_block_stays_with_the_probability_of_the_new_interval() {
    // 1 KiB at interval 8 KiB: one in eight of those that were certain, one in two of those at 1/4.
    let block = |i: u64, probability| Alloc { address: i * 16, size: 1024, probability, ..BLOCK };
    let (n, mut certain, mut quarter) = (2000, 0, 0);
    for seed in 0..10 {
        let mut session =
            session((0..n).map(|i| alloc(12, i, block(i, if i % 2 == 0 { CERTAIN } else { CERTAIN / 4 }))));
        feed(&mut session, [thin(8192, seed)]);
        assert!(names(&session).iter().all(|&(_, probability)| probability == CERTAIN / 8));
        certain += names(&session).iter().filter(|(address, _)| address % 32 == 0).count();
        quarter += names(&session).iter().filter(|(address, _)| address % 32 != 0).count();
    }
    // Expected 1250 ± 33 and 5000 ± 50.
    assert!((1118..1382).contains(&certain), "{certain} certain blocks stay");
    assert!((4800..5200).contains(&quarter), "{quarter} blocks of one in four stay");
}

#[test]
fn blocks_that_are_rare_enough_or_large_are_not_touched() {
    let rare = Alloc { address: 0x2000, size: 100, probability: CERTAIN / 1000, ..BLOCK };
    let large = Alloc { address: 0x3000, size: 1 << 20, ..BLOCK };
    let mut session = session([alloc(12, 1, rare), alloc(12, 2, large)]);
    let before = names(&session);
    feed(&mut session, [thin(4096, 1), thin(0, 1)]);
    assert_eq!(names(&session), before);
    assert!(session.take_thinned().is_empty());
}

#[test]
fn the_draw_depends_on_the_seed_alone() {
    let thinned = |seed| {
        let mut session = session(mixed_blocks());
        feed(&mut session, [thin(8192, seed)]);
        (names(&session), session.take_thinned())
    };
    assert_eq!(thinned(1), thinned(1));
    assert_ne!(thinned(1), thinned(2));
    let (stayed, went) = thinned(1);
    assert_eq!(stayed.len() + went.len(), 400);
    assert!(went.iter().all(|&(tgid, ..)| tgid == 12));
}

#[test]
fn the_interval_is_doubled_until_enough_blocks_go() {
    let mut session = session((0..1000).map(|i| alloc(12, i, Alloc { address: i * 16, size: 100, ..BLOCK })));
    assert_eq!(session.live_len(), 1000);
    assert_eq!(session.interval_to_keep(500, 1), Some(256), "doubling from 1 spares blocks of 100 bytes");
    assert_eq!(session.interval_to_keep(1000, 1), Some(2), "it is doubled once at least");
    assert_eq!(session.interval_to_keep(0, 1), Some(1 << 30), "and not beyond the largest");
    assert_eq!((session.interval_to_keep(0, 1 << 30), session.interval_to_keep(0, 0)), (None, None));
    feed(&mut session, [thin(256, 3)]);
    let kept = session.live_len() as u64;
    assert!((320..460).contains(&kept), "{kept} of 1000 stay, 391 are expected");
    let events = session.snapshot(0).events;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, RunEventKind::IntervalRaised { interval: 256, before: 1000, after: kept });
}

#[test]
fn the_free_of_a_thinned_block_is_no_loss_until_all_has_settled() {
    let mut session = session(mixed_blocks());
    feed(&mut session, [thin(1 << 20, 1)]);
    let went = session.take_thinned();
    assert!(session.take_thinned().is_empty(), "they are told once");
    let (_, address, allocated_at) = went[0];
    feed(&mut session, [free(12, 9500, address, allocated_at)]);
    assert_eq!(session.quality.losses.unknown_frees, 0);
    feed(&mut session, [free(12, 9501, address, allocated_at)]);
    assert_eq!(session.quality.losses.unknown_frees, 1, "a second free of the same block");
    feed(&mut session, [Input::Settled { lost: vec![] }, free(12, 9600, went[1].1, went[1].2)]);
    assert_eq!(session.quality.losses.unknown_frees, 2);
}

#[test]
fn a_block_whose_kernel_entry_was_taken_out_by_mistake_is_dropped_and_counted() {
    let mut session = session([alloc(12, 1000, BLOCK)]);
    let lost = vec![(12, BLOCK.address, 1000), (12, 0x9999, 1), (99, BLOCK.address, 1000)];
    feed(&mut session, [Input::Settled { lost }]);
    assert_eq!(session.live_len(), 0);
    assert_eq!(session.quality.losses.thinned_by_mistake, 1);
}

#[test]
fn a_repair_in_the_middle_takes_frees_under_way_for_what_they_are() {
    let counters = |frees: u64| {
        let mut counters = vec![0; Counter::COUNT];
        counters[Counter::RingFullFrees as usize] = frees;
        Input::Counters(counters)
    };
    let mut session = session([
        alloc(12, 1000, BLOCK),
        alloc(12, 1100, Alloc { address: 0x2000, ..BLOCK }),
        counters(3),
        Input::LiveBlocks(vec![]),
        free(12, 1200, 0x2000, 1100),
        Input::Settled { lost: vec![] },
    ]);
    let losses = session.quality.losses;
    assert_eq!((losses.repaired_frees, losses.unknown_frees), (1, 0));
    feed(&mut session, [counters(3), Input::LiveBlocks(vec![]), counters(5), Input::LiveBlocks(vec![])]);
    let events = session.snapshot(0).events;
    assert_eq!(events.len(), 1, "losses that follow each other are one event");
    let kind = RunEventKind::FreesLost { until: 1200, frees: 5, repaired: 2 };
    assert_eq!((events[0].time, &events[0].kind), (1100, &kind));
}

#[test]
fn without_room_for_stacks_their_bytes_are_kept() {
    let at = |i: u64| Alloc { address: i * 16, ip: 0x40_0100 + i * 16, ..BLOCK };
    let mut session = session([Input::Limits { stack_bytes: 1000 }]);
    feed(&mut session, (0..50).map(|i| alloc(12, i, at(i))));
    feed(&mut session, [alloc(12, 60, Alloc { address: 0x9000, ..at(0) })]);
    let profile = session.snapshot(0);
    assert_eq!(profile.totals().in_use.bytes, 5100.0);
    let lost: Vec<_> =
        profile.sites.iter().filter(|s| *s.stack == [Frame::Truncated(Truncation::StackLost)]).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(profile.losses.stacks_lost, lost[0].allocated.samples);
    assert!((2..10).contains(&profile.sites.len()), "{} sites in 1000 bytes", profile.sites.len());
    assert_eq!(profile.sites.iter().map(|s| s.allocated.samples).sum::<u64>(), 51);
}
