//! What the probes count, summed over all CPUs.

use anyhow::{Context, Result};
use aya::maps::{Map, MapData, PerCpuArray};
use memprof_common::counter::Counter;
use memprof_common::function::FunctionKind;

use super::raw;

/// The probes' counters.
pub(crate) struct KernelCounters {
    counters: PerCpuArray<MapData, u64>,
    calls: PerCpuArray<MapData, u64>,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// By [`Counter`] index.
    pub(crate) counters: [u64; Counter::COUNT],
    /// Calls by [`FunctionKind`] index.
    pub(crate) calls: [u64; FunctionKind::ALL.len()],
}

impl KernelCounters {
    pub(super) fn new(counters: Map, calls: Map) -> Result<Self> {
        Ok(Self {
            counters: counters.try_into().context("opening the probes' counters")?,
            calls: calls.try_into().context("opening the probes' counters of calls")?,
        })
    }

    /// The counters of `ebpf` for one more reader, while it still has its maps.
    pub(crate) fn another(ebpf: &aya::Ebpf) -> Result<Self> {
        Ok(Self { counters: duplicate(ebpf, "COUNTERS")?, calls: duplicate(ebpf, "CALLS_BY_KIND")? })
    }

    /// All of them now.
    pub(crate) fn read(&self) -> Result<Counts> {
        let mut counts = Counts { counters: [0; Counter::COUNT], calls: [0; FunctionKind::ALL.len()] };
        read_into(&self.counters, &mut counts.counters)?;
        read_into(&self.calls, &mut counts.calls)?;
        for kind in FunctionKind::ALL {
            let sum = if kind.allocates() { Counter::AllocCalls } else { Counter::FreeCalls };
            counts.counters[sum as usize] += counts.calls[kind as usize];
        }
        Ok(counts)
    }
}

/// The per-CPU array `name` of `ebpf`, by a descriptor of its own.
pub(super) fn duplicate(ebpf: &aya::Ebpf, name: &str) -> Result<PerCpuArray<MapData, u64>> {
    let map = ebpf.map(name).with_context(|| format!("no eBPF map {name}"))?;
    let fd = raw::map_fd(name, map)?.try_clone_to_owned().context("duplicating a descriptor")?;
    let data = MapData::from_fd(fd).with_context(|| format!("opening the eBPF map {name}"))?;
    Map::PerCpuArray(data).try_into().with_context(|| format!("opening the eBPF map {name}"))
}

fn read_into(map: &PerCpuArray<MapData, u64>, sums: &mut [u64]) -> Result<()> {
    for (index, sum) in sums.iter_mut().enumerate() {
        let values = map.get(&u32::try_from(index)?, 0).context("reading the probes' counters")?;
        *sum = values.iter().sum();
    }
    Ok(())
}
