//! The loaded eBPF object: its maps and settings.

use anyhow::{Context, Result, anyhow, bail};
use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::RawTracePoint;
use aya::{Ebpf, EbpfLoader, Pod};
use aya_log::EbpfLogger;
use memprof_common::counter::Counter;
use memprof_common::event::MAX_STACK;
use memprof_common::live::{LiveKey, LiveValue};
use memprof_common::sampling::slope;
use memprof_common::settings::{KernelOffsets, Settings};

use super::raw::RelocatedObject;

/// The probes, built by `cargo xtask build-ebpf`; empty in a build without them.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/memprof.bpf.o"));

/// Sizes and settings chosen before loading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadOptions {
    /// Mean bytes between samples; 1 = every block.
    pub(crate) sample_interval: u64,
    /// Most bytes of stack per sample.
    pub(crate) stack_limit: u32,
    /// Most blocks in the kernel's live table.
    pub(crate) max_live_blocks: u32,
    /// Bytes of the event ring, a power of two.
    pub(crate) ring_bytes: u32,
    /// Where things are in the running kernel.
    pub(crate) kernel: KernelOffsets,
}

impl LoadOptions {
    /// The smallest tables and no sampling: to find out whether the probes load and attach at all.
    pub(crate) fn trial() -> Self {
        Self {
            sample_interval: 0,
            stack_limit: MAX_STACK,
            max_live_blocks: 1,
            ring_bytes: 1 << 17,
            kernel: KernelOffsets::NONE,
        }
    }
}

/// Wrapper that lets aya copy settings to the kernel.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct SettingsValue(Settings);
// SAFETY: a repr(C) structure of integers without padding (asserted by its size in memprof-common).
unsafe impl Pod for SettingsValue {}

/// Wrapper that lets aya read keys of the live table.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct LiveKeyValue(LiveKey);
// SAFETY: a repr(C) structure of integers without padding.
unsafe impl Pod for LiveKeyValue {}

/// Wrapper that lets aya read values of the live table.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct LiveBlockValue(LiveValue);
// SAFETY: a repr(C) structure of one integer.
unsafe impl Pod for LiveBlockValue {}

/// The object in the kernel, with the handles that do not change hands.
pub(crate) struct KernelSide {
    /// The object.
    pub(crate) ebpf: Ebpf,
    /// Its programs, for the attach modes that aya does not know.
    pub(crate) object: RelocatedObject,
    options: LoadOptions,
}

impl KernelSide {
    /// Creates the maps, writes the settings and watches for exec. No probe is attached yet.
    pub(crate) fn load(options: LoadOptions) -> Result<Self> {
        if OBJECT.is_empty() {
            bail!("this build has no kernel probes: build with `cargo xtask build`");
        }
        if options.stack_limit > MAX_STACK {
            bail!("a stack snapshot holds at most {MAX_STACK} bytes, not {}", options.stack_limit);
        }
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("LIVE", options.max_live_blocks)
            .map_max_entries("EVENTS", options.ring_bytes)
            .override_global(aya_log::LEVEL, &log_level(), true)
            .load(OBJECT)
            .context("loading the eBPF object (needs root, or CAP_BPF and CAP_PERFMON)")?;
        let object = RelocatedObject::new(OBJECT, &ebpf)?;
        let exec: &mut RawTracePoint = ebpf
            .program_mut("process_exec")
            .ok_or_else(|| anyhow!("no eBPF program process_exec"))?
            .try_into()?;
        exec.load().context("loading the eBPF program process_exec")?;
        exec.attach("sched_process_exec").context("attaching to the tracepoint sched_process_exec")?;
        let mut this = Self { ebpf, object, options };
        this.set_sample_interval(options.sample_interval)?;
        Ok(this)
    }

    /// Changes the sampling interval; 0 stops the sampling, frees are still seen.
    pub(crate) fn set_sample_interval(&mut self, interval: u64) -> Result<()> {
        let settings = Settings {
            sample_interval: interval,
            sample_slope: slope(interval),
            stack_limit: self.options.stack_limit,
            reserved: 0,
            kernel: self.options.kernel,
        };
        let map = self.ebpf.map_mut("SETTINGS").ok_or_else(|| anyhow!("no eBPF map SETTINGS"))?;
        let mut map: Array<_, SettingsValue> = map.try_into()?;
        map.set(0, SettingsValue(settings), 0).context("writing the probes' settings")
    }

    /// Reports exec of this process from now on.
    pub(crate) fn watch(&mut self, tgid: u32) -> Result<()> {
        let map = self.ebpf.map_mut("TARGETS").ok_or_else(|| anyhow!("no eBPF map TARGETS"))?;
        let mut map: HashMap<_, u32, u32> = map.try_into()?;
        map.insert(tgid, 1, 0).with_context(|| format!("watching process {tgid}"))
    }

    /// Takes the event ring; once.
    pub(crate) fn take_events(&mut self) -> Result<RingBuf<MapData>> {
        let map = self.ebpf.take_map("EVENTS").ok_or_else(|| anyhow!("the event ring is taken"))?;
        RingBuf::try_from(map).context("mapping the event ring")
    }

    /// Takes what reads counters and the live table; once.
    pub(crate) fn take_tables(&mut self) -> Result<KernelTables> {
        let mut take =
            |name: &str| self.ebpf.take_map(name).ok_or_else(|| anyhow!("the map {name} is taken"));
        Ok(KernelTables {
            counters: take("COUNTERS")?.try_into().context("opening the probes' counters")?,
            live: take("LIVE")?.try_into().context("opening the kernel's live table")?,
        })
    }

    /// Takes the reader of the kernel side's log messages; once.
    pub(crate) fn take_logger(&mut self) -> Result<EbpfLogger<&'static dyn log::Log>> {
        EbpfLogger::init(&mut self.ebpf).context("opening the probes' log")
    }
}

/// The level up to which the kernel side produces messages: that of the agent's own log.
fn log_level() -> u8 {
    log::max_level() as u8
}

/// Counters and live table of the kernel side.
pub(crate) struct KernelTables {
    counters: PerCpuArray<MapData, u64>,
    live: HashMap<MapData, LiveKeyValue, LiveBlockValue>,
}

impl KernelTables {
    /// The counters so far, summed over all CPUs.
    pub(crate) fn counters(&self) -> Result<[u64; Counter::COUNT]> {
        let mut sums = [0; Counter::COUNT];
        for (index, sum) in sums.iter_mut().enumerate() {
            let values =
                self.counters.get(&u32::try_from(index)?, 0).context("reading the probes' counters")?;
            *sum = values.iter().sum();
        }
        Ok(sums)
    }

    /// Every block in the kernel's live table: tgid, address, allocation time.
    pub(crate) fn live_blocks(&self) -> Result<Vec<(u32, u64, u64)>> {
        self.live
            .iter()
            .map(|entry| {
                let (LiveKeyValue(key), LiveBlockValue(value)) =
                    entry.context("reading the kernel's live table")?;
                Ok((key.tgid, key.address, value.allocated_at))
            })
            .collect()
    }

    /// Forgets the blocks of a process that were handed out before `time`: an exec has dropped them.
    pub(crate) fn forget_blocks(&mut self, tgid: u32, time: u64) -> Result<()> {
        for (owner, address, allocated_at) in self.live_blocks()? {
            if owner == tgid && allocated_at < time {
                let key = LiveKeyValue(LiveKey { address, tgid, reserved: 0 });
                // Gone already when the new program has freed an address that looked like it.
                let _ = self.live.remove(&key);
            }
        }
        Ok(())
    }
}
