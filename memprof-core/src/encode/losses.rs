//! Losses by name for programs, and in words for people: what each means and what to do about it.

use memprof_common::counter::Counter;

use super::units;
use crate::profile::Losses;

/// All losses by name, in a fixed order. All values are zero in a perfect run.
#[must_use]
pub fn named(losses: &Losses) -> [(&'static str, u64); 24] {
    let kernel = |counter| losses.kernel(counter);
    [
        ("ring_full_allocs", kernel(Counter::RingFullAllocs)),
        ("ring_full_bytes", kernel(Counter::RingFullBytes)),
        ("live_table_full_allocs", kernel(Counter::LiveTableFullAllocs)),
        ("live_table_full_bytes", kernel(Counter::LiveTableFullBytes)),
        ("ring_full_frees", kernel(Counter::RingFullFrees)),
        ("in_flight_full", kernel(Counter::InFlightFull)),
        ("return_missed", kernel(Counter::ReturnMissed)),
        ("unsafe_returns", kernel(Counter::UnsafeReturns)),
        ("free_missed", kernel(Counter::FreeMissed)),
        ("ring_full_execs", kernel(Counter::RingFullExecs)),
        ("ring_full_forks", kernel(Counter::RingFullForks)),
        ("ring_full_maps", kernel(Counter::RingFullMaps)),
        ("ring_full_map_bytes", kernel(Counter::RingFullMapBytes)),
        ("stack_unreadable", kernel(Counter::StackUnreadable)),
        ("undecodable_events", losses.undecodable_events),
        ("foreign_events", losses.foreign_events),
        ("unknown_frees", losses.unknown_frees),
        ("repaired_frees", losses.repaired_frees),
        ("recording_lost", losses.recording_lost),
        ("run_events_left_out", losses.run_events_left_out),
        ("thinned_by_mistake", losses.thinned_by_mistake),
        ("stacks_lost", losses.stacks_lost),
        ("thread_names_lost", losses.thread_names_lost),
        ("maps_not_tracked", losses.maps_not_tracked),
    ]
}

/// The losses that occurred, one sentence each.
#[must_use]
pub fn sentences(losses: &Losses) -> Vec<String> {
    let kernel = |counter| losses.kernel(counter);
    let bytes = |counter| units::bytes(losses.kernel(counter) as f64);
    let ring_full_bytes = bytes(Counter::RingFullBytes);
    let ring_full_map_bytes = bytes(Counter::RingFullMapBytes);
    let table_full_bytes = bytes(Counter::LiveTableFullBytes);
    let sentence = |n: u64, what: &str| (n > 0).then(|| format!("{} {what}", units::count(n as f64)));
    [
        sentence(
            kernel(Counter::RingFullAllocs),
            &format!(
                "sampled allocations (about {ring_full_bytes}) were dropped because the event ring was \
                 full: all figures are too low; use a larger --ring-size or --sample-interval"
            ),
        ),
        sentence(
            kernel(Counter::LiveTableFullAllocs),
            &format!(
                "sampled allocations (about {table_full_bytes}) were not tracked because the live table \
                 was full: all figures are too low; use a larger --memory-budget or --sample-interval"
            ),
        ),
        sentence(
            kernel(Counter::RingFullFrees),
            &format!(
                "frees were dropped because the event ring was full, {} blocks were freed later by \
                 comparison with the kernel's table: use a larger --ring-size or --sample-interval",
                units::count(losses.repaired_frees as f64)
            ),
        ),
        sentence(
            if kernel(Counter::RingFullFrees) == 0 { losses.repaired_frees } else { 0 },
            "blocks were freed by comparison with the kernel's table because their free was not seen: \
             their bytes are right again",
        ),
        sentence(
            kernel(Counter::InFlightFull),
            "sampled calls were dropped because too many were in progress at once: all figures are too \
             low; use a larger --memory-budget, which makes room for more",
        ),
        sentence(
            kernel(Counter::ReturnMissed),
            "allocator calls were never seen to return (a thread ended or jumped out of them): what \
             they allocated is missing",
        ),
        sentence(
            kernel(Counter::UnsafeReturns),
            "calls of operator new asked for so much that they may throw, which no return probe survives: \
             what they allocated, if anything, is missing",
        ),
        sentence(
            kernel(Counter::FreeMissed),
            "blocks were freed without being seen, noticed when their address was handed out again: \
             other blocks freed this way may still count as in use",
        ),
        sentence(
            kernel(Counter::RingFullExecs),
            "program changes (exec) were dropped because the event ring was full: memory of the old \
             program may still count as in use; use a larger --ring-size",
        ),
        sentence(
            kernel(Counter::RingFullForks),
            "forks were dropped because the event ring was full: children are missing; use a larger --ring-size",
        ),
        sentence(
            kernel(Counter::RingFullMaps),
            &format!(
                "memory map calls (mapping {ring_full_map_bytes}) were dropped because the event ring was full: \
                 maps are missing or still count as in use; use a larger --ring-size"
            ),
        ),
        sentence(
            kernel(Counter::StackUnreadable),
            "copied stacks have parts that were not in memory; where a frame was in one of them, the stack \
             says that it is truncated, and its bytes are right",
        ),
        sentence(
            losses.undecodable_events,
            "events could not be decoded: what they said is missing; agent and probes, or the \
             recording, do not fit together",
        ),
        sentence(
            losses.foreign_events,
            "events came from processes that were not watched, or no longer: they are left out",
        ),
        sentence(
            losses.unknown_frees,
            "frees named blocks that were not in the live table (from before an exec, or their \
             allocation was lost): they changed nothing",
        ),
        sentence(
            losses.thinned_by_mistake,
            "blocks were dropped while the live table was thinned, because their addresses had just been \
             handed out again: figures in use are too low by them",
        ),
        sentence(
            losses.stacks_lost,
            "samples have no stack, because there was no room for more different ones: their bytes are \
             under [stack lost]; use a larger --memory-budget or --sample-interval",
        ),
        sentence(
            losses.thread_names_lost,
            "samples are under [other threads], because there was no room for more different names",
        ),
        sentence(
            losses.maps_not_tracked,
            "memory map calls were not tracked because so many ranges were already: in use is too low",
        ),
        sentence(losses.run_events_left_out, "events of the run are not listed, because they were too many"),
        sentence(
            losses.recording_lost,
            "inputs are missing from the recording (its writer was too slow or failed, or they were too \
             large): a replay is incomplete; record to a faster disk or use a larger --sample-interval",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_losses_that_occurred_are_told() {
        assert!(sentences(&Losses::default()).is_empty());
        let mut losses = Losses::default();
        losses.kernel[Counter::AllocCalls as usize] = 1_000_000;
        losses.kernel[Counter::Nested as usize] = 10;
        assert!(sentences(&losses).is_empty(), "events that are no losses are not told");
        losses.kernel[Counter::LiveTableFullAllocs as usize] = 9000;
        losses.kernel[Counter::LiveTableFullBytes as usize] = 9000 << 10;
        let told = sentences(&losses);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("9,000 sampled allocations (about 8.8 MiB)"), "{told:?}");
    }

    #[test]
    fn every_loss_has_a_name_and_words() {
        let losses = Losses {
            kernel: [5; Counter::COUNT],
            undecodable_events: 5,
            foreign_events: 5,
            unknown_frees: 5,
            repaired_frees: 5,
            recording_lost: 5,
            run_events_left_out: 5,
            thinned_by_mistake: 5,
            stacks_lost: 5,
            thread_names_lost: 5,
            maps_not_tracked: 5,
        };
        assert!(named(&losses).iter().all(|&(_, n)| n == 5));
        assert_eq!(sentences(&losses).len(), 20);
    }
}
