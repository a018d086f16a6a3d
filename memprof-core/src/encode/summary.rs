//! What stands above every profile: totals, coverage, losses and limits, each in one line.

use memprof_common::counter::Counter;

use super::{coverage, figures, losses, units};
use crate::estimate::Estimate;
use crate::input::ProcessInfo;
use crate::profile::{Child, Losses, Profile, Site, Trend, ValueKind};

/// What no profile of a running process can know.
pub const NOT_INCLUDED: &str = "Memory allocated before the start of the recording is not included.";

/// Children with inherited blocks that are told one by one.
const CHILDREN_TOLD: usize = 10;

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

/// The losses that occurred by name and number, in one line: `no losses` in a perfect run.
#[must_use]
pub fn losses_in_short(losses: &Losses) -> String {
    let occurred: Vec<String> =
        losses::named(losses).iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if occurred.is_empty() { "no losses".into() } else { format!("losses: {}", occurred.join(", ")) }
}

/// How the sites with memory in use move, in one line; nothing when the run is too short to tell.
#[must_use]
pub fn movement(profile: &Profile) -> Option<String> {
    let trends: Vec<Trend> =
        profile.sites.iter().filter(|site| site.in_use.samples > 0).filter_map(|site| site.trend).collect();
    let rate: f64 =
        trends.iter().filter_map(|trend| trend.bytes_per_second()).filter(|&rate| rate > 0.0).sum();
    let parts: Vec<String> = ["growing", "shrinking", "steady", "varying"]
        .into_iter()
        .filter_map(|name| {
            let sites = trends.iter().filter(|trend| trend.name() == name).count();
            let together = if name == "growing" {
                format!(" by {}/s together", units::bytes(rate))
            } else {
                String::new()
            };
            (sites > 0).then(|| format!("{} {name}{together}", units::count(sites as f64)))
        })
        .collect();
    let total = profile.trend.map_or_else(String::new, |trend| format!("{} in total; ", trend.name()));
    (!parts.is_empty()).then(|| format!("movement: {total}sites: {}", parts.join(", ")))
}

/// Every fact about the profile as a whole, one per line.
#[must_use]
pub fn lines(profile: &Profile) -> Vec<String> {
    let totals = profile.totals();
    let mut lines = vec![
        format!("in use: {}", estimate(&totals.in_use)),
        format!("allocated: {}", estimate(&totals.allocated)),
        format!("stacks: {}", coverage::words(&profile.coverage)),
    ];
    lines.extend(coverage::truncated_words(profile).map(|reasons| format!("truncated: {reasons}")));
    lines.extend(movement(profile));
    lines.extend(losses::sentences(&profile.losses).into_iter().map(|loss| format!("lost: {loss}")));
    lines.extend(profile.events.iter().map(|event| {
        let at = event.time.saturating_sub(profile.run.started_at);
        format!("at {}: {}", units::duration(at), event.kind)
    }));
    match (profile.ended.len(), profile.processes.len()) {
        (0, _) => {}
        (1, 1) => lines.push("The process has ended: in use is what it held at its end.".into()),
        (ended, all) => {
            lines.push(format!(
                "{ended} of {all} processes have ended: in use is what they held at their end."
            ));
        }
    }
    lines.extend(children(profile));
    if profile.run.scope.maps {
        lines.push("Memory that the program maps itself (mmap, mremap, brk) is included.".into());
    }
    lines.extend(profile.figures.iter().flat_map(figures::lines));
    lines.push(NOT_INCLUDED.into());
    lines
}

/// What is to be said of children: of each that inherited blocks, and of those that were not recorded.
fn children(profile: &Profile) -> Vec<String> {
    let with_copies: Vec<&Child> =
        profile.children.recorded.iter().filter(|child| child.inherited.samples > 0).collect();
    let mut lines: Vec<String> = with_copies
        .iter()
        .take(CHILDREN_TOLD)
        .map(|child| {
            let recorded = match child.probes_at {
                Some(time) => format!("its own are seen from {} on", since_start(profile, time)),
                None => "it ended before its own could be seen".into(),
            };
            format!(
                "{} inherited {} from {} at {}: what became of them there is not known; {recorded}",
                process(&profile.processes[child.process]),
                estimate(&child.inherited),
                process(&profile.processes[child.parent]),
                since_start(profile, child.forked_at)
            )
        })
        .collect();
    if with_copies.len() > CHILDREN_TOLD {
        lines.push(format!("{} more children inherited blocks", with_copies.len() - CHILDREN_TOLD));
    }
    let left_out = units::count(profile.children.not_recorded as f64);
    match (profile.children.not_recorded, profile.run.scope.children) {
        (0, _) => {}
        (_, false) => lines
            .push(format!("Child processes started and not recorded: {left_out}; --children records them.")),
        (_, true) => lines
            .push(format!("Child processes not recorded because too many were watched at once: {left_out}.")),
    }
    lines
}

/// How far into the run a moment is.
fn since_start(profile: &Profile, time: u64) -> String {
    units::duration(time.saturating_sub(profile.run.started_at))
}

/// Why a profile shows nothing for `kind`; `None` when it shows something.
#[must_use]
pub fn why_empty(profile: &Profile, kind: ValueKind) -> Option<String> {
    if profile.sites.iter().any(|site: &Site| kind.of(site).round() > 0.0) {
        return None;
    }
    let samples = profile.coverage.samples;
    let calls = profile.losses.kernel(Counter::AllocCalls);
    Some(if samples > 0 && kind == ValueKind::InuseGrowth {
        "no site has grown since the moment that was asked for".into()
    } else if samples > 0 && kind.is_in_use() {
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
    use crate::profile::Coverage;

    #[test]
    fn lines_state_totals_errors_and_limits() {
        let (mut profile, _) = sample::profile();
        let lines_of = lines(&profile).join("\n");
        assert!(lines_of.starts_with("in use: 5.1 KiB ± 6.8 KiB in 6 ± 7 blocks\n"), "{lines_of}");
        assert!(
            lines_of
                .contains("4 samples, 50.0 % with complete stacks, 25.0 % up to Java code, 25.0 % truncated")
        );
        assert!(lines_of.contains("25.0 % truncated\ntruncated: snapshot limit (1)\n"), "{lines_of}");
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
