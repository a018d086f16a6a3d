//! Children of watched processes.
//!
//! A forked child has a copy of its parent's memory. The blocks in it are shown as *inherited*: what they were
//! at the fork, and not what the child did to them, because their frees are not told from those of blocks that
//! nobody knows. The child's own blocks are seen from the moment at which its probes are in place.

use memprof_common::event::{FORK_SHARES_MEMORY, FORK_WATCHED, ForkEvent};

use super::Session;
use super::watched::Birth;
use crate::estimate::Estimate;
use crate::input::{ProcessInfo, ProcessKey};
use crate::live::ProcessIndex;
use crate::profile::{Child, Children};

/// Nanoseconds of a clock tick in `/proc/PID/stat` (`USER_HZ` is 100 on x86-64).
const TICK: u64 = 10_000_000;

impl Session {
    pub(super) fn fork(&mut self, event: &ForkEvent) {
        let Some(parent) = self.watched.running(event.header.tgid) else {
            self.quality.losses.foreign_events += 1;
            return;
        };
        let time = event.header.time;
        self.advance(time);
        if event.flags & FORK_WATCHED == 0 {
            self.quality.children_not_recorded += 1;
            return;
        }
        let key = ProcessKey { tgid: event.child, start_time: event.start_time / TICK };
        let info = ProcessInfo { key, ..self.watched.life(parent).info.clone() };
        let inherited = match event.flags & FORK_SHARES_MEMORY {
            0 => self.held_by(parent),
            _ => Estimate::default(),
        };
        self.watched.describe(info.clone(), time);
        self.table.add_child(info, event.header.tgid);
        if let Some(life) = self.watched.current_mut(event.child) {
            life.birth = Some(Birth { parent, forked_at: time, inherited, probes_at: None });
        }
    }

    /// Everything that a process has in use.
    fn held_by(&self, process: ProcessIndex) -> Estimate {
        let mut sum = Estimate::default();
        for (.., estimate) in self.live_blocks().filter(|(_, holder, ..)| *holder == process) {
            sum += estimate;
        }
        sum
    }

    pub(super) fn probes_in_place(&mut self, tgid: u32, time: u64) {
        let birth = self.watched.current_mut(tgid).and_then(|life| life.birth.as_mut());
        if let Some(birth) = birth {
            birth.probes_at.get_or_insert(time);
        }
    }

    pub(super) fn children(&self) -> Children {
        let lives = self.watched.lives().iter().enumerate();
        let recorded = lives.filter_map(|(process, life)| {
            let Birth { parent, forked_at, inherited, probes_at } = life.birth?;
            Some(Child { process, parent: parent.0 as usize, forked_at, inherited, probes_at })
        });
        Children { recorded: recorded.collect(), not_recorded: self.quality.children_not_recorded }
    }
}
