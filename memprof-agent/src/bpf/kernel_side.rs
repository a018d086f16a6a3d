//! The loaded eBPF object: its maps and settings.

use anyhow::{Context, Result, anyhow, bail};
use aya::maps::{HashMap, MapData, MapError, RingBuf};
use aya::programs::RawTracePoint;
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use memprof_common::event::MAX_STACK;
use memprof_common::sampling::{pressure_marks, slope};
use memprof_common::settings::{KernelOffsets, Settings};
use memprof_core::input::Scope;

use super::counters::KernelCounters;
use super::live_table::LiveTable;
use super::raw::{self, RelocatedObject};
use super::settings::ProbeSettings;
use crate::host::memory_limits::surely_granted;

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
    /// Most calls whose return is awaited at once.
    pub(crate) max_calls: u32,
    /// Where things are in the running kernel.
    pub(crate) kernel: KernelOffsets,
    /// What is recorded besides blocks.
    pub(crate) scope: Scope,
}

impl LoadOptions {
    /// The smallest tables and no sampling: to find out whether the probes load and attach at all.
    pub(crate) fn trial() -> Self {
        Self {
            sample_interval: 0,
            stack_limit: MAX_STACK,
            max_live_blocks: 1,
            ring_bytes: 1 << 17,
            max_calls: 64,
            kernel: KernelOffsets::NONE,
            scope: Scope::default(),
        }
    }

    fn settings(&self) -> Settings {
        let (pressure_from, pressure_step) = pressure_marks(self.max_live_blocks.into());
        Settings {
            sample_interval: self.sample_interval,
            sample_slope: slope(self.sample_interval),
            pressure_from,
            pressure_step,
            throw_limit: surely_granted(),
            stack_limit: self.stack_limit,
            follow_children: u32::from(self.scope.children),
            kernel: self.kernel,
        }
    }
}

/// The programs that follow processes through their lives, and where they are attached.
const PROCESS_TRACEPOINTS: [(&str, &str); 3] = [
    ("process_exec", "sched_process_exec"),
    ("process_fork", "sched_process_fork"),
    ("process_exit", "sched_process_exit"),
];

/// The programs that see memory maps. They are attached as raw tracepoints: these need no tracefs, which
/// may not be mounted, and hand over the caller's registers. Every system call of the machine passes them: a
/// bare one took 210 ns without, 355 ns with any tracepoint of system calls, 430 ns with these.
const SYSCALL_TRACEPOINTS: [(&str, &str); 2] = [("syscall_exit", "sys_exit"), ("syscall_enter", "sys_enter")];

/// The object in the kernel, with the handles that do not change hands.
pub(crate) struct KernelSide {
    /// The object.
    pub(crate) ebpf: Ebpf,
    /// Its programs, for the attach modes that aya does not know.
    pub(crate) object: RelocatedObject,
    /// Its settings.
    pub(crate) settings: ProbeSettings,
    /// Kernel memory of each of its maps, in bytes.
    pub(crate) memory: Vec<(String, u64)>,
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
            .map_max_entries("CALLS", options.max_calls)
            .map_max_entries("OUTER", options.max_calls)
            .override_global(aya_log::LEVEL, &log_level(), true)
            .load(OBJECT)
            .context("loading the eBPF object (needs root, or CAP_BPF and CAP_PERFMON)")?;
        let object = RelocatedObject::new(OBJECT, &ebpf)?;
        for (program, tracepoint) in PROCESS_TRACEPOINTS {
            attach_tracepoint(&mut ebpf, program, tracepoint)?;
        }
        if options.scope.maps {
            for (program, tracepoint) in SYSCALL_TRACEPOINTS {
                attach_tracepoint(&mut ebpf, program, tracepoint)
                    .context("memory maps (--mmap) cannot be recorded here")?;
            }
        }
        let memory = raw::map_memory(&ebpf)?;
        let settings = ebpf.take_map("SETTINGS").ok_or_else(|| anyhow!("no eBPF map SETTINGS"))?;
        let settings = ProbeSettings::new(settings, options.settings())?;
        Ok(Self { ebpf, object, settings, memory })
    }

    /// Reports exec, forks and memory maps of this process from now on.
    pub(crate) fn watch(&mut self, tgid: u32) -> Result<()> {
        let map = self.ebpf.map_mut("TARGETS").ok_or_else(|| anyhow!("no eBPF map TARGETS"))?;
        let mut map: HashMap<_, u32, u32> = map.try_into()?;
        map.insert(tgid, 1, 0).with_context(|| format!("watching process {tgid}"))
    }

    /// Forgets a process that has ended: its id may come to another one.
    pub(crate) fn forget(&mut self, tgid: u32) -> Result<()> {
        let map = self.ebpf.map_mut("TARGETS").ok_or_else(|| anyhow!("no eBPF map TARGETS"))?;
        let mut map: HashMap<_, u32, u32> = map.try_into()?;
        match map.remove(&tgid) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("forgetting process {tgid}")),
        }
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
        let counters = KernelCounters::new(take("COUNTERS")?, take("CALLS_BY_KIND")?)?;
        Ok(KernelTables { counters, live: LiveTable::new(take("LIVE")?, take("OCCUPANCY")?)? })
    }

    /// Takes the reader of the kernel side's log messages; once.
    pub(crate) fn take_logger(&mut self) -> Result<EbpfLogger<&'static dyn log::Log>> {
        EbpfLogger::init(&mut self.ebpf).context("opening the probes' log")
    }
}

fn attach_tracepoint(ebpf: &mut Ebpf, name: &str, tracepoint: &str) -> Result<()> {
    let program: &mut RawTracePoint =
        ebpf.program_mut(name).ok_or_else(|| anyhow!("no eBPF program {name}"))?.try_into()?;
    program.load().with_context(|| format!("loading the eBPF program {name}"))?;
    program.attach(tracepoint).with_context(|| format!("attaching to the tracepoint {tracepoint}"))?;
    Ok(())
}

/// The level up to which the kernel side produces messages: that of the agent's own log.
fn log_level() -> u8 {
    log::max_level() as u8
}

/// Counters and live table of the kernel side.
pub(crate) struct KernelTables {
    /// The counters.
    pub(crate) counters: KernelCounters,
    /// The live table.
    pub(crate) live: LiveTable,
}
