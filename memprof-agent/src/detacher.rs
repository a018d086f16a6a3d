//! Taking probes out beside the work: the kernel waits for grace periods at each, a third of a second for a
//! process, in which probes of others could not be put in.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};

/// A thread that takes probes out.
pub(crate) struct Detacher {
    /// What keeps probes in place, at most once for each process that was ever watched.
    queue: Sender<Box<dyn Send>>,
    thread: JoinHandle<()>,
}

impl Detacher {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self> {
        let (queue, attachments) = channel::<Box<dyn Send>>();
        let thread = std::thread::Builder::new()
            .name("memprof-detach".into())
            .spawn(move || attachments.into_iter().for_each(drop))
            .context("starting the thread that takes probes out")?;
        Ok(Self { queue, thread })
    }

    /// Takes out, soon, the probes that `attached` keeps in place until it is dropped.
    pub(crate) fn detach(&self, attached: impl Send + 'static) {
        // Should the thread be gone, they go right here, with the error.
        let _ = self.queue.send(Box::new(attached));
    }

    /// Waits until all are out.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.queue);
        self.thread.join().map_err(|_| anyhow!("the thread that takes probes out panicked"))
    }
}
