//! What was in use at points of the run, by site: the few by which growth is told from a plateau.
//!
//! At most [`MAX_POINTS`] are kept. When they are full one of every two goes and the stretches double, so
//! that a run of any length has between half of them and all:
//!
//! ```text
//!   0.25 s each:  |1  | 2 |  3|4  | 5 |6  |  7| 8 |      (with room for 8)
//!   0.5 s each:   |    2  |  3    |    6  |7      |   .   |  .    |
//! ```
//! A point lies anywhere in its stretch of time. At equal distances a program with a period of its own would
//! be seen at always the same phase, and a drift of that phase taken for growth.

use std::sync::Arc;

use crate::trend::Point;

/// Length of the first stretches in nanoseconds.
const FIRST_STRETCH: u64 = 250_000_000;
/// Most points that are kept; even.
const MAX_POINTS: usize = 32;

/// In-use bytes at points of the run.
#[derive(Debug)]
pub(super) struct History {
    started_at: u64,
    stretch: u64,
    /// Number of the stretch that has no point yet.
    number: u64,
    /// When it gets one.
    next: u64,
    points: Vec<(u64, Arc<[f64]>)>,
}

impl Default for History {
    fn default() -> Self {
        // Nothing is due before the run has begun.
        Self { started_at: 0, stretch: FIRST_STRETCH, number: 0, next: u64::MAX, points: Vec::new() }
    }
}

impl History {
    /// The run begins at `time`.
    pub(super) fn start(&mut self, time: u64) {
        self.started_at = time;
        self.choose_next();
    }

    /// Whether what was in use before `time` should be added.
    pub(super) fn is_due(&self, time: u64) -> bool {
        time >= self.next
    }

    /// Adds the bytes in use by site up to `time`, at which the next input is to be taken in: they were the
    /// same at all points since the last input.
    pub(super) fn add(&mut self, time: u64, bytes_by_site: &Arc<[f64]>) {
        // Few rounds even for a gap of hours: each time that the points are full the stretch doubles.
        while self.is_due(time) {
            self.points.push((self.next, Arc::clone(bytes_by_site)));
            self.number += 1;
            if self.points.len() == MAX_POINTS {
                self.halve();
            }
            self.choose_next();
        }
    }

    fn halve(&mut self) {
        // Of every two the second and the first in turn, so that later and earlier places both stay.
        let mut index = 0;
        self.points.retain(|_| {
            index += 1;
            matches!(index % 4, 2 | 3)
        });
        self.stretch *= 2;
        self.number /= 2;
    }

    fn choose_next(&mut self) {
        // The golden ratio spreads the places evenly, and repeats none.
        let fraction = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (u128::from(fraction) * u128::from(self.stretch)) >> 64;
        let start = self.started_at.saturating_add(self.number.saturating_mul(self.stretch));
        self.next = start.saturating_add(u64::try_from(place).expect("less than a stretch"));
    }

    /// The points of one site in order of time; 0 where it did not exist yet.
    pub(super) fn of_site(&self, site: usize) -> Vec<Point> {
        let bytes = |all: &[f64]| all.get(site).copied().unwrap_or(0.0);
        self.points.iter().map(|(time, all)| Point { time: *time, bytes: bytes(all) }).collect()
    }

    /// The points of all sites together, in order of time.
    pub(super) fn of_all(&self) -> Vec<Point> {
        self.points.iter().map(|(time, all)| Point { time: *time, bytes: all.iter().sum() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every stretch of the run so far has one point.
    fn assert_evenly_spread(history: &History) {
        let points = history.of_site(0);
        assert!((MAX_POINTS / 2..MAX_POINTS).contains(&points.len()), "{}", points.len());
        let stretches: Vec<u64> =
            points.iter().map(|point| (point.time - history.started_at) / history.stretch).collect();
        assert_eq!(stretches, (0..history.number).collect::<Vec<u64>>());
    }

    #[test]
    fn points_stay_few_and_evenly_spread() {
        let mut history = History::default();
        assert!(!history.is_due(u64::MAX - 1), "the run has not begun");
        history.start(1000);
        let mut time = 1000;
        for n in 0..10_000_u32 {
            time += 10_000_000;
            if history.is_due(time) {
                history.add(time, &Arc::from([f64::from(n)]));
            }
        }
        assert_evenly_spread(&history);
        let points = history.of_site(0);
        assert!(points.windows(2).all(|pair| pair[0].bytes < pair[1].bytes));
        assert!(history.of_site(7).iter().all(|point| point.bytes == 0.0), "a site that came later");
    }

    #[test]
    fn a_quiet_time_is_filled() {
        let mut history = History::default();
        history.start(0);
        history.add(20 * FIRST_STRETCH, &Arc::from([1.0]));
        assert_evenly_spread(&history);
        history.add(3_600_000_000_000, &Arc::from([2.0]));
        assert_evenly_spread(&history);
        assert!(!history.is_due(3_600_000_000_000));
    }

    #[test]
    fn a_period_of_the_program_is_seen_in_all_its_phases() {
        let mut history = History::default();
        history.start(0);
        history.add(40 * FIRST_STRETCH, &Arc::from([0.0]));
        let mut phases: Vec<u64> = history
            .of_site(0)
            .iter()
            .map(|point| point.time % history.stretch * 4 / history.stretch)
            .collect();
        phases.sort_unstable();
        phases.dedup();
        assert_eq!(phases, [0, 1, 2, 3]);
    }
}
