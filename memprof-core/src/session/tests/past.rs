//! Ages, trends, and growth between two moments.

use super::*;
use crate::profile::Site;
use crate::trend::Trend;

const SECOND: u64 = 1_000_000_000;
const POOL: u64 = 0x40_0100;
const LEAK: u64 = 0x40_0200;

/// A minute in which one site fills a pool of 100 blocks in the first ten seconds and from then on replaces
/// them one by one, while another keeps one block each second.
fn minute() -> Vec<Input<'static>> {
    let mut inputs = Vec::new();
    let mut pool = Vec::new();
    for tenth in 0..600_u64 {
        let time = 1000 + tenth * SECOND / 10;
        if tenth >= 100 {
            let (address, allocated_at) = pool.remove(0);
            inputs.push(free(12, time, address, allocated_at));
        }
        let address = 0x10_0000 + tenth * 16;
        inputs.push(alloc(12, time, Alloc { address, size: 1000, ip: POOL, ..BLOCK }));
        pool.push((address, time));
        if tenth % 10 == 0 {
            let address = 0x20_0000 + tenth * 16;
            inputs.push(alloc(12, time + 1, Alloc { address, size: 500, ip: LEAK, ..BLOCK }));
        }
    }
    inputs.push(Input::End { time: 60 * SECOND });
    inputs
}

fn site_at(profile: &Profile, ip: u64) -> &Site {
    let svma = ip - 0x40_0000;
    let is_there = |frame: &Frame| matches!(frame, Frame::Code { svma: at, .. } if *at == svma);
    profile.sites.iter().find(|site| site.stack.iter().any(is_there)).expect("a site there")
}

#[test]
fn a_pool_is_steady_and_a_leak_grows() {
    let profile = session(minute()).snapshot(0);
    assert_eq!(site_at(&profile, POOL).trend, Some(Trend::Steady));
    let Some(Trend::Growing(rate)) = site_at(&profile, LEAK).trend else { panic!("no growth") };
    assert!((450.0..550.0).contains(&rate), "{rate}");
    assert!(matches!(profile.trend, Some(Trend::Growing(_))), "the total grows with the leak");
}

#[test]
fn nothing_moves_in_a_process_that_has_ended() {
    let mut inputs = minute();
    inputs.insert(inputs.len() - 1, Input::Exit { tgid: 12, time: 60 * SECOND });
    assert!(session(inputs).snapshot(0).sites.iter().all(|site| site.trend.is_none()));
}

#[test]
fn ages_fall_into_bands() {
    let profile = session(minute()).snapshot(0);
    let bands = |ip| site_at(&profile, ip).ages.expect("ages").bands.map(|band| band.bytes);
    assert_eq!(bands(LEAK), [5000.0, 25_000.0, 0.0, 0.0]);
    let total: f64 = bands(POOL).iter().sum();
    assert_eq!((total, bands(POOL)[3]), (100_000.0, 0.0));
}

fn part(from: Option<u64>, until: Option<u64>) -> Profile {
    let mut session = Session::of_part(from, until);
    feed(&mut session, beginning());
    feed(&mut session, minute());
    session.snapshot(0)
}

#[test]
fn what_happens_behind_the_window_does_not_show() {
    let mut session = Session::of_part(None, Some(20 * SECOND));
    feed(&mut session, beginning());
    let mut inputs = minute();
    // The free of the first block of the leak is lost; the tables are compared before and after the end.
    let early = inputs.iter().position(|input| time_of(input) > 10 * SECOND).expect("an input after 10 s");
    let before = super::session(inputs.drain(..early).collect::<Vec<_>>());
    let mut held: Vec<_> = before.live.iter().map(|(key, _)| (12, key.address, key.allocated_at)).collect();
    held.retain(|&(_, address, _)| address != 0x20_0000);
    let mut inputs = minute();
    inputs.insert(early, Input::LiveBlocks(held));
    inputs.insert(inputs.len() - 1, Input::LiveBlocks(Vec::new()));
    let kind = crate::run_event::RunEventKind::ProbesTakenOut { overhead: 200, limit: 100 };
    let event = crate::run_event::RunEvent { time: 59 * SECOND, kind };
    inputs.insert(inputs.len() - 1, Input::RunEvent(event));
    feed(&mut session, inputs);
    let profile = session.snapshot(0);
    assert_eq!(profile.taken_at, 20 * SECOND + 500);
    assert_eq!(profile.losses.repaired_frees, 1, "repaired in the window, and not behind it");
    assert!(profile.events.is_empty());
    assert!(profile.totals().in_use.objects > 100.0);
}

fn time_of(input: &Input<'_>) -> u64 {
    match input {
        Input::Event(bytes) => decode(bytes).expect("an event").header().time,
        _ => u64::MAX,
    }
}

#[test]
fn growth_is_the_difference_between_two_moments() {
    let profile = part(Some(20 * SECOND), Some(40 * SECOND));
    assert_eq!(profile.taken_at, 40 * SECOND + 500);
    assert_eq!(site_at(&profile, LEAK).growth, Some(10_000.0));
    assert_eq!(site_at(&profile, POOL).growth, Some(0.0));
    assert_eq!(site_at(&profile, LEAK).in_use.bytes, 20_000.0);

    let whole = part(Some(0), None);
    assert_eq!(site_at(&whole, LEAK).growth, Some(30_000.0));
    let beyond = part(Some(61 * SECOND), None);
    assert!(beyond.sites.iter().all(|site| site.growth.is_none()));
    assert!(part(None, None).sites.iter().all(|site| site.growth.is_none()));
}
