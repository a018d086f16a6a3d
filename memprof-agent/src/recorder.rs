//! Writing a recording beside the work: the thread that drains the ring never waits for a disk.
//!
//! Inputs go through a bounded queue to a writer thread. When the disk cannot follow they are
//! dropped and counted, and the recording says at its end that it is incomplete.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use memprof_core::input::Input;
use memprof_core::recording::RecordingWriter;

use crate::output::OpenOutput;
use crate::pipeline::raise_priority;

/// Most inputs on their way to the writer: so many that, with small events too, the bytes are the bound.
const MAX_QUEUED_INPUTS: usize = 1 << 18;
/// Most bytes of events on their way to the writer (128 MiB).
const MAX_QUEUED_BYTES: usize = 128 << 20;

/// A recording being written.
pub(crate) struct Recorder {
    output: OpenOutput,
    queue: SyncSender<Input<'static>>,
    queued_bytes: Arc<AtomicUsize>,
    lost: u64,
    writer: JoinHandle<Result<()>>,
}

impl Recorder {
    /// Starts the writer.
    pub(crate) fn start(output: OpenOutput) -> Result<Self> {
        let file = output.writer()?;
        let (queue, inputs) = sync_channel(MAX_QUEUED_INPUTS);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let writer = std::thread::Builder::new()
            .name("memprof-record".into())
            .spawn({
                let queued_bytes = Arc::clone(&queued_bytes);
                move || {
                    raise_priority();
                    write_all(file, &inputs, &queued_bytes)
                }
            })
            .context("starting the recording's writer thread")?;
        Ok(Self { output, queue, queued_bytes, lost: 0, writer })
    }

    /// Queues one input, or counts it as lost.
    pub(crate) fn record(&mut self, input: Input<'static>) {
        let bytes = event_bytes(&input);
        if self.queued_bytes.load(Ordering::Relaxed) + bytes > MAX_QUEUED_BYTES {
            self.lost += 1;
            return;
        }
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        match self.queue.try_send(input) {
            Ok(()) => {}
            // A writer that has ended has an error to tell, in `finish`.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.lost += 1;
            }
        }
    }

    /// Inputs lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Queues what must not be lost, waiting for room; for the few inputs after the run.
    pub(crate) fn record_surely(&self, input: Input<'static>) {
        self.queued_bytes.fetch_add(event_bytes(&input), Ordering::Relaxed);
        // A writer that has ended has an error to tell, in `finish`.
        let _ = self.queue.send(input);
    }

    /// Waits until everything is on disk.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.queue);
        let path = self.output.path().display().to_string();
        self.writer
            .join()
            .map_err(|_| anyhow!("the recording's writer thread panicked"))?
            .with_context(|| format!("writing {path}"))?;
        self.output.finish();
        Ok(())
    }
}

fn write_all(file: File, inputs: &Receiver<Input<'static>>, queued_bytes: &AtomicUsize) -> Result<()> {
    let mut writer = RecordingWriter::new(BufWriter::new(file))?;
    for input in inputs {
        queued_bytes.fetch_sub(event_bytes(&input), Ordering::Relaxed);
        writer.write(&input)?;
    }
    writer.finish()?;
    Ok(())
}

/// What an input weighs in the queue: events make up nearly all of it.
fn event_bytes(input: &Input<'_>) -> usize {
    match input {
        Input::Event(bytes) => bytes.len(),
        _ => 0,
    }
}
