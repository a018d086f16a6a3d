//! What stands above every profile: totals, coverage, losses and limits, each in one line.

use memprof_common::counter::Counter;

use super::{losses, units};
use crate::estimate::Estimate;
use crate::input::ProcessInfo;
use crate::profile::{Coverage, Losses, Profile, Site, ValueKind};

/// What no profile of a running process can know.
pub const NOT_INCLUDED: &str = "Memory allocated before the start of the recording is not included.";

/// A process for people: `leak (pid 12)`. A command name may hold any bytes; terminals and XML may not.
#[must_use]
pub fn process(process: &ProcessInfo) -> String {
    format!("{} (pid {})", process.comm.replace(char::is_control, "?"), process.key.tgid)
}

/// The watched processes: `leak (pid 12)`, or how many they are.
#[must_use]
pub fn processes(profile: &Profile) -> String {
    match profile.processes.as_slice() {
        [] => "no process".into(),
        [single] => process(single),
        processes => format!("{} processes", processes.len()),
    }
}

/// `every block` or the mean number of bytes between two samples.
#[must_use]
pub fn sampling(profile: &Profile) -> String {
    match profile.run.sample_interval {
        0 => "no sampling".into(),
        1 => "every block".into(),
        interval => format!("sampled every {}", units::bytes(interval as f64)),
    }
}

/// Bytes and blocks of an estimate with their errors: `1.0 MiB ± 10.0 KiB in 12 ± 2 blocks`.
#[must_use]
pub fn estimate(estimate: &Estimate) -> String {
    let blocks = if estimate.objects.round() == 1.0 { "block" } else { "blocks" };
    format!("{} in {} {blocks}", bytes_with_error(estimate), objects_with_error(estimate))
}

/// Bytes of an estimate with their error, when there is one.
#[must_use]
pub fn bytes_with_error(estimate: &Estimate) -> String {
    let bytes = units::bytes(estimate.bytes);
    if estimate.bytes_variance > 0.0 {
        format!("{bytes} ± {}", units::bytes(estimate.bytes_error()))
    } else {
        bytes
    }
}

/// Blocks of an estimate with their error, when there is one.
#[must_use]
pub fn objects_with_error(estimate: &Estimate) -> String {
    let objects = units::count(estimate.objects);
    if estimate.objects_variance > 0.0 {
        format!("{objects} ± {}", units::count(estimate.objects_error()))
    } else {
        objects
    }
}

/// How the stacks ended, in one line.
#[must_use]
pub fn coverage(coverage: &Coverage) -> String {
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

/// The losses that occurred by name and number, in one line: `no losses` in a perfect run.
#[must_use]
pub fn losses_in_short(losses: &Losses) -> String {
    let occurred: Vec<String> =
        losses::named(losses).iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if occurred.is_empty() { "no losses".into() } else { format!("losses: {}", occurred.join(", ")) }
}

/// Every fact about the profile as a whole, one per line.
#[must_use]
pub fn lines(profile: &Profile) -> Vec<String> {
    let totals = profile.totals();
    let mut lines = vec![
        format!("in use: {}", estimate(&totals.in_use)),
        format!("allocated: {}", estimate(&totals.allocated)),
        format!("stacks: {}", coverage(&profile.coverage)),
    ];
    lines.extend(losses::sentences(&profile.losses).into_iter().map(|loss| format!("lost: {loss}")));
    match (profile.ended.len(), profile.processes.len()) {
        (0, _) => {}
        (1, 1) => lines.push("The process has ended: in use is what it held at its end.".into()),
        (ended, all) => {
            lines.push(format!(
                "{ended} of {all} processes have ended: in use is what they held at their end."
            ));
        }
    }
    lines.push(NOT_INCLUDED.into());
    lines
}

/// Why a profile shows nothing for `kind`; `None` when it shows something.
#[must_use]
pub fn why_empty(profile: &Profile, kind: ValueKind) -> Option<String> {
    if profile.sites.iter().any(|site: &Site| kind.of(site).round() > 0.0) {
        return None;
    }
    let samples = profile.coverage.samples;
    let calls = profile.losses.kernel(Counter::AllocCalls);
    Some(if samples > 0 && kind.is_in_use() {
        format!(
            "none of the {} sampled allocations is in use: all have been freed, or are younger than the \
             minimum age; alloc_space shows where they were made",
            units::count(samples as f64)
        )
    } else if samples > 0 {
        "all sampled allocations have size 0".into()
    } else if profile.losses.kernel(Counter::Sampled) > 0 {
        format!("all sampled allocations failed or were lost ({})", losses_in_short(&profile.losses))
    } else if calls > 0 {
        format!(
            "{} allocator calls were seen but none was sampled: use a smaller --sample-interval or a \
             longer --duration",
            units::count(calls as f64)
        )
    } else {
        "no allocator call was seen: the program allocated nothing during the recording, or does not use \
         the allocator that was probed"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::sample;

    #[test]
    fn lines_state_totals_errors_and_limits() {
        let (mut profile, _) = sample::profile();
        let lines_of = lines(&profile).join("\n");
        assert!(lines_of.starts_with("in use: 5.1 KiB ± 6.8 KiB in 6 ± 7 blocks\n"), "{lines_of}");
        assert!(
            lines_of
                .contains("4 samples, 50.0 % with complete stacks, 25.0 % up to Java code, 25.0 % truncated")
        );
        assert!(!lines_of.contains("lost:"));
        assert!(lines_of.ends_with(NOT_INCLUDED));
        profile.losses.kernel[Counter::RingFullAllocs as usize] = 3;
        profile.ended = vec![0];
        let lines_of = lines(&profile).join("\n");
        assert!(lines_of.contains("lost: 3 sampled allocations"), "{lines_of}");
        assert!(lines_of.contains("1 of 2 processes have ended"), "{lines_of}");
        assert_eq!(losses_in_short(&profile.losses), "losses: ring_full_allocs 3");
    }

    #[test]
    fn an_empty_profile_says_why() {
        let (mut profile, _) = sample::profile();
        assert_eq!(why_empty(&profile, ValueKind::InuseSpace), None);
        for site in &mut profile.sites {
            site.in_use = Estimate::default();
        }
        assert!(why_empty(&profile, ValueKind::InuseSpace).unwrap().contains("4 sampled allocations"));
        assert_eq!(why_empty(&profile, ValueKind::AllocSpace), None);
        profile.sites.clear();
        profile.coverage = Coverage::default();
        assert!(why_empty(&profile, ValueKind::AllocSpace).unwrap().starts_with("no allocator call"));
        profile.losses.kernel[Counter::AllocCalls as usize] = 5;
        assert!(why_empty(&profile, ValueKind::AllocSpace).unwrap().contains("none was sampled"));
        profile.losses.kernel[Counter::Sampled as usize] = 5;
        assert!(why_empty(&profile, ValueKind::AllocSpace).unwrap().contains("lost"));
    }
}
