//! From a session's state at one moment to a profile.

use std::cmp::Ordering;

use memprof_common::sampling::CERTAIN;
use rustc_hash::FxHashSet;

use super::Session;
use crate::estimate::Estimate;
use crate::live::{ProcessIndex, SiteId};
use crate::profile::{Ages, Coverage, ModuleFacts, Profile, Site};
use crate::stack::{Frame, Truncation, end_of};
use crate::trend::{Chance, Point, Trend, second_half};

impl Session {
    /// What is known now, that is at the end of the run if it has come and at the newest input
    /// otherwise. Blocks younger than `min_age` nanoseconds do not count as in use.
    #[must_use]
    pub fn snapshot(&self, min_age: u64) -> Profile {
        let lives = self.watched.lives();
        let live = self.live_by_site(min_age);
        let allocators_own = self.allocators_own();
        Profile {
            run: self.run.clone(),
            taken_at: self.clock.now(),
            processes: lives.iter().map(|life| life.info.clone()).collect(),
            ended: (0..lives.len()).filter(|&i| lives[i].ended_at.is_some()).collect(),
            children: self.children(),
            modules: self.table.modules().iter().map(|module| ModuleFacts::of(&module.image)).collect(),
            methods: self.methods.clone(),
            threads: self.threads.clone().unwrap_or_default(),
            sites: self.sites_in_order(&live, &allocators_own),
            trend: self.total_trend(&live),
            coverage: self.coverage_without(&allocators_own),
            losses: self.quality.losses,
            events: self.quality.events.clone(),
            figures: self.quality.figures.clone(),
        }
    }

    fn sites_in_order(&self, live: &[Live], left_out: &FxHashSet<SiteId>) -> Vec<Site> {
        let mut sites: Vec<Site> = self
            .sites
            .iter()
            .zip(self.sites.kinds())
            .zip(live)
            .enumerate()
            .filter(|(index, _)| !left_out.contains(&SiteId(*index as u32)))
            .map(|(index, (((process, stack, allocated), kinds), live))| Site {
                process: process.0 as usize,
                stack: stack.clone(),
                kinds: kinds.into(),
                allocated,
                trend: self.site_trend(index, process, live),
                growth: self.past.window.growth(index, live.all.bytes),
                in_use: live.in_use,
                ages: live.ages,
            })
            .collect();
        sites.sort_unstable_by(largest_first);
        sites
    }

    /// How the stacks ended, those of the sites `left_out` not counted.
    fn coverage_without(&self, left_out: &FxHashSet<SiteId>) -> Coverage {
        let mut coverage = self.quality.coverage;
        for (site, (_, stack, allocated)) in (0..).map(SiteId).zip(self.sites.iter()) {
            if left_out.contains(&site) {
                let samples = allocated.samples;
                coverage.samples -= samples;
                match end_of(stack) {
                    Some(Frame::Java) => coverage.java -= samples,
                    Some(Frame::Truncated(Truncation::JavaCode)) => coverage.java -= samples,
                    Some(Frame::Truncated(_)) => coverage.truncated -= samples,
                    _ => coverage.complete -= samples,
                }
            }
        }
        coverage
    }

    /// Bytes in use by site.
    pub(super) fn in_use_bytes(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.sites.iter().len()];
        for (site, _, _, estimate) in self.live_blocks() {
            sums[site.0 as usize] += estimate.bytes;
        }
        sums
    }

    fn live_by_site(&self, min_age: u64) -> Vec<Live> {
        let mut sums = vec![Live::default(); self.sites.iter().len()];
        let now = self.clock.now();
        let half = second_half(self.run.started_at, now);
        for (site, process, allocated_at, estimate) in self.live_blocks() {
            let live = &mut sums[site.0 as usize];
            live.all += estimate;
            if allocated_at < half {
                live.kept += estimate.bytes;
            }
            let seen_at = self.watched.life(process).ended_at.unwrap_or(now);
            let age = seen_at.saturating_sub(allocated_at);
            if age >= min_age {
                live.in_use += estimate;
                Ages::add(&mut live.ages, age, estimate);
            }
        }
        sums
    }

    /// Everything in use: site, process, time of allocation, and what it stands for. What an allocator has
    /// mapped for its blocks is left out.
    pub(super) fn live_blocks(&self) -> impl Iterator<Item = (SiteId, ProcessIndex, u64, Estimate)> {
        let blocks = self.live.iter().map(|(key, block)| {
            let estimate = Estimate::of_block(block.size, block.probability);
            (block.site, key.process, key.allocated_at, estimate)
        });
        let allocators_own = self.allocators_own();
        let mapped =
            self.maps.mapped.in_use().filter(move |(_, call, _)| !allocators_own.contains(&call.site));
        blocks.chain(mapped.map(|(process, call, bytes)| {
            (call.site, process, call.made_at, Estimate::of_block(bytes, CERTAIN))
        }))
    }

    /// How a site's memory moves; not said of a process that has ended, where nothing moves any more.
    fn site_trend(&self, site: usize, process: ProcessIndex, live: &Live) -> Option<Trend> {
        let is_running = self.watched.life(process).ended_at.is_none();
        is_running.then(|| self.trend(&self.past.history.of_site(site), live)).flatten()
    }

    /// How the memory of all sites moves; not said when a process has ended on the way.
    fn total_trend(&self, live: &[Live]) -> Option<Trend> {
        let mut total = Live::default();
        for live in live {
            total.all += live.all;
            total.kept += live.kept;
        }
        let all_run = self.watched.lives().iter().all(|life| life.ended_at.is_none());
        all_run.then(|| self.trend(&self.past.history.of_all(), &total)).flatten()
    }

    fn trend(&self, points: &[Point], live: &Live) -> Option<Trend> {
        let variance_per_byte =
            if live.all.bytes > 0.0 { live.all.bytes_variance / live.all.bytes } else { 0.0 };
        Trend::of(self.run.started_at, points, Chance { variance_per_byte, kept: live.kept })
    }
}

/// What is in use of one site.
#[derive(Clone, Default)]
struct Live {
    /// Whatever its age.
    all: Estimate,
    /// What is old enough.
    in_use: Estimate,
    /// Ages of what is old enough.
    ages: Option<Ages>,
    /// Bytes allocated in the first half of the run.
    kept: f64,
}

/// What has grown comes first where that was asked. A total order, so that the same state always prints the same: a process and a stack make one site.
fn largest_first(a: &Site, b: &Site) -> Ordering {
    let growth = |site: &Site| site.growth.unwrap_or(0.0);
    (growth(b).total_cmp(&growth(a)))
        .then_with(|| b.in_use.bytes.total_cmp(&a.in_use.bytes))
        .then_with(|| b.allocated.bytes.total_cmp(&a.allocated.bytes))
        .then_with(|| a.process.cmp(&b.process))
        .then_with(|| a.stack.cmp(&b.stack))
}
