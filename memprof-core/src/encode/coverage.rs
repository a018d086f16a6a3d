//! How the stacks ended: how many samples have whole ones, and what cut the others.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::frame_name::truncation_words;
use super::report::NamedCounts;
use super::units;
use crate::profile::{Coverage, Profile};
use crate::stack::{Frame, Truncation, end_of};

/// How the stacks ended: numbers of samples.
#[derive(Clone, Debug, Serialize)]
pub struct CoverageReport {
    /// All samples.
    pub samples: u64,
    /// Those whose stack reaches the thread's entry.
    pub complete: u64,
    /// Those whose native stack ends at Java code.
    pub java: u64,
    /// Those whose stack is truncated.
    pub truncated: u64,
    /// These by the reason, most first, in the words of a site's `end`. Samples whose stack there was no room to
    /// keep are in no reason: see the loss `stacks_lost`.
    pub truncated_by_reason: NamedCounts,
}

impl CoverageReport {
    /// The report of a profile.
    pub(super) fn new(profile: &Profile) -> Self {
        let Coverage { samples, complete, java, truncated } = profile.coverage;
        let reasons = reasons(profile).into_iter().map(|(reason, n)| (truncation_words(reason), n));
        Self { samples, complete, java, truncated, truncated_by_reason: NamedCounts(reasons.collect()) }
    }
}

/// How the stacks ended, in one line.
#[must_use]
pub fn words(coverage: &Coverage) -> String {
    let Coverage { samples, complete, java, truncated } = *coverage;
    if samples == 0 {
        return "no samples".into();
    }
    let mut line = format!(
        "{} samples, {} with complete stacks",
        units::count(samples as f64),
        units::percent(complete, samples)
    );
    for (part, words) in [(java, "up to Java code"), (truncated, "truncated")] {
        if part > 0 {
            line += &format!(", {} {words}", units::percent(part, samples));
        }
    }
    line
}

/// Why stacks are truncated, with numbers of samples, in one line; nothing when none is.
#[must_use]
pub fn truncated_words(profile: &Profile) -> Option<String> {
    let reasons = reasons(profile);
    let word = |&(reason, samples): &(Truncation, u64)| {
        format!("{} ({})", truncation_words(reason), units::count(samples as f64))
    };
    (!reasons.is_empty()).then(|| reasons.iter().map(word).collect::<Vec<_>>().join(", "))
}

/// Numbers of samples with truncated stacks by the reason, most first.
fn reasons(profile: &Profile) -> Vec<(Truncation, u64)> {
    let mut samples: BTreeMap<Truncation, u64> = BTreeMap::new();
    for site in &profile.sites {
        match end_of(&site.stack) {
            // The first counts as Java; how stacks ended that were lost is not known any more.
            Some(Frame::Truncated(Truncation::JavaCode | Truncation::StackLost)) => {}
            Some(Frame::Truncated(reason)) => *samples.entry(reason).or_default() += site.allocated.samples,
            _ => {}
        }
    }
    let mut reasons: Vec<_> = samples.into_iter().collect();
    reasons.sort_by_key(|&(_, samples)| Reverse(samples));
    reasons
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::encode::sample;

    #[test]
    fn truncations_are_told_by_reason() {
        let (mut profile, _) = sample::profile();
        assert_eq!(truncated_words(&profile).unwrap(), "snapshot limit (1)");
        let mut truncate = |site: usize, reason| {
            profile.sites[site].stack = [Frame::Java, Frame::Truncated(reason)].into();
        };
        truncate(0, Truncation::StaleJavaCode);
        assert_eq!(
            truncated_words(&profile).unwrap(),
            "Java code has changed meanwhile (2), snapshot limit (1)"
        );
        let report = serde_json::to_value(CoverageReport::new(&profile)).unwrap();
        let reasons = json!({"Java code has changed meanwhile": 2, "snapshot limit": 1});
        assert_eq!((&report["truncated_by_reason"], &report["samples"]), (&reasons, &json!(4)));
        let mut truncate = |site: usize, reason| {
            profile.sites[site].stack = [Frame::Truncated(reason)].into();
        };
        truncate(0, Truncation::StackLost);
        truncate(1, Truncation::JavaCode);
        assert_eq!(truncated_words(&profile), None);
        let report = serde_json::to_value(CoverageReport::new(&profile)).unwrap();
        assert_eq!(report["truncated_by_reason"], json!({}));
    }
}
