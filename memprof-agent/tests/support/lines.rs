//! Lines from a child process, read beside the test so that waiting for one can time out.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The lines of one stream, in order; those already taken are kept for messages.
pub(crate) struct Lines {
    name: &'static str,
    receiver: Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    /// Starts to read `stream`; `name` is what messages call it.
    pub(crate) fn new(name: &'static str, stream: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(stream.read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                if sender.send(text).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Self { name, receiver, seen: Vec::new() }
    }

    /// The next line, or `None` at the end of the stream. Panics when neither comes in time.
    pub(crate) fn next_within(&mut self, patience: Duration) -> Option<String> {
        match self.receiver.recv_timeout(patience) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("no line from {} within {patience:?}; so far: {:#?}", self.name, self.seen)
            }
        }
    }

    /// Reads on until a line starts with `start`, and gives that line.
    pub(crate) fn wait_for(&mut self, start: &str, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        while let Some(line) = self.next_within(deadline.saturating_duration_since(Instant::now())) {
            if line.starts_with(start) {
                return line;
            }
        }
        panic!("{} ended before a line {start:?}; it said: {:#?}", self.name, self.seen)
    }

    /// Reads to the end and gives everything, the lines taken before included.
    pub(crate) fn all(mut self, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        while self.next_within(deadline.saturating_duration_since(Instant::now())).is_some() {}
        self.seen.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}
