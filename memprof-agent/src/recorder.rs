//! Writing a recording beside the work: the thread that drains the ring never waits for a disk.
//!
//! Inputs go through a bounded queue to a writer thread. When the disk cannot follow they are
//! dropped and counted, as are those that are larger than a record may be, and the recording says at its
//! end that it is incomplete.

use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use memprof_core::input::Input;
use memprof_core::memory::{MemoryRead, MemoryReads};
use memprof_core::recording::{RecordingError, RecordingWriter};

use crate::output::OpenOutput;
use crate::pipeline::raise_priority;
use crate::present;

/// Most inputs on their way to the writer: the bound for small events, of which these are about 10 MiB.
const MAX_QUEUED_INPUTS: usize = 1 << 18;
/// Most bytes on their way to the writer (128 MiB): the bound for events with stacks and all else.
const MAX_QUEUED_BYTES: usize = 128 << 20;

/// A recording being written.
pub(crate) struct Recorder {
    output: OpenOutput,
    queue: SyncSender<Input<'static>>,
    queued_bytes: Arc<AtomicUsize>,
    lost: u64,
    writer: JoinHandle<Result<u64>>,
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
                    write_all(BufWriter::new(file), &inputs, &queued_bytes)
                }
            })
            .context("starting the recording's writer thread")?;
        Ok(Self { output, queue, queued_bytes, lost: 0, writer })
    }

    /// Queues one input, or counts it as lost.
    pub(crate) fn record(&mut self, input: Input<'static>) {
        let bytes = weight(&input);
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
        self.queued_bytes.fetch_add(weight(&input), Ordering::Relaxed);
        // A writer that has ended has an error to tell, in `finish`.
        let _ = self.queue.send(input);
    }

    /// Waits until everything is on disk.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.queue);
        let path = self.output.path().display().to_string();
        let left_out = self
            .writer
            .join()
            .map_err(|_| anyhow!("the recording's writer thread panicked"))?
            .with_context(|| format!("writing {path}"))?;
        if left_out != 0 {
            present::message(&format!("{path}: {left_out} inputs were left out: its replay is incomplete"));
        }
        self.output.finish();
        Ok(())
    }
}

/// Writes all inputs. How many of them were left out because they cannot be recorded; the recording says
/// so, too.
fn write_all(out: impl Write, inputs: &Receiver<Input<'static>>, queued_bytes: &AtomicUsize) -> Result<u64> {
    let mut writer = RecordingWriter::new(out)?;
    let mut left_out = 0;
    for input in inputs {
        queued_bytes.fetch_sub(weight(&input), Ordering::Relaxed);
        match writer.write(&input) {
            Ok(()) => {}
            Err(error @ (RecordingError::TooLarge { .. } | RecordingError::Encode(_))) => {
                log::warn!("{error}");
                left_out += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if left_out != 0 {
        writer.write(&Input::RecordingLost { inputs: left_out })?;
    }
    writer.finish()?;
    Ok(left_out)
}

/// What an input weighs in the queue, in bytes. The others are small and rare.
fn weight(input: &Input<'_>) -> usize {
    match input {
        Input::Event(bytes) => bytes.len(),
        Input::Memory(MemoryReads { reads, .. }) => {
            reads.iter().map(|read| size_of::<MemoryRead>() + read.bytes.len()).sum()
        }
        Input::LiveBlocks(blocks) => size_of_val(blocks.as_slice()),
        Input::Settled { lost } => size_of_val(lost.as_slice()),
        Input::Mappings { text, .. } => text.len(),
        Input::Module(image) => [&image.eh_frame, &image.eh_frame_hdr]
            .into_iter()
            .flatten()
            .map(|section| section.bytes.len())
            .sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use memprof_core::recording::RecordingReader;

    use super::*;

    #[test]
    fn what_is_too_large_is_left_out_and_told() {
        let huge = Input::LiveBlocks(vec![(u32::MAX, u64::MAX, u64::MAX); 3 << 20]);
        let small = [Input::Event(Cow::Owned(vec![7; 40])), Input::Exit { tgid: 7, time: 5 }];
        let (queue, inputs) = sync_channel(3);
        let [event, exit] = small.clone();
        let queued: Vec<_> = [event, huge, exit].into_iter().collect();
        let queued_bytes = AtomicUsize::new(queued.iter().map(weight).sum());
        assert_eq!(queued_bytes.load(Ordering::Relaxed), 40 + 24 * (3 << 20));
        queued.into_iter().for_each(|input| queue.send(input).unwrap());
        drop(queue);
        let mut recording = Vec::new();
        assert_eq!(write_all(&mut recording, &inputs, &queued_bytes).unwrap(), 1);
        assert_eq!(queued_bytes.load(Ordering::Relaxed), 0);
        let read: Vec<_> = RecordingReader::new(recording.as_slice()).unwrap().map(Result::unwrap).collect();
        let [event, exit] = small;
        assert_eq!(read, [event, exit, Input::RecordingLost { inputs: 1 }]);
    }
}
