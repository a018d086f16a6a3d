//! From a session's state at one moment to a profile.

use std::cmp::Ordering;

use super::Session;
use crate::estimate::Estimate;
use crate::profile::{Ages, ModuleFacts, Profile, Site};

impl Session {
    /// What is known now, that is at the end of the run if it has come and at the newest input
    /// otherwise. Blocks younger than `min_age` nanoseconds do not count as in use.
    #[must_use]
    pub fn snapshot(&self, min_age: u64) -> Profile {
        let lives = self.watched.lives();
        Profile {
            run: self.run.clone(),
            taken_at: self.clock.now(),
            processes: lives.iter().map(|life| life.info.clone()).collect(),
            ended: (0..lives.len()).filter(|&i| lives[i].ended_at.is_some()).collect(),
            modules: self.table.modules().iter().map(|module| ModuleFacts::of(&module.image)).collect(),
            sites: self.sites_in_order(min_age),
            coverage: self.coverage,
            losses: self.losses,
        }
    }

    fn sites_in_order(&self, min_age: u64) -> Vec<Site> {
        let in_use = self.in_use_by_site(min_age);
        let mut sites: Vec<Site> = self
            .sites
            .iter()
            .zip(in_use)
            .map(|((process, stack, allocated), (in_use, ages))| Site {
                process: process.0 as usize,
                stack: stack.clone(),
                allocated,
                in_use,
                ages,
            })
            .collect();
        sites.sort_unstable_by(largest_first);
        sites
    }

    fn in_use_by_site(&self, min_age: u64) -> Vec<(Estimate, Option<Ages>)> {
        let mut sums = vec![(Estimate::default(), None); self.sites.iter().len()];
        let now = self.clock.now();
        for (key, block) in self.live.iter() {
            let seen_at = self.watched.life(key.process).ended_at.unwrap_or(now);
            let age = seen_at.saturating_sub(key.allocated_at);
            if age < min_age {
                continue;
            }
            let (sum, ages) = &mut sums[block.site.0 as usize];
            *sum += Estimate::of_block(block.size, block.probability);
            let ages = ages.get_or_insert(Ages { oldest: age, youngest: age });
            ages.oldest = ages.oldest.max(age);
            ages.youngest = ages.youngest.min(age);
        }
        sums
    }
}

/// A total order, so that the same state always prints the same: a process and a stack make one site.
fn largest_first(a: &Site, b: &Site) -> Ordering {
    (b.in_use.bytes.total_cmp(&a.in_use.bytes))
        .then_with(|| b.allocated.bytes.total_cmp(&a.allocated.bytes))
        .then_with(|| a.process.cmp(&b.process))
        .then_with(|| a.stack.cmp(&b.stack))
}
