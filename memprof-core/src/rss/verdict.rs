//! Leak, retention, growth of the JVM, or nothing of the kind: from several looks at a process.
//!
//! A look costs the process as much as one account; between them it runs alone. Each amount is judged like the
//! memory of a site ([`Trend`]): it grows when every look of the second half is above every one of the first.

use serde::Serialize;

use super::{Account, Owner};
use crate::trend::{Chance, Point, Trend};

/// What part of the RSS a growth must be to matter.
const MATTERS: f64 = 0.01;

/// The least growth that matters, in bytes: allocators grow by steps of this size.
const LEAST: f64 = 1_048_576.0;

/// What part of the RSS must be kept by glibc to be worth saying.
const RETAINED: f64 = 0.20;

/// One look.
#[derive(Clone, Debug)]
pub struct Look {
    /// When, in nanoseconds of any clock.
    pub time: u64,
    /// What was seen.
    pub account: Account,
}

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// Blocks from malloc that are in use grow.
    Leak,
    /// The JVM grows by its own account, or in parts that are only its.
    JvmGrowth,
    /// Other memory grows.
    OtherGrowth,
    /// Nothing grows for good, and glibc keeps a large part without a use.
    Retention,
    /// Nothing grows.
    Steady,
}

/// How an amount moved from the first look to the last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Movement {
    /// Of what.
    pub name: &'static str,
    /// Bytes at the first look.
    pub first_bytes: u64,
    /// Bytes at the last look.
    pub last_bytes: u64,
    /// Growing, shrinking, steady, varying; unknown with too few looks.
    pub trend: Option<&'static str>,
    /// Bytes a second, where it has a direction.
    pub bytes_per_second: Option<f64>,
}

/// What is going on, with the evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// In a word.
    pub kind: VerdictKind,
    /// How the amounts moved that the verdict rests on, the one that decided first.
    pub evidence: Vec<Movement>,
    /// Blocks in use at the first and at the last look, where they can be counted.
    pub blocks_in_use: Option<(u64, u64)>,
}

/// A group of owners that is judged together.
struct Group {
    name: &'static str,
    kind: VerdictKind,
    holds: fn(Owner) -> bool,
}

/// What can grow, the more telling first.
const GROUPS: [Group; 4] = [
    Group { name: "malloc in use", kind: VerdictKind::Leak, holds: |owner| owner == Owner::Malloc },
    Group {
        name: "malloc of the JVM",
        kind: VerdictKind::JvmGrowth,
        holds: |owner| owner == Owner::MallocOfJvm,
    },
    Group {
        name: "Java heap and other parts of the JVM",
        kind: VerdictKind::JvmGrowth,
        holds: |owner| matches!(owner, Owner::Jvm(_)),
    },
    Group {
        name: "other memory",
        kind: VerdictKind::OtherGrowth,
        holds: |owner| {
            matches!(
                owner,
                Owner::OtherAllocator
                    | Owner::LibraryCode
                    | Owner::LibraryData
                    | Owner::Archives
                    | Owner::Files
                    | Owner::Shared
                    | Owner::Kernel
                    | Owner::Anonymous
            )
        },
    },
];

/// Judges looks in order of time; none without any.
#[must_use]
pub fn verdict(looks: &[Look]) -> Option<Verdict> {
    let (first, last) = (looks.first()?, looks.last()?);
    let rss = last.account.rss_bytes as f64;
    let least = (rss * MATTERS).max(LEAST);
    let mut grown: Vec<(f64, VerdictKind, Movement)> = Vec::new();
    for group in &GROUPS {
        let movement = movement(group.name, looks, |account| account.sum(group.holds));
        let growth = movement.last_bytes as f64 - movement.first_bytes as f64;
        if movement.trend == Some("growing") && growth >= least {
            grown.push((growth, group.kind, movement));
        }
    }
    grown.sort_by(|a, b| b.0.total_cmp(&a.0));
    let retained = movement("kept by glibc without a use", looks, Account::retained);
    let kind = match grown.first() {
        Some((_, kind, _)) => *kind,
        None if retained.last_bytes as f64 >= (rss * RETAINED).max(LEAST) => VerdictKind::Retention,
        None => VerdictKind::Steady,
    };
    let mut evidence: Vec<Movement> = grown.into_iter().map(|(.., movement)| movement).collect();
    if !evidence.iter().any(|movement| movement.name == GROUPS[0].name) {
        evidence.push(movement(GROUPS[0].name, looks, |account| account.sum(GROUPS[0].holds)));
    }
    if kind == VerdictKind::Retention {
        evidence.insert(0, retained);
    } else {
        evidence.push(retained);
    }
    evidence.push(movement("RSS", looks, |account| account.rss_bytes));
    let blocks = blocks(&first.account).zip(blocks(&last.account));
    Some(Verdict { kind, evidence, blocks_in_use: blocks })
}

fn blocks(account: &Account) -> Option<u64> {
    let walk = account.allocator.heaps.as_ref().ok()?;
    Some(walk.total.in_use.chunks + walk.mmapped.chunks)
}

fn movement(name: &'static str, looks: &[Look], amount: impl Fn(&Account) -> u64) -> Movement {
    let points: Vec<Point> =
        looks.iter().map(|look| Point { time: look.time, bytes: amount(&look.account) as f64 }).collect();
    let (first, last) = (points.first().expect("there is a look"), points.last().expect("there is a look"));
    // All looks are of the half that is judged: nothing fills up because somebody looks.
    let start = first.time.saturating_sub(last.time - first.time);
    let trend = Trend::of(start, &points, Chance::default());
    Movement {
        name,
        first_bytes: first.bytes as u64,
        last_bytes: last.bytes as u64,
        trend: trend.map(Trend::name),
        bytes_per_second: trend.and_then(Trend::bytes_per_second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jvm::JvmPart;
    use crate::rss::{Allocator, Beside, Line};

    fn look(second: u64, lines: &[(Owner, u64)]) -> Look {
        let line = |&(owner, mib): &(Owner, u64)| Line { owner, category: None, bytes: mib << 20 };
        let lines: Vec<Line> = lines.iter().map(line).collect();
        let account = Account {
            rss_bytes: lines.iter().map(|line| line.bytes).sum(),
            lines,
            unexplained_bytes: 0,
            beside: Beside::default(),
            allocator: Allocator { name: None, version: None, heaps: Err(String::new()) },
            jvm: None,
        };
        // A clock that starts at 1000 s.
        Look { time: (1000 + second) * 1_000_000_000, account }
    }

    fn judge(at: impl Fn(u64) -> Vec<(Owner, u64)>) -> Verdict {
        let looks: Vec<Look> = (0..10).map(|second| look(second, &at(second))).collect();
        verdict(&looks).expect("there are looks")
    }

    #[test]
    fn what_grows_most_decides() {
        let leak = judge(|at| vec![(Owner::Malloc, 50 + 2 * at), (Owner::Jvm(JvmPart::JavaHeap), 100 + at)]);
        assert_eq!(leak.kind, VerdictKind::Leak);
        assert_eq!((leak.evidence[0].name, leak.evidence[0].last_bytes), ("malloc in use", 68 << 20));
        let rate = leak.evidence[0].bytes_per_second.expect("it grows");
        assert!((rate / f64::from(2 << 20) - 1.0).abs() < 0.01, "{rate}");
        let jvm = judge(|at| vec![(Owner::Malloc, 50), (Owner::Jvm(JvmPart::JavaHeap), 100 + 3 * at)]);
        assert_eq!(jvm.kind, VerdictKind::JvmGrowth);
        assert_eq!(judge(|at| vec![(Owner::Anonymous, 9 + at)]).kind, VerdictKind::OtherGrowth);
    }

    #[test]
    fn ups_and_downs_are_no_leak() {
        let high = |at: u64| if at % 3 == 2 { 12 } else { 235 };
        let churn = judge(|at| vec![(Owner::Malloc, high(at)), (Owner::Trimmable, 347 - high(at))]);
        assert_eq!(churn.kind, VerdictKind::Retention);
        assert_eq!(churn.evidence[0].name, "kept by glibc without a use");
        let steady = judge(|at| vec![(Owner::Malloc, 12 + at % 4), (Owner::Trimmable, 2)]);
        assert_eq!(steady.kind, VerdictKind::Steady);
        assert_eq!(steady.evidence.last().map(|movement| movement.name), Some("RSS"));
        let little = judge(|at| vec![(Owner::Malloc, 2000 + at)]);
        assert_eq!(little.kind, VerdictKind::Steady, "less than a hundredth");
        assert!(verdict(&[]).is_none());
    }
}
