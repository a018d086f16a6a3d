//! Recordings (`.mprec`): the inputs of a session in a file, so that a run can be replayed elsewhere.
//!
//! ```text
//! "MPREC" | version: u8 | LZ4 frame of: record … record end
//! record:   length: u32, little endian, not 0 | postcard-encoded Input
//! end:      0: u32
//! ```
//! The end mark tells a finished recording from one whose writer was killed; what the latter holds is
//! replayed all the same. A recording holds stack contents of the recorded processes.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;

use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use crate::input::Input;

const MAGIC: [u8; 5] = *b"MPREC";
/// Raised whenever a replay needs what earlier recordings do not hold: also when unwinding reads other places of a
/// JVM's memory than before.
const VERSION: u8 = 3;
/// Largest record in bytes; the largest real one is the unwind information of a module.
const MAX_RECORD: u32 = 64 << 20;

/// Why a recording cannot be written, or not be read on.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It does not start as a recording does.
    #[error("not a memprof recording: it does not start with {:?}", "MPREC")]
    NotARecording,
    /// It was made by another version of memprof.
    #[error("recording format {found} is not {VERSION}: replay it with the version of memprof that made it")]
    OtherFormat {
        /// The format's version.
        found: u8,
    },
    /// A record is damaged. What came before it is good.
    #[error("recording is damaged at record {record} ({what}): the inputs before it are good")]
    Damaged {
        /// Which record, from 0.
        record: u64,
        /// What is wrong with it.
        what: String,
    },
    /// An input is larger than a record may be.
    #[error("cannot record an input of {bytes} bytes: the limit is {MAX_RECORD} bytes")]
    TooLarge {
        /// Its encoded bytes.
        bytes: usize,
    },
    /// An input could not be encoded.
    #[error("cannot encode an input for the recording: {0}")]
    Encode(postcard::Error),
    /// Reading failed.
    #[error("cannot read the recording: {0}")]
    Read(io::Error),
    /// Writing failed.
    #[error("cannot write the recording: {0}")]
    Write(io::Error),
}

/// Writes a recording. Without [`RecordingWriter::finish`] it reads as truncated.
pub struct RecordingWriter<W: Write> {
    frame: FrameEncoder<W>,
    buffer: Vec<u8>,
}

impl<W: Write> RecordingWriter<W> {
    /// Starts a recording on `out`, which need not be buffered.
    ///
    /// # Errors
    /// [`RecordingError::Write`] when the header cannot be written.
    pub fn new(mut out: W) -> Result<Self, RecordingError> {
        out.write_all(&MAGIC).and_then(|()| out.write_all(&[VERSION])).map_err(RecordingError::Write)?;
        let info = FrameInfo::new().block_size(BlockSize::Max256KB).block_checksums(true);
        Ok(Self { frame: FrameEncoder::with_frame_info(info, out), buffer: Vec::new() })
    }

    /// Appends an input.
    ///
    /// # Errors
    /// [`RecordingError::Write`] when writing failed, after which the recording cannot go on;
    /// [`RecordingError::TooLarge`] or [`RecordingError::Encode`] when only this input was left out.
    pub fn write(&mut self, input: &Input<'_>) -> Result<(), RecordingError> {
        self.buffer.clear();
        self.buffer =
            postcard::to_extend(input, mem::take(&mut self.buffer)).map_err(RecordingError::Encode)?;
        let length = u32::try_from(self.buffer.len())
            .ok()
            .filter(|&length| length <= MAX_RECORD)
            .ok_or(RecordingError::TooLarge { bytes: self.buffer.len() })?;
        self.frame.write_all(&length.to_le_bytes()).map_err(RecordingError::Write)?;
        self.frame.write_all(&self.buffer).map_err(RecordingError::Write)
    }

    /// Hands everything written so far to `out`, so that it survives this process. Costs compression.
    ///
    /// # Errors
    /// [`RecordingError::Write`] when writing failed.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        self.frame.flush().map_err(RecordingError::Write)
    }

    /// Ends the recording and gives `out` back.
    ///
    /// # Errors
    /// [`RecordingError::Write`] when writing failed.
    pub fn finish(mut self) -> Result<W, RecordingError> {
        self.frame.write_all(&0u32.to_le_bytes()).map_err(RecordingError::Write)?;
        let mut out = self.frame.finish().map_err(|e| RecordingError::Write(e.into()))?;
        out.flush().map_err(RecordingError::Write)?;
        Ok(out)
    }
}

/// Reads a recording: an iterator of its inputs. It ends after the first error, and without one where
/// the recording ends, be it [truncated](RecordingReader::is_truncated) or not.
pub struct RecordingReader<R: Read> {
    frame: FrameDecoder<R>,
    buffer: Vec<u8>,
    records: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    Finished,
    Truncated,
    Failed,
}

/// Why the next record is not there.
enum Missing {
    End,
    Truncated,
    Failed(RecordingError),
}

impl<R: Read> RecordingReader<R> {
    /// Reads the header from `input`, which should be buffered.
    ///
    /// # Errors
    /// [`RecordingError::NotARecording`], [`RecordingError::OtherFormat`] or [`RecordingError::Read`].
    pub fn new(mut input: R) -> Result<Self, RecordingError> {
        let mut header = [0; MAGIC.len() + 1];
        input.read_exact(&mut header).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => RecordingError::NotARecording,
            _ => RecordingError::Read(error),
        })?;
        match header.split_last() {
            Some((&VERSION, magic)) if *magic == MAGIC => {}
            Some((&found, magic)) if *magic == MAGIC => return Err(RecordingError::OtherFormat { found }),
            _ => return Err(RecordingError::NotARecording),
        }
        Ok(Self { frame: FrameDecoder::new(input), buffer: Vec::new(), records: 0, state: State::Reading })
    }

    /// Whether the recording stopped without its end mark: its writer was killed, or the file was
    /// cut. Known once the iterator has ended.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.state == State::Truncated
    }

    fn read(&mut self) -> Result<Input<'static>, Missing> {
        self.fill(4)?;
        let length = self.buffer.as_slice().try_into().map_or(0, u32::from_le_bytes);
        if length == 0 {
            return Err(Missing::End);
        }
        if length > MAX_RECORD {
            return Err(self.damaged(format!("it claims {length} bytes")));
        }
        self.fill(length.into())?;
        match postcard::take_from_bytes(&self.buffer) {
            Ok((input, [])) => {
                self.records += 1;
                Ok(input)
            }
            Ok((_, rest)) => Err(self.damaged(format!("{} bytes too many", rest.len()))),
            Err(error) => Err(self.damaged(error.to_string())),
        }
    }

    /// Reads exactly `length` bytes into the buffer, which grows only as they arrive.
    fn fill(&mut self, length: u64) -> Result<(), Missing> {
        self.buffer.clear();
        match (&mut self.frame).take(length).read_to_end(&mut self.buffer) {
            Ok(read) if read as u64 == length => Ok(()),
            Ok(_) => Err(Missing::Truncated),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof => Err(Missing::Truncated),
                // What the decompressor itself finds wrong arrives as one of these.
                ErrorKind::InvalidData | ErrorKind::Other => Err(self.damaged(error.to_string())),
                _ => Err(Missing::Failed(RecordingError::Read(error))),
            },
        }
    }

    fn damaged(&self, what: String) -> Missing {
        Missing::Failed(RecordingError::Damaged { record: self.records, what })
    }
}

impl<R: Read> Iterator for RecordingReader<R> {
    type Item = Result<Input<'static>, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state != State::Reading {
            return None;
        }
        match self.read() {
            Ok(input) => Some(Ok(input)),
            Err(Missing::End) => {
                self.state = State::Finished;
                None
            }
            Err(Missing::Truncated) => {
                self.state = State::Truncated;
                None
            }
            Err(Missing::Failed(error)) => {
                self.state = State::Failed;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests;
