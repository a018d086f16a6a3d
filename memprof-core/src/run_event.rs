//! What changed the course of a run: printed with every profile, because it decides how to read it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::encode::units;

/// Something that happened to the run as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub time: u64,
    /// What happened.
    pub kind: RunEventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunEventKind {
    /// The live table was nearly full: fewer blocks are sampled from now on, and those held were thinned to
    /// what the new interval would have sampled. Estimates stay unbiased, their errors grow.
    IntervalRaised {
        /// The new sampling interval in bytes.
        interval: u64,
        /// Blocks held before.
        before: u64,
        /// Blocks held after.
        after: u64,
    },
    /// The probes cost the target more than was allowed and were taken out: the run ends here.
    ProbesTakenOut {
        /// Estimated cost in the last second, in thousandths of one core.
        overhead: u64,
        /// What was allowed, in thousandths of one core.
        limit: u64,
    },
    /// The event ring was full when blocks were freed, for the first time at the event's time.
    FreesLost {
        /// When that was last noticed, `CLOCK_MONOTONIC` nanoseconds.
        until: u64,
        /// Free events that were lost.
        frees: u64,
        /// Blocks that were freed instead by comparison with the kernel's table.
        repaired: u64,
    },
    /// At the end of the run, the probes' counters or their live table could not be read.
    LossesUnknown,
    /// The Java frames of a process cannot be told.
    JavaNotTold {
        /// The process.
        tgid: u32,
        /// Why.
        reason: String,
    },
}

/// Losses of frees that follow each other within this time (10 s) are one event.
const ONE_EVENT_NS: u64 = 10_000_000_000;

impl RunEvent {
    /// Takes `next` in when it goes on with the same. Whether it did.
    pub(crate) fn extend(&mut self, next: &Self) -> bool {
        match (&mut self.kind, &next.kind) {
            (
                RunEventKind::FreesLost { until, frees, repaired },
                RunEventKind::FreesLost { until: next_until, frees: more_frees, repaired: more_repaired },
            ) if next.time.saturating_sub(*until) <= ONE_EVENT_NS => {
                *until = *next_until;
                *frees += more_frees;
                *repaired += more_repaired;
                true
            }
            _ => false,
        }
    }
}

impl RunEventKind {
    /// A name for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::IntervalRaised { .. } => "interval_raised",
            Self::ProbesTakenOut { .. } => "probes_taken_out",
            Self::FreesLost { .. } => "frees_lost",
            Self::LossesUnknown => "losses_unknown",
            Self::JavaNotTold { .. } => "java_not_told",
        }
    }
}

impl fmt::Display for RunEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IntervalRaised { interval, before, after } => write!(
                f,
                "the live table was nearly full: sampling every {} from here on, {} of {} blocks kept \
                 (estimates stay unbiased, errors grow); a larger --memory-budget avoids it",
                units::bytes(*interval as f64),
                units::count(*after as f64),
                units::count(*before as f64)
            ),
            Self::ProbesTakenOut { overhead, limit } => write!(
                f,
                "the probes cost about {} % of a core, more than --max-overhead {} %: they were taken out and \
                 the recording ends here",
                units::count(*overhead as f64 / 10.0),
                *limit as f64 / 10.0
            ),
            Self::FreesLost { frees, repaired, .. } => write!(
                f,
                "frees lost: {} (the event ring was full); {} blocks were freed by comparison with the kernel's \
                 table, so none of them counts as in use from here on",
                units::count(*frees as f64),
                units::count(*repaired as f64)
            ),
            Self::LossesUnknown => f.write_str(
                "the probes' counters or their live table could not be read at the end: losses may be missing \
                 from this report, and blocks whose free was lost count as in use",
            ),
            Self::JavaNotTold { tgid, reason } => {
                write!(f, "Java frames of process {tgid} cannot be told: {reason}")
            }
        }
    }
}
