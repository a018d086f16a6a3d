//! Whether the memory of a site grows, from what was in use at points of the run.
//!
//! The first half of a run is left alone: caches and pools fill. The second half is halved again:
//!
//! ```text
//!   bytes │        ┌──────────── pool: the same early and late                → steady
//!         │      ┌─┘
//!         │    ┌─┘         ⟋ leak: every late point above every early one    → growing
//!         │  ┌─┘       ⟋
//!         │┌─┘      ⟋     ∧∨∧∨∧∨ sawtooth: early and late points overlap      → varying
//!         └────────────┬────────┬────────► time
//!                      │ early  │ late
//! ```
//! Worked example: a site with early points of 100, 104, 108 and late ones of 112, 116, 120 MiB at one
//! point a second grows, by (116 - 104) MiB in 3 s = 4 MiB/s.
//!
//! A sampled site moves by chance too. The blocks that are in use both early and late add nothing to that;
//! of all others each byte adds the mean weight of a sample, which the variance of the site tells.

/// How the bytes in use of a site move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trend {
    /// They grow throughout, by so many bytes a second.
    Growing(f64),
    /// They shrink throughout, by so many bytes a second.
    Shrinking(f64),
    /// They stay where they are, as those of a filled cache or pool.
    Steady,
    /// They go up and down, and no more.
    Varying,
}

/// Bytes in use at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Nanoseconds, on any clock.
    pub time: u64,
    /// Estimated bytes.
    pub bytes: f64,
}

/// What chance has in the points of a sampled site.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chance {
    /// Variance that each byte adds that is in use at one moment and not at another: the variance of the
    /// bytes in use over these bytes. 0 when every block is recorded.
    pub variance_per_byte: f64,
    /// Bytes that have been in use ever since the second half of the run began.
    pub kept: f64,
}

/// Fewest points in each quarter of the run by which it is judged.
const MIN_POINTS: usize = 3;
/// A change from the third to the last quarter by less than this part is none.
const CHANGE: f64 = 0.01;
/// What stays within a span of this part is steady.
const STEADY: f64 = 0.05;
/// Standard deviations that chance is given: it exceeds them in 5 of 100 cases.
const DEVIATIONS: f64 = 1.96;

impl Trend {
    /// Judges a run from `start` by its points, in order of time. `None` when they are too few.
    #[must_use]
    pub fn of(start: u64, points: &[Point], chance: Chance) -> Option<Self> {
        let end = points.last()?.time;
        let (early, late) = last_quarters(start, end, points);
        if early.len() < MIN_POINTS || late.len() < MIN_POINTS {
            return None;
        }
        let (from, to) = (mean(early), mean(late));
        let noise = noise(from.bytes, to.bytes, chance);
        let change = to.bytes - from.bytes;
        let rate = change / ((to.time - from.time) / 1e9);
        let spread = highest(early).max(highest(late)) - lowest(early).min(lowest(late));
        let matters = change.abs() > noise.max(CHANGE * from.bytes.min(to.bytes));
        Some(if matters && lowest(late) > highest(early) {
            Self::Growing(rate)
        } else if matters && highest(late) < lowest(early) {
            Self::Shrinking(-rate)
        } else if spread <= (STEADY * from.bytes.max(to.bytes)).max(noise) {
            Self::Steady
        } else {
            Self::Varying
        })
    }

    /// Its name for programs and people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Growing(_) => "growing",
            Self::Shrinking(_) => "shrinking",
            Self::Steady => "steady",
            Self::Varying => "varying",
        }
    }

    /// Change in bytes a second, where it has a direction.
    #[must_use]
    pub fn bytes_per_second(self) -> Option<f64> {
        match self {
            Self::Growing(rate) => Some(rate),
            Self::Shrinking(rate) => Some(-rate),
            Self::Steady | Self::Varying => None,
        }
    }
}

/// The moment at which the second half of a run begins.
#[must_use]
pub fn second_half(start: u64, end: u64) -> u64 {
    start + end.saturating_sub(start) / 2
}

/// The points of the third and of the fourth quarter of the run.
fn last_quarters(start: u64, end: u64, points: &[Point]) -> (&[Point], &[Point]) {
    let half = second_half(start, end);
    let early = points.partition_point(|point| point.time < half);
    let late = points.partition_point(|point| point.time < second_half(half, end));
    (&points[early..late], &points[late..])
}

struct Mean {
    time: f64,
    bytes: f64,
}

fn mean(points: &[Point]) -> Mean {
    let n = points.len() as f64;
    Mean {
        time: points.iter().map(|point| point.time as f64).sum::<f64>() / n,
        bytes: points.iter().map(|point| point.bytes).sum::<f64>() / n,
    }
}

fn highest(points: &[Point]) -> f64 {
    points.iter().map(|point| point.bytes).fold(f64::NEG_INFINITY, f64::max)
}

fn lowest(points: &[Point]) -> f64 {
    points.iter().map(|point| point.bytes).fold(f64::INFINITY, f64::min)
}

/// By how much two estimates differ by chance.
fn noise(from: f64, to: f64, chance: Chance) -> f64 {
    let exchanged = (from + to - 2.0 * chance.kept.min(from).min(to)).max(0.0);
    DEVIATIONS * (chance.variance_per_byte * exchanged).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: Chance = Chance { variance_per_byte: 0.0, kept: 0.0 };

    /// One point a second, from 1 s on.
    fn trend(bytes: impl IntoIterator<Item = f64>, chance: Chance) -> Option<Trend> {
        let second = 1_000_000_000;
        let points: Vec<Point> =
            (1..).zip(bytes).map(|(n, bytes)| Point { time: n * second, bytes }).collect();
        Trend::of(0, &points, chance)
    }

    #[test]
    fn a_leak_grows_at_its_rate() {
        let leak = (1..=12).map(|n| 4e6 * f64::from(n));
        let Some(Trend::Growing(rate)) = trend(leak, EXACT) else { panic!("no growth") };
        assert!((rate - 4e6).abs() < 1.0, "{rate}");
        let shrinking = (1..=12).map(|n| 1e8 - 4e6 * f64::from(n));
        let Some(Trend::Shrinking(rate)) = trend(shrinking, EXACT) else { panic!("no shrinking") };
        assert!((rate - 4e6).abs() < 1.0, "{rate}");
    }

    #[test]
    fn a_filled_pool_is_steady() {
        let pool = (1..=20).map(|n| f64::from(n.min(8)) * 1e6);
        assert_eq!(trend(pool, EXACT), Some(Trend::Steady));
        assert_eq!(trend(vec![0.0; 20], EXACT), Some(Trend::Steady));
    }

    #[test]
    fn a_sawtooth_varies() {
        let sawtooth = (0..20).map(|n| 1e6 + f64::from(n % 3) * 5e5);
        assert_eq!(trend(sawtooth, EXACT), Some(Trend::Varying));
    }

    #[test]
    fn a_growing_sawtooth_varies_until_it_outgrows_its_teeth() {
        let teeth = |slope: f64| (0..40).map(move |n| 1e6 + f64::from(n) * slope + f64::from(n % 3) * 1e5);
        assert_eq!(trend(teeth(3e3), EXACT), Some(Trend::Varying));
        assert!(matches!(trend(teeth(1e5), EXACT), Some(Trend::Growing(_))));
    }

    #[test]
    fn growth_within_chance_is_none() {
        let slow = || (0..20).map(|n| 1e7 + 8e4 * f64::from(n));
        assert!(matches!(trend(slow(), EXACT), Some(Trend::Growing(_))));
        // Sampled every 512 KiB, with blocks that come and go: 10 MB are known to about ±6 MB.
        let chance = Chance { variance_per_byte: 524_288.0, kept: 0.0 };
        assert_eq!(trend(slow(), chance), Some(Trend::Steady));
        // Where the blocks stay, only those that came since are uncertain.
        let fast = (0..20).map(|n| 1e7 + 1e6 * f64::from(n));
        let chance = Chance { variance_per_byte: 524_288.0, kept: 1.9e7 };
        assert!(matches!(trend(fast, chance), Some(Trend::Growing(_))));
    }

    #[test]
    fn short_runs_are_not_judged() {
        assert_eq!(trend((0..8).map(f64::from), EXACT), None);
        assert_eq!(trend([], EXACT), None);
    }
}
