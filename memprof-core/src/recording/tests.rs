use std::borrow::Cow;

use super::*;
use crate::input::{ProcessInfo, ProcessKey, RunInfo};
use crate::process::module::{FileId, ModuleImage, Section, Segment};
use crate::symbols::SymbolizedFrame;

fn inputs() -> Vec<Input<'static>> {
    let noise: Vec<u8> = (0..1_500_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let section = Section { svma: 0x2000, bytes: noise.into() };
    vec![
        Input::Run(RunInfo { version: "0.1.0".into(), sample_interval: 1, ..RunInfo::default() }),
        Input::Process(ProcessInfo {
            key: ProcessKey { tgid: 7, start_time: 99 },
            comm: "leak".into(),
            executable: "/tmp/leak".into(),
        }),
        Input::Module(ModuleImage {
            file: FileId { major: 8, minor: 1, inode: 1234 },
            path: "/lib/libjvm.so".into(),
            build_id: vec![1, 2, 3],
            segments: vec![Segment { file_offset: 0, svma: 0, size: 4096, executable: true }],
            text: Some((0, 4096)),
            eh_frame: Some(section),
            eh_frame_hdr: None,
        }),
        Input::Mappings { tgid: 7, text: "00400000-00401000 r-xp 00000000 08:01 1234 /tmp/leak\n".into() },
        Input::Event(Cow::Owned((0..=255).collect())),
        Input::Counters(vec![3; memprof_common::counter::Counter::COUNT]),
        Input::LiveBlocks(vec![(7, 16, 1000)]),
        Input::Exit { tgid: 7, time: 5000 },
        Input::RecordingLost { inputs: 2 },
        Input::End { time: 6000 },
        Input::Symbols(vec![(
            0,
            64,
            vec![SymbolizedFrame { function: "f".into(), file: None, line: Some(1), inlined: false }],
        )]),
    ]
}

fn record(inputs: &[Input<'_>]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new()).unwrap();
    for input in inputs {
        writer.write(input).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn round_trips() {
    let inputs = inputs();
    let bytes = record(&inputs);
    assert_eq!(bytes, record(&inputs), "a recording depends on its inputs alone");
    let mut reader = RecordingReader::new(bytes.as_slice()).unwrap();
    let read: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(read, inputs);
    assert!(!reader.is_truncated());
}

#[test]
fn other_files_and_other_formats_are_refused() {
    for bytes in [&b""[..], b"MPRE", b"\x1f\x8b\x08\0\0\0\0"] {
        assert!(matches!(RecordingReader::new(bytes), Err(RecordingError::NotARecording)));
    }
    let Err(error) = RecordingReader::new(&b"MPREC\x01"[..]) else { panic!("another format was accepted") };
    assert!(matches!(error, RecordingError::OtherFormat { found: 1 }));
    assert!(error.to_string().contains("version of memprof that made it"));
}

#[test]
fn a_killed_writer_leaves_what_it_flushed() {
    let inputs = inputs();
    let mut out = Vec::new();
    let mut writer = RecordingWriter::new(&mut out).unwrap();
    for input in &inputs[..5] {
        writer.write(input).unwrap();
    }
    writer.flush().unwrap();
    writer.write(&inputs[5]).unwrap();
    drop(writer);
    let mut reader = RecordingReader::new(out.as_slice()).unwrap();
    let read: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(read, inputs[..5]);
    assert!(reader.is_truncated());
}

#[test]
fn a_cut_recording_is_truncated_wherever_the_cut_is() {
    let mut inputs = inputs();
    inputs.remove(2);
    let bytes = record(&inputs);
    for length in 6..bytes.len() - 4 {
        let mut reader = RecordingReader::new(&bytes[..length]).unwrap();
        let read: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(read, inputs[..read.len()]);
        assert!(reader.is_truncated() || read.len() == inputs.len(), "cut at {length}");
    }
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let mut inputs = inputs();
    inputs.remove(2);
    let bytes = record(&inputs);
    for at in 6..bytes.len() {
        for flip in [1, 0x10, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let mut reader = RecordingReader::new(damaged.as_slice()).unwrap();
            let good = reader.by_ref().take_while(Result::is_ok).count();
            assert!(good <= inputs.len());
            assert!(reader.next().is_none());
        }
    }
}

#[test]
fn absurd_lengths_and_foreign_records_are_damage() {
    let frame = |content: &[u8]| {
        let mut out = [&MAGIC[..], &[VERSION]].concat();
        let mut encoder = FrameEncoder::new(&mut out);
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap();
        out
    };
    let first = |bytes: &[u8]| RecordingReader::new(bytes).unwrap().next();
    for content in [&u32::MAX.to_le_bytes()[..], &[1, 0, 0, 0, 200], &[3, 0, 0, 0, 9, 5, 5]] {
        let result = first(&frame(content));
        assert!(matches!(result, Some(Err(RecordingError::Damaged { record: 0, .. }))), "{result:?}");
    }
    // A length within the bound that the file does not hold: truncated, without a large allocation.
    assert!(first(&frame(&MAX_RECORD.to_le_bytes())).is_none());
}

#[test]
fn an_input_beyond_the_bound_is_left_out() {
    let mut writer = RecordingWriter::new(Vec::new()).unwrap();
    let huge = Input::Event(Cow::Owned(vec![0; MAX_RECORD as usize + 1]));
    assert!(matches!(writer.write(&huge), Err(RecordingError::TooLarge { .. })));
    writer.write(&Input::End { time: 1 }).unwrap();
    let bytes = writer.finish().unwrap();
    assert_eq!(RecordingReader::new(bytes.as_slice()).unwrap().map(Result::unwrap).count(), 1);
}
