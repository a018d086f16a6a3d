//! How long events take from the probe to the live table.

use memprof_core::figures::LagFigures;

/// Steps per power of two: a percentile is at most an eighth too large.
const STEPS: u64 = 8;

/// Counts of lags, by logarithmic steps.
pub(crate) struct Lags {
    counts: Vec<u64>,
    all: u64,
}

impl Default for Lags {
    fn default() -> Self {
        Self { counts: vec![0; 64 * STEPS as usize], all: 0 }
    }
}

impl Lags {
    /// Counts one lag in nanoseconds.
    pub(crate) fn add(&mut self, nanoseconds: u64) {
        self.counts[step(nanoseconds)] += 1;
        self.all += 1;
    }

    /// Median and 99th percentile, when there were events.
    pub(crate) fn figures(&self) -> Option<LagFigures> {
        (self.all != 0)
            .then(|| LagFigures { median: self.percentile(50), percentile_99: self.percentile(99) })
    }

    /// The least upper end of a step below which this many of 100 lags are.
    fn percentile(&self, percent: u64) -> u64 {
        let mut sum = 0;
        for (step, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum * 100 >= self.all * percent {
                return upper_end(step);
            }
        }
        u64::MAX
    }
}

fn step(value: u64) -> usize {
    let value = value.max(STEPS);
    let power = value.ilog2();
    let within = (value >> (power - 3)) & (STEPS - 1);
    (u64::from(power) * STEPS + within) as usize
}

fn upper_end(step: usize) -> u64 {
    let (power, within) = (step as u64 / STEPS, step as u64 % STEPS);
    (STEPS + within + 1) << power.saturating_sub(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_an_eighth_too_large_at_most() {
        let mut lags = Lags::default();
        assert_eq!(lags.figures(), None);
        (1..=1000).for_each(|i| lags.add(i * 1000));
        let LagFigures { median, percentile_99 } = lags.figures().expect("lags");
        assert!((500_000..=563_000).contains(&median), "{median}");
        assert!((990_000..=1_120_000).contains(&percentile_99), "{percentile_99}");
    }

    #[test]
    fn every_value_lies_in_its_step() {
        for value in (3..63).flat_map(|power| [1_u64 << power, (1 << power) + 1, (2 << power) - 1]) {
            assert!(value < upper_end(step(value)), "{value}");
            assert!(upper_end(step(value)) - value <= value / 8 + 1, "{value}");
        }
        lags_of_extremes();
    }

    fn lags_of_extremes() {
        let mut lags = Lags::default();
        lags.add(0);
        assert_eq!(lags.figures().map(|figures| figures.median), Some(9));
        lags.add(u64::MAX >> 1);
        assert_eq!(lags.all, 2);
    }
}
