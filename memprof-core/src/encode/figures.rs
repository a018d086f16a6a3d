//! What a run cost, for the report and in words.

use serde::Serialize;

use super::report::NamedCounts;
use super::units;
use crate::figures::{LagFigures, MemoryFigures, OverheadFigures, RunFigures};

/// Memory of a run in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryReport {
    /// What tables and ring may take in all, in the kernel and in the agent.
    pub budget: u64,
    /// What the probes' maps take of the kernel's memory, in all.
    pub kernel_bytes: u64,
    /// What each of them takes, largest first.
    pub kernel_maps: Vec<(String, u64)>,
    /// Blocks that the live tables can hold.
    pub live_capacity: u64,
    /// Blocks that they held at the end.
    pub live_blocks: u64,
}

/// What the probes cost their targets.
#[derive(Clone, Debug, Serialize)]
pub struct OverheadReport {
    /// Percent of one core, over the whole run.
    pub average_percent: f64,
    /// Percent of one core, in the dearest second.
    pub peak_percent: f64,
    /// Percent of one core that was allowed; null without a limit.
    pub limit_percent: Option<f64>,
    /// What each hit was reckoned to cost.
    pub nanoseconds: NamedCounts,
    /// Whether those were measured on this machine.
    pub measured: bool,
}

/// Time from an event to its place in the live table.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LagReport {
    /// Half of the events took at most this long, in microseconds.
    pub median_us: f64,
    /// 99 of 100 events took at most this long, in microseconds.
    pub percentile_99_us: f64,
}

impl MemoryReport {
    pub(super) fn new(figures: &MemoryFigures) -> Self {
        let MemoryFigures { budget, kernel_maps, live_capacity, live_blocks } = figures.clone();
        let kernel_bytes = kernel_maps.iter().map(|(_, bytes)| bytes).sum();
        Self { budget, kernel_bytes, kernel_maps, live_capacity, live_blocks }
    }
}

impl OverheadReport {
    pub(super) fn new(figures: &OverheadFigures) -> Self {
        let costs = figures.costs;
        Self {
            average_percent: percent(figures.average),
            peak_percent: percent(figures.peak),
            limit_percent: figures.limit.map(percent),
            nanoseconds: NamedCounts(vec![
                ("entry", costs.entry),
                ("stepped_entry", costs.stepped_entry),
                ("return", costs.returned),
                ("sample", costs.sample),
            ]),
            measured: costs.measured,
        }
    }
}

impl LagReport {
    pub(super) fn new(figures: LagFigures) -> Self {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        Self {
            median_us: microseconds(figures.median),
            percentile_99_us: microseconds(figures.percentile_99),
        }
    }
}

/// What the run cost, one fact per line.
#[must_use]
pub fn lines(figures: &RunFigures) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(overhead) = &figures.overhead {
        lines.push(format!(
            "overhead: the probes cost about {:.1} % of a core, {:.1} % in the dearest second",
            percent(overhead.average),
            percent(overhead.peak)
        ));
    }
    let kernel: u64 = figures.memory.kernel_maps.iter().map(|(_, bytes)| bytes).sum();
    lines.push(format!(
        "memory: {} of the kernel's for the probes, budget {}; {} of {} live blocks in use",
        units::bytes(kernel as f64),
        units::bytes(figures.memory.budget as f64),
        units::count(figures.memory.live_blocks as f64),
        units::count(figures.memory.live_capacity as f64)
    ));
    lines
}

/// Millionths of a core as percent.
fn percent(millionths: u64) -> f64 {
    millionths as f64 / 10_000.0
}
