//! A profile: what a snapshot of the session says, by allocation site, with its losses.

use memprof_common::counter::Counter;

use crate::figures::RunFigures;
use crate::input::{ProcessInfo, RunInfo};
use crate::java::{FrameKinds, JavaMethods};
use crate::process::module::{ModuleImage, ModuleIndex, Segment};
use crate::run_event::RunEvent;
use crate::stack::Stack;
use crate::symbols::SymbolKey;
use crate::threads::ThreadNames;

pub use crate::estimate::Estimate;
pub use crate::trend::Trend;
pub use crate::value_kind::ValueKind;

/// Ages of a site's live blocks in nanoseconds: at the snapshot, or at the end of a process that has
/// ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ages {
    /// Age of the oldest block.
    pub oldest: u64,
    /// Age of the youngest block.
    pub youngest: u64,
    /// The blocks by age: younger than 10 s, than 1 min, than 10 min, and older.
    pub bands: [Estimate; AGE_BANDS],
}

/// Number of age bands.
pub const AGE_BANDS: usize = AGE_LIMITS.len() + 1;

/// Ages in nanoseconds at which one band ends and the next begins.
const AGE_LIMITS: [u64; 3] = [10_000_000_000, 60_000_000_000, 600_000_000_000];

impl Ages {
    /// Takes in what a block of this age stands for.
    pub fn add(ages: &mut Option<Self>, age: u64, estimate: Estimate) {
        let ages = ages.get_or_insert(Self { oldest: age, youngest: age, bands: Default::default() });
        ages.oldest = ages.oldest.max(age);
        ages.youngest = ages.youngest.min(age);
        let band = AGE_LIMITS.iter().take_while(|&&limit| age >= limit).count();
        ages.bands[band] += estimate;
    }
}

/// An allocation site: one stack of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// The stack, innermost frame first.
    pub stack: Stack,
    /// How each of its frames was run; empty when none is Java's.
    pub kinds: Box<[FrameKinds]>,
    /// Everything allocated here during the run.
    pub allocated: Estimate,
    /// What of it is still in use (and at least as old as the snapshot's minimum age). For a process
    /// that has ended: what was in use when it ended, as a leak checker would say it.
    pub in_use: Estimate,
    /// Ages of the blocks in use; `None` when there are none.
    pub ages: Option<Ages>,
    /// How the bytes in use move, where the run is long enough to tell.
    pub trend: Option<Trend>,
    /// Bytes in use now less those at the moment that growth is asked from, when one was given.
    pub growth: Option<f64>,
}

/// How the stacks of the run's samples ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Samples taken.
    pub samples: u64,
    /// Samples whose stack reaches the thread's entry.
    pub complete: u64,
    /// Samples whose native stack ends at Java code, as intended.
    pub java: u64,
    /// Samples whose stack is truncated for another reason.
    pub truncated: u64,
}

/// What went missing. All zero in a perfect run.
// tidy: wide: one counter for each way to lose something
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The kernel side's counters, by [`Counter`] index (some count events that are no losses).
    pub kernel: [u64; Counter::COUNT],
    /// Ring events (and texts of mappings) that could not be decoded.
    pub undecodable_events: u64,
    /// Events (and mappings) of processes that are not watched, or no longer.
    pub foreign_events: u64,
    /// Frees of blocks that the live table did not hold (allocated before an exec, or lost).
    pub unknown_frees: u64,
    /// Blocks taken out of the live table because the kernel no longer held them: their free events
    /// were lost, their bytes are right again.
    pub repaired_frees: u64,
    /// Inputs that the recording lost.
    pub recording_lost: u64,
    /// Events of the run beyond the number that is kept.
    pub run_events_left_out: u64,
    /// Blocks dropped because their entry in the kernel's live table was taken for that of a thinned one.
    pub thinned_by_mistake: u64,
    /// Samples whose stack there was no room to keep; their bytes are kept under one site.
    pub stacks_lost: u64,
    /// Samples whose thread's name there was no room to keep.
    pub thread_names_lost: u64,
    /// Memory map calls whose ranges were not tracked, because so many were already.
    pub maps_not_tracked: u64,
}

/// A process that was started by another watched one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Child {
    /// Index of the process into [`Profile::processes`].
    pub process: usize,
    /// Index of its parent.
    pub parent: usize,
    /// `CLOCK_MONOTONIC` nanoseconds at which it was started.
    pub forked_at: u64,
    /// What its parent had in use at that moment: the child got a copy. What became of the copy is not known,
    /// except that an exec drops it; then this is nothing.
    pub inherited: Estimate,
    /// When its probes were in place: all blocks from then on are seen. `None` when it ended before that.
    pub probes_at: Option<u64>,
}

/// The children of the processes that were asked for, and theirs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Children {
    /// Those that were recorded, in the order of [`Profile::processes`].
    pub recorded: Vec<Child>,
    /// Number of those that were not.
    pub not_recorded: u64,
}

/// A module as far as a reader of the profile is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFacts {
    /// Path as the process sees it.
    pub path: String,
    /// GNU build id, empty when it has none.
    pub build_id: Vec<u8>,
    /// Its first executable segment.
    pub code: Option<Segment>,
}

impl ModuleFacts {
    /// The facts of a module.
    #[must_use]
    pub fn of(image: &ModuleImage) -> Self {
        Self {
            path: image.path.clone(),
            build_id: image.build_id.clone(),
            code: image.segments.iter().find(|segment| segment.executable).copied(),
        }
    }
}

/// What a session knows at one moment. Sites are ordered by growth, where that was
/// asked for, then by in-use bytes, largest first.
// tidy: wide: everything that there is to say about a run
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// How the run was set up.
    pub run: RunInfo,
    /// `CLOCK_MONOTONIC` nanoseconds of the snapshot.
    pub taken_at: u64,
    /// The watched processes: one entry per life of a process id.
    pub processes: Vec<ProcessInfo>,
    /// Those of `processes`, by index, that had ended by then.
    pub ended: Vec<usize>,
    /// Which of `processes` were started during the run by others.
    pub children: Children,
    /// Modules by [`ModuleIndex`].
    pub modules: Vec<ModuleFacts>,
    /// The methods that Java frames name.
    pub methods: JavaMethods,
    /// The names of threads that stacks end with, where they are told apart by them.
    pub threads: ThreadNames,
    /// Sites with at least one sample.
    pub sites: Vec<Site>,
    /// How everything that is in use moves, where the run is long enough to tell.
    pub trend: Option<Trend>,
    /// How the stacks ended.
    pub coverage: Coverage,
    /// What went missing.
    pub losses: Losses,
    /// What happened to the run, in order.
    pub events: Vec<RunEvent>,
    /// What the run cost, where it is known.
    pub figures: Option<RunFigures>,
}

/// Sums over all sites of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Everything allocated during the run.
    pub allocated: Estimate,
    /// What of it is still in use.
    pub in_use: Estimate,
}

impl Losses {
    /// A counter of the kernel side.
    #[must_use]
    pub fn kernel(&self, counter: Counter) -> u64 {
        self.kernel[counter as usize]
    }
}

impl Profile {
    /// Sums over all sites.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for site in &self.sites {
            totals.allocated += site.allocated;
            totals.in_use += site.in_use;
        }
        totals
    }

    /// Length of the run in nanoseconds.
    #[must_use]
    pub fn duration(&self) -> u64 {
        self.taken_at.saturating_sub(self.run.started_at)
    }

    /// The process of a site.
    #[must_use]
    pub fn process(&self, site: &Site) -> &ProcessInfo {
        &self.processes[site.process]
    }

    /// The module with this index.
    #[must_use]
    pub fn module(&self, index: ModuleIndex) -> &ModuleFacts {
        &self.modules[index.0 as usize]
    }

    /// Every distinct code address of the sites' stacks, in a fixed order: what a symbolizer must name.
    #[must_use]
    pub fn symbol_keys(&self) -> Vec<SymbolKey> {
        let mut keys: Vec<SymbolKey> =
            self.sites.iter().flat_map(|site| site.stack.iter().filter_map(|f| f.symbol_key())).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}
