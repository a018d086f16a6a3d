//! Which processes are watched, and which life of a process id an event belongs to.

use rustc_hash::FxHashMap;

use crate::estimate::Estimate;
use crate::input::ProcessInfo;
use crate::live::ProcessIndex;

/// One life of a process id.
#[derive(Debug)]
pub(super) struct Life {
    /// Its facts, those after its last exec.
    pub(super) info: ProcessInfo,
    /// `CLOCK_MONOTONIC` nanoseconds at its end, once it has ended.
    pub(super) ended_at: Option<u64>,
    /// Where it comes from, when another watched process started it.
    pub(super) birth: Option<Birth>,
}

/// How a child came to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    /// Its parent.
    pub(super) parent: ProcessIndex,
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub(super) forked_at: u64,
    /// What the parent had in use, unless an exec has dropped the copy of it.
    pub(super) inherited: Estimate,
    /// When the child's probes were in place.
    pub(super) probes_at: Option<u64>,
}

/// Every process that is or was watched, in the order in which it came.
#[derive(Debug, Default)]
pub(super) struct Watched {
    lives: Vec<Life>,
    current: FxHashMap<u32, ProcessIndex>,
}

impl Watched {
    /// Takes in the facts of a process: of a new one, or of a known one after an exec. Another
    /// process with the same id is over by then; `now` becomes its end.
    pub(super) fn describe(&mut self, info: ProcessInfo, now: u64) {
        let tgid = info.key.tgid;
        if let Some(&ProcessIndex(index)) = self.current.get(&tgid) {
            let life = &mut self.lives[index as usize];
            if life.info.key == info.key {
                life.info = info;
                return;
            }
            life.ended_at = Some(now);
        }
        let index = u32::try_from(self.lives.len()).expect("fewer than 2^32 processes are watched");
        self.lives.push(Life { info, ended_at: None, birth: None });
        self.current.insert(tgid, ProcessIndex(index));
    }

    /// The life that the running process with this id has, to be changed.
    pub(super) fn current_mut(&mut self, tgid: u32) -> Option<&mut Life> {
        let &ProcessIndex(index) = self.current.get(&tgid)?;
        self.lives.get_mut(index as usize)
    }

    /// The running process with this id.
    pub(super) fn running(&self, tgid: u32) -> Option<ProcessIndex> {
        self.current.get(&tgid).copied()
    }

    /// Marks the running process with this id as ended. Whether there was one.
    pub(super) fn end(&mut self, tgid: u32, time: u64) -> bool {
        let Some(ProcessIndex(index)) = self.current.remove(&tgid) else { return false };
        self.lives[index as usize].ended_at = Some(time);
        true
    }

    /// A process by index.
    pub(super) fn life(&self, index: ProcessIndex) -> &Life {
        &self.lives[index.0 as usize]
    }

    /// All processes by index.
    pub(super) fn lives(&self) -> &[Life] {
        &self.lives
    }
}
