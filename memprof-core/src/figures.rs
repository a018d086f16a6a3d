//! What a run cost: figures that only the agent which made it can know.

use serde::{Deserialize, Serialize};

/// Costs of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFigures {
    /// Memory of the agent and its probes.
    pub memory: MemoryFigures,
    /// CPU time that the probes cost their targets, where it was estimated.
    pub overhead: Option<OverheadFigures>,
    /// Time from an event to its place in the live table; `None` when there were no events.
    pub lag: Option<LagFigures>,
}

/// Memory in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// What tables and ring may take in all.
    pub budget: u64,
    /// What the kernel says it took for each of the probes' maps.
    pub kernel_maps: Vec<(String, u64)>,
    /// Blocks that the live tables can hold.
    pub live_capacity: u64,
    /// Blocks that they held at the end.
    pub live_blocks: u64,
}

/// CPU time in millionths of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverheadFigures {
    /// Over the whole run.
    pub average: u64,
    /// In the dearest second.
    pub peak: u64,
    /// What was allowed; `None` without a limit.
    pub limit: Option<u64>,
    /// What a hit was reckoned to cost.
    pub costs: HitCosts,
}

/// What the target pays for one hit of a probe, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitCosts {
    /// An entry at an instruction that the kernel emulates.
    pub entry: u64,
    /// An entry at an instruction that it single-steps.
    pub stepped_entry: u64,
    /// The return of a call, if it is seen.
    pub returned: u64,
    /// A sampled block, its stack apart.
    pub sample: u64,
    /// Whether the first three were measured on this machine; if not they are typical ones.
    pub measured: bool,
}

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LagFigures {
    /// Half of the events took at most this long.
    pub median: u64,
    /// 99 of 100 events took at most this long.
    pub percentile_99: u64,
}
