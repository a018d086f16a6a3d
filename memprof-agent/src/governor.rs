//! The governor: reckons what the probes cost their targets, and says when it is too much.
//!
//! ```text
//! cost = Σ calls by kind × cost of its entry  +  returns × cost of a return
//!      + samples × cost of a sample  +  bytes of stacks × cost of copying
//! overhead = cost in the last second / one second of one core
//! ```
//! The first costs are measured on this machine when the run begins; the last two are typical ones.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use memprof_common::counter::Counter;
use memprof_common::function::FunctionKind;
use memprof_core::encode::units;
use memprof_core::figures::{HitCosts, OverheadFigures};

use crate::bpf::counters::{Counts, KernelCounters};
use crate::cli::OverheadLimit;

/// How often to look.
pub(crate) const LOOK: Duration = Duration::from_millis(200);
/// The time over which the overhead is averaged.
const WINDOW: Duration = Duration::from_secs(1);
/// Nanoseconds to copy 1 KiB of stack and hand it on.
const COPY_PER_KIB: u64 = 90;
/// Millionths in a thousandth.
pub(crate) const PER_PERMILLE: u64 = 1000;

/// What each hit costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prices {
    /// Nanoseconds, as measured.
    pub(crate) costs: HitCosts,
    /// Nanoseconds of an entry by kind of function.
    pub(crate) entries: [u64; FunctionKind::ALL.len()],
}

impl Prices {
    /// The prices where the entries of `stepped` kinds are single-stepped.
    pub(crate) fn new(costs: HitCosts, stepped: impl Fn(FunctionKind) -> bool) -> Self {
        let price = |kind| if stepped(kind) { costs.stepped_entry } else { costs.entry };
        Self { costs, entries: FunctionKind::ALL.map(price) }
    }

    /// Nanoseconds that everything counted so far has cost, with so many bytes of events.
    fn cost(&self, counts: &Counts, event_bytes: u64) -> u64 {
        let entries: u64 = counts.calls.iter().zip(&self.entries).map(|(calls, price)| calls * price).sum();
        entries
            + counts.counters[Counter::Returns as usize] * self.costs.returned
            + counts.counters[Counter::Sampled as usize] * self.costs.sample
            + event_bytes * COPY_PER_KIB / 1024
    }

    /// Millionths of a core that so many blocks a second will cost, each allocated and freed; with
    /// `all_sampled` every one is recorded.
    pub(crate) fn expected(&self, blocks_per_second: f64, all_sampled: bool, sees_returns: bool) -> u64 {
        let mut price =
            self.entries[FunctionKind::Malloc as usize] + self.entries[FunctionKind::Free as usize];
        if all_sampled || sees_returns {
            price += self.costs.returned;
        }
        if all_sampled {
            price += self.costs.sample;
        }
        // Nanoseconds in a second to millionths.
        (blocks_per_second * price as f64 / 1000.0) as u64
    }
}

/// Refuses what is expected to cost more than the limit.
pub(crate) fn check_expectation(blocks_per_second: f64, expected: u64, limit: OverheadLimit) -> Result<()> {
    if let OverheadLimit::Permille(limit) = limit
        && expected > limit * PER_PERMILLE
    {
        bail!(
            "about {} allocations a second: the probes would cost about {} % of a core, more \
             than --max-overhead {} % (a larger --max-overhead or none records all the same)",
            units::count(blocks_per_second),
            percent(expected),
            percent(limit * PER_PERMILLE)
        );
    }
    Ok(())
}

/// Millionths of a core in words: percent with one decimal.
pub(crate) fn percent(millionths: u64) -> String {
    format!("{:.1}", millionths as f64 / 10_000.0)
}

/// Prices that change: what was counted before a change keeps its old price.
struct Tariff {
    prices: Prices,
    /// What that takes to be added, modulo 2^64, since prices may fall.
    carried: u64,
}

impl Tariff {
    fn cost(&self, counts: &Counts, event_bytes: u64) -> u64 {
        self.prices.cost(counts, event_bytes).wrapping_add(self.carried)
    }

    fn change(&mut self, prices: Prices, counts: &Counts) {
        let before = self.cost(counts, 0);
        *self = Self { prices, carried: before.wrapping_sub(prices.cost(counts, 0)) };
    }
}

/// Watches the overhead.
pub(crate) struct Governor {
    counters: KernelCounters,
    tariff: Tariff,
    limit: OverheadLimit,
    meter: Meter,
}

/// What is too much: overhead and limit in thousandths of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMuch {
    /// Reckoned over the last second.
    pub(crate) overhead: u64,
    /// What was allowed.
    pub(crate) limit: u64,
}

impl Governor {
    /// Starts to watch.
    pub(crate) fn new(counters: KernelCounters, prices: Prices, limit: OverheadLimit) -> Result<Self> {
        let cost = prices.cost(&counters.read()?, 0);
        let tariff = Tariff { prices, carried: 0 };
        Ok(Self { counters, tariff, limit, meter: Meter::new(Instant::now(), cost) })
    }

    /// From now on the entries of `stepped` kinds are single-stepped. A kind has one price in all processes,
    /// the dearest: calls are not counted by process.
    pub(crate) fn price(&mut self, stepped: impl Fn(FunctionKind) -> bool) -> Result<()> {
        let prices = Prices::new(self.tariff.prices.costs, stepped);
        if prices != self.tariff.prices {
            self.tariff.change(prices, &self.counters.read()?);
        }
        Ok(())
    }

    /// Looks, given the bytes of events so far. Says when it is too much.
    pub(crate) fn look(&mut self, event_bytes: u64) -> Result<Option<TooMuch>> {
        let cost = self.tariff.cost(&self.counters.read()?, event_bytes);
        let overhead = self.meter.add(Instant::now(), cost) / PER_PERMILLE;
        Ok(match self.limit {
            OverheadLimit::Permille(limit) if overhead > limit => Some(TooMuch { overhead, limit }),
            _ => None,
        })
    }

    /// Millionths of a core in the last second.
    pub(crate) fn overhead(&self) -> u64 {
        self.meter.current
    }

    /// The figures of the run up to the last look.
    pub(crate) fn figures(&self) -> OverheadFigures {
        OverheadFigures {
            average: self.meter.average(),
            peak: self.meter.peak,
            limit: match self.limit {
                OverheadLimit::Permille(limit) => Some(limit * PER_PERMILLE),
                OverheadLimit::None => None,
            },
            costs: self.tariff.prices.costs,
        }
    }
}

/// Costs over time; shares in millionths.
struct Meter {
    first: (Instant, u64),
    /// The last look before the window, and those in it.
    looks: VecDeque<(Instant, u64)>,
    current: u64,
    peak: u64,
}

impl Meter {
    fn new(now: Instant, cost: u64) -> Self {
        Self { first: (now, cost), looks: VecDeque::from([(now, cost)]), current: 0, peak: 0 }
    }

    /// Adds a look; the share of the last second. Before the run is a second old, nothing is taken to have
    /// cost anything before it, so that a short burst at its start is not blown up.
    fn add(&mut self, now: Instant, cost: u64) -> u64 {
        self.looks.push_back((now, cost));
        while self.looks.len() > 2 && now - self.looks[1].0 >= WINDOW {
            self.looks.pop_front();
        }
        let (start, cost_at_start) = self.looks[0];
        self.current = share(cost - cost_at_start, (now - start).max(WINDOW));
        self.peak = self.peak.max(self.current);
        self.current
    }

    fn average(&self) -> u64 {
        let (now, cost) = *self.looks.back().unwrap_or(&self.first);
        share(cost - self.first.1, now - self.first.0)
    }
}

/// Nanoseconds of cost in a time, in millionths.
fn share(cost: u64, time: Duration) -> u64 {
    let nanoseconds = time.as_nanos().max(1);
    u64::try_from(u128::from(cost) * 1_000_000 / nanoseconds).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: HitCosts =
        HitCosts { entry: 1000, stepped_entry: 10_000, returned: 500, sample: 2000, measured: true };

    #[test]
    fn hits_are_priced_by_kind() {
        let prices = Prices::new(COSTS, |kind| kind == FunctionKind::Free);
        let mut counts = Counts { counters: [0; Counter::COUNT], calls: [0; FunctionKind::ALL.len()] };
        counts.calls[FunctionKind::Malloc as usize] = 3;
        counts.calls[FunctionKind::Free as usize] = 2;
        counts.counters[Counter::Returns as usize] = 4;
        counts.counters[Counter::Sampled as usize] = 1;
        assert_eq!(prices.cost(&counts, 2048), 3000 + 20_000 + 2000 + 2000 + 180);
        // 1000 blocks at 11 µs each: 1.1 % of a core.
        assert_eq!(prices.expected(1000.0, false, false), 11_000);
        assert_eq!(prices.expected(1000.0, false, true), 11_500);
        assert_eq!(prices.expected(1000.0, true, false), 13_500);
    }

    #[test]
    fn a_change_of_prices_changes_no_cost_of_before() {
        let mut counts = Counts { counters: [0; Counter::COUNT], calls: [0; FunctionKind::ALL.len()] };
        let malloc = FunctionKind::Malloc as usize;
        counts.calls[malloc] = 100;
        let (cheap, dear) = (Prices::new(COSTS, |_| false), Prices::new(COSTS, |_| true));
        let mut tariff = Tariff { prices: cheap, carried: 0 };
        tariff.change(dear, &counts);
        assert_eq!(tariff.cost(&counts, 1024), 100_090);
        counts.calls[malloc] += 3;
        assert_eq!(tariff.cost(&counts, 1024), 130_090);
        tariff.change(cheap, &counts);
        counts.calls[malloc] += 3;
        assert_eq!(tariff.cost(&counts, 1024), 133_090);
    }

    #[test]
    fn the_window_is_one_second() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut meter = Meter::new(start, 5_000_000);
        // 20 ms of cost in the first 200 ms: 2 % of the first second.
        assert_eq!(meter.add(at(200), 25_000_000), 20_000);
        for look in 2..=5 {
            assert_eq!(meter.add(at(200 * look), 25_000_000), 20_000);
        }
        assert_eq!(meter.add(at(1200), 25_000_000), 0, "the burst is over a second old");
        assert_eq!((meter.peak, meter.average()), (20_000, 16_666));
        assert_eq!(meter.add(at(1400), 225_000_000), 200_000, "a whole core for 200 ms");
    }

    #[test]
    fn an_expectation_above_the_limit_names_rate_cost_and_cures() {
        let limit = OverheadLimit::Permille(100);
        assert!(check_expectation(1000.0, 100_000, limit).is_ok());
        assert!(check_expectation(1e6, 2_000_000, OverheadLimit::None).is_ok());
        let error = check_expectation(1e6, 2_000_000, limit).unwrap_err().to_string();
        assert!(
            error.starts_with("about 1,000,000 allocations a second: the probes would cost about 200.0 %")
        );
        assert!(error.contains("--max-overhead 10.0 %") && error.contains("none"), "{error}");
    }
}
