//! Processes that come, become others and go, as far as the event thread is concerned. What must be done about
//! their probes it tells another task.

use std::collections::{HashMap, VecDeque};

use memprof_common::event::{EventHeader, EventKind, ExecEvent, FORK_SHARES_MEMORY, FORK_WATCHED, ForkEvent};
use memprof_core::decode::{Event, decode};
use memprof_core::input::{Input, ProcessInfo, ProcessKey};
use memprof_core::session::Session;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::Intake;
use crate::host::clock::monotonic_ns;
use crate::host::proc_fs;
use crate::probes::FoundAllocator;

/// Most notices that wait to be sent.
const MAX_WAITING_NOTICES: usize = 1 << 16;

/// What the pipeline tells.
pub(crate) enum Notice {
    /// A process has replaced its program.
    Exec {
        /// Its id.
        tgid: u32,
        /// Whether its first thread did it.
        by_leader: bool,
    },
    /// A process maps other code than before.
    Mapped {
        /// Its id.
        tgid: u32,
    },
    /// A watched process has a child that is to be recorded.
    Forked {
        /// The child.
        child: ProcessKey,
        /// Whether it runs in its parent's memory until it executes a program.
        shares_memory: bool,
    },
    /// All events of a process that has ended have been taken in, and those it caused have been told.
    Ended,
}

/// An event after which a process is not what it was, or there is another one.
pub(super) enum Turn {
    /// A process replaces its program.
    Exec {
        /// The event's header.
        header: EventHeader,
        /// Whether it had blocks in the live table before.
        held_blocks: bool,
    },
    /// A process has a child.
    Fork(ForkEvent),
}

impl Turn {
    /// What kind of turn the event in these bytes is, looked at before `session` takes it in.
    pub(super) fn of(bytes: &[u8], session: &Session) -> Option<Self> {
        let kind = bytes.first_chunk().copied().map(u32::from_ne_bytes)?;
        if kind != EventKind::Exec as u32 && kind != EventKind::Fork as u32 {
            return None;
        }
        match decode(bytes).ok()? {
            Event::Exec(ExecEvent { header }) => {
                Some(Self::Exec { header, held_blocks: session.holds_blocks(header.tgid) })
            }
            Event::Fork(event) => Some(Self::Fork(event)),
            _ => None,
        }
    }
}

/// The processes that are watched now, and notices on their way to a receiver that may be busy.
pub(super) struct Lives {
    /// Start times by process id: ids are reused.
    current: HashMap<u32, u64>,
    waiting: VecDeque<Notice>,
    /// Nobody is to be told any more when it is gone.
    sender: Option<mpsc::Sender<Notice>>,
}

impl Lives {
    pub(super) fn new(sender: mpsc::Sender<Notice>) -> Self {
        Self { current: HashMap::new(), waiting: VecDeque::new(), sender: Some(sender) }
    }

    pub(super) fn push(&mut self, notice: Notice) {
        if self.waiting.len() < MAX_WAITING_NOTICES {
            self.waiting.push_back(notice);
        } else {
            log::warn!("processes are started or replaced too fast: some will have no probes");
        }
        self.flush();
    }

    /// Sends what the receiver has room for. One that has gone needs nothing any more.
    pub(super) fn flush(&mut self) {
        while let Some(notice) = self.waiting.pop_front() {
            if let Some(sender) = &self.sender
                && let Err(TrySendError::Full(notice)) = sender.try_send(notice)
            {
                self.waiting.push_front(notice);
                return;
            }
        }
    }

    /// Lets the receiver see that no more comes.
    pub(super) fn close(&mut self) {
        self.sender = None;
    }
}

impl Intake {
    /// A process is watched from now on, or has new facts.
    pub(crate) fn add_process(&mut self, info: ProcessInfo) {
        self.lives.current.insert(info.key.tgid, info.key.start_time);
        self.ingest(Input::Process(info));
    }

    /// An allocator is probed in a process.
    pub(crate) fn add_allocator(&mut self, found: FoundAllocator) {
        let FoundAllocator { tgid, file, path, part } = found;
        // So that its file is known.
        if let Err(error) = self.read_mappings(tgid) {
            log::debug!("mappings of process {tgid}: {error:#}");
        }
        self.ingest(Input::Allocator { file, path, part });
    }

    /// A process has replaced its program: it has a new name and nothing of what it had.
    pub(super) fn exec(&mut self, header: &EventHeader, held_blocks: bool) {
        let EventHeader { tgid, tid, time, .. } = *header;
        self.sources.mappings.remove(&tgid);
        match proc_fs::process_info(tgid.cast_signed()) {
            Ok(info) => self.add_process(info),
            Err(error) => log::debug!("process {tgid} after its exec: {error:#}"),
        }
        if held_blocks {
            self.forget_blocks(tgid, time);
        }
        self.lives.push(Notice::Exec { tgid, by_leader: tid == tgid });
    }

    /// A watched process has a child, which starts with its parent's mappings.
    pub(super) fn forked(&mut self, event: &ForkEvent) {
        if event.flags & FORK_WATCHED == 0 {
            return;
        }
        let ForkEvent { header: EventHeader { tgid: parent, .. }, child, .. } = *event;
        self.inherit_mappings(parent, child);
        if let Some(key) = self.session.running(child) {
            if self.lives.current.insert(child, key.start_time).is_some() {
                // Whose end has not been heard of yet.
                self.forget_blocks(child, event.header.time);
            }
            let shares_memory = event.flags & FORK_SHARES_MEMORY != 0;
            self.lives.push(Notice::Forked { child: key, shares_memory });
        }
    }

    pub(super) fn exited(&mut self, key: ProcessKey) {
        let ProcessKey { tgid, start_time } = key;
        // Another process may have its id already.
        if self.lives.current.get(&tgid) == Some(&start_time) {
            self.lives.current.remove(&tgid);
            self.sources.mappings.remove(&tgid);
            let held_blocks = self.session.holds_blocks(tgid);
            // While its blocks can still be corrected. Many children end without any: for them the tables, which
            // may be large, are left alone.
            if held_blocks && let Err(error) = self.repair_lost_frees(Self::ingest) {
                log::warn!("{error:#}");
            }
            let time = monotonic_ns();
            self.ingest(Input::Exit { tgid, time });
            if held_blocks {
                self.forget_blocks(tgid, time);
            }
        }
        self.lives.push(Notice::Ended);
    }

    /// Makes room in the kernel's live table.
    fn forget_blocks(&mut self, tgid: u32, before: u64) {
        if let Err(error) = self.tables.live.forget(tgid, before) {
            log::warn!("live table after the end of process {tgid} or its program: {error:#}");
        }
    }
}
