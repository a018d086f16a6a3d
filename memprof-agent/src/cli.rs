//! The command line: raw words in, validated options with units out. Nothing below sees strings.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};
use memprof_common::event::MAX_STACK;
use memprof_common::sampling::MAX_INTERVAL;
use memprof_core::profile::ValueKind;

use crate::bpf::attach::AttachMode;
use crate::budget::{self, Budget};
use crate::output::OutputFile;

/// Native memory profiler for running, unmodified Linux processes.
///
/// Draws who holds the native memory of a process: bytes allocated since the recording began and not
/// yet freed, by stack. The target is never stopped and never written to.
#[derive(Debug, Parser)]
#[command(name = "memprof-agent", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    /// Show more of what happens (the kernel side's messages included): -v info, -vv debug, -vvv trace
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record the native memory of processes for a while
    Record(RecordArgs),
    /// Run a recording (.mprec) through the same analysis; needs no root and no target
    Replay(ReplayArgs),
    /// Account for the whole RSS of a process: who has it, and what glibc has been given back but keeps
    Explain(ExplainArgs),
    /// Let a JVM give back what glibc keeps (malloc_trim, through the JVM's own command), and show the effect
    Trim(TrimArgs),
    /// Check what this machine, this user and a target allow
    Doctor(DoctorArgs),
    /// Attach probes that do nothing where `record` attaches its own, until interrupted: the floor
    /// under the cost of any profiler that probes the allocator (needs kernel 6.13)
    Floor(FloorArgs),
}

/// `record`
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) targets: TargetArgs,

    /// How long to record [default: 30s; with COMMAND: until it ends]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) probes: ProbeArgs,

    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Which processes.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TargetArgs {
    /// Process to record; can be given several times
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Vec<i32>,

    /// Record all processes with this command name (as in /proc/PID/comm)
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Option<String>,

    /// Start this command and record it from its first instruction
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How the probes work.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Mean bytes between two samples; blocks at least this large are always seen; 1 = every block
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = sample_interval)]
    pub(crate) sample_interval: u64,

    /// How to attach the probes
    #[arg(long, value_enum, default_value_t = AttachChoice::Auto)]
    pub(crate) attach_mode: AttachChoice,

    /// Most bytes of stack copied per sample, up to 64KiB
    #[arg(long, value_name = "SIZE", default_value = "32KiB", value_parser = stack_size)]
    pub(crate) stack_size: u32,

    /// Memory for tables and events, of the kernel's probes and of the agent. When it gets scarce, fewer
    /// blocks are sampled: estimates stay unbiased
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = budget::parse)]
    pub(crate) memory_budget: u64,

    /// Most sampled blocks that can be alive at once [default: from the memory budget]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    pub(crate) max_live_blocks: Option<u32>,

    /// Kernel memory for events on their way to the agent; rounded up to a power of two [default: from
    /// the memory budget]
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub(crate) ring_size: Option<u32>,

    /// Take the probes out when they cost the target more than this many percent of one core; `none`
    /// keeps them in at any cost
    #[arg(long, value_name = "PERCENT|none", default_value = "10", value_parser = OverheadLimit::parse)]
    pub(crate) max_overhead: OverheadLimit,

    /// Also record memory that the program maps itself (mmap, mremap, brk): thread stacks, loaded files,
    /// heaps of its own. What the allocator maps for its blocks is not counted twice. While recording, every
    /// system call on this machine takes a little longer
    #[arg(long)]
    pub(crate) mmap: bool,

    /// Also record the children that the processes start from now on, and theirs
    #[arg(long)]
    pub(crate) children: bool,

    /// Attach where that can end the target: under a seccomp filter that the kernel may run into, and to
    /// operator new where a call that throws cannot be left alone
    #[arg(long)]
    pub(crate) force: bool,
}

impl ProbeArgs {
    /// Sizes of ring and tables.
    pub(crate) fn budget(&self) -> Budget {
        Budget::split(self.memory_budget, self.ring_size, self.max_live_blocks)
    }
}

/// What to show and write.
#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// Write FILE.svg (flame graph), .pb.gz (pprof), .folded (stacks as text) or .mprec (recording:
    /// contains parts of the target's stacks); can be given several times
    #[arg(short, long, value_name = "FILE", value_parser = OutputFile::parse)]
    pub(crate) output: Vec<OutputFile>,

    /// What flame graph and folded stacks show: alloc_objects, alloc_space, inuse_objects, inuse_space; in a
    /// replay with --from also inuse_growth
    #[arg(long, value_name = "TYPE", default_value = "inuse_space", value_parser = value_kind)]
    pub(crate) value: ValueKind,

    /// Count only blocks at least this old as in use
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) min_age: Duration,

    /// Tell stacks apart by the name of their thread: as the outermost frame, in pprof as the label `thread`.
    /// A JVM gives its threads the first 15 bytes of their Java names
    #[arg(long)]
    pub(crate) threads: bool,

    /// Print one JSON document instead of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Sites in the table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
}

/// `replay`
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The recording
    #[arg(value_name = "FILE.mprec")]
    pub(crate) recording: PathBuf,

    /// Show by how much each site has grown since this long after the start
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) from: Option<Duration>,

    /// Show what was in use this long after the start; losses and counters stay those of the whole recording
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) to: Option<Duration>,

    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// `explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Process to explain
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,

    /// Look several times over this long, and say whether it leaks, retains or is steady
    #[arg(long, value_name = "TIME", value_parser = watch_time)]
    pub(crate) watch: Option<Duration>,

    /// Do not ask a JVM: only look at it from outside. (Asking makes the JVM listen, as jcmd does)
    #[arg(long)]
    pub(crate) no_attach: bool,

    /// Print one JSON document instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// `trim`
#[derive(Debug, Args)]
pub(crate) struct TrimArgs {
    /// JVM to trim
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,

    /// Print one JSON document instead of the text
    #[arg(long)]
    pub(crate) json: bool,
}

/// `doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Also check this process
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,

    /// Print one JSON document instead of the list
    #[arg(long)]
    pub(crate) json: bool,
}

/// `floor`
#[derive(Debug, Args)]
pub(crate) struct FloorArgs {
    /// Process to attach to
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
}

/// How much CPU time the probes may cost their targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverheadLimit {
    /// Thousandths of one core.
    Permille(u64),
    /// Whatever they cost.
    None,
}

impl OverheadLimit {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let percent: f64 = text
            .trim_end_matches('%')
            .parse()
            .map_err(|_| "a number of percent of one core, for example 10, or none".to_string())?;
        if !(0.1..=100_000.0).contains(&percent) {
            return Err("from 0.1 to 100000 (percent of one core), or none".into());
        }
        Ok(Self::Permille((percent * 10.0).round() as u64))
    }
}

/// An attach mode, or the best one that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachChoice {
    /// The best mode that the kernel has
    Auto,
    /// Uprobe session (kernel 6.13 and later)
    Session,
    /// Uprobe multi (kernel 6.10 and later)
    Multi,
    /// One perf event per probe
    Perf,
}

impl AttachChoice {
    /// The mode that must be used, if one was asked for.
    pub(crate) fn forced(self) -> Option<AttachMode> {
        match self {
            Self::Auto => None,
            Self::Session => Some(AttachMode::Session),
            Self::Multi => Some(AttachMode::Multi),
            Self::Perf => Some(AttachMode::Perf),
        }
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|error| format!("{error} (for example 512KiB)"))
}

fn sample_interval(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("0 would sample nothing; 1 samples every block".into()),
        interval if interval > MAX_INTERVAL => Err(format!("at most {}", ByteSize(MAX_INTERVAL))),
        interval => Ok(interval),
    }
}

fn stack_size(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?)
        .ok()
        .filter(|size| (1024..=MAX_STACK).contains(size))
        .ok_or_else(|| format!("from 1KiB to {}KiB", MAX_STACK / 1024))
}

fn ring_size(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?)
        .ok()
        .and_then(|size| size.max(1 << 17).checked_next_power_of_two())
        .filter(|&size| size <= 1 << 30)
        .ok_or_else(|| "at most 1GiB".into())
}

/// A look costs its target time, so that looks must be some way apart.
fn watch_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Duration::from_secs(5) { Err("at least 5s".into()) } else { Ok(time) }
}

fn value_kind(text: &str) -> Result<ValueKind, String> {
    text.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(sample_interval("512KiB"), Ok(512 << 10));
        assert_eq!(sample_interval("1"), Ok(1));
        assert!(sample_interval("0").is_err());
        assert!(sample_interval("2GiB").is_err());
        assert!(sample_interval("fast").is_err());
        assert_eq!(stack_size("32KiB"), Ok(32 << 10));
        assert!(stack_size("128KiB").is_err());
        assert_eq!(ring_size("60MiB"), Ok(64 << 20));
        assert_eq!(ring_size("1"), Ok(1 << 17));
        assert!(ring_size("8GiB").is_err());
    }

    #[test]
    fn the_overhead_limit_is_a_share_of_one_core() {
        assert_eq!(OverheadLimit::parse("10"), Ok(OverheadLimit::Permille(100)));
        assert_eq!(OverheadLimit::parse("2.5%"), Ok(OverheadLimit::Permille(25)));
        assert_eq!(OverheadLimit::parse("none"), Ok(OverheadLimit::None));
        for wrong in ["0", "-1", "much", "NaN", "1e9"] {
            assert!(OverheadLimit::parse(wrong).is_err(), "{wrong}");
        }
    }
}
