mod family;
mod maps;
mod past;

use std::borrow::Cow;

use memprof_common::counter::Counter;
use memprof_common::event::{AllocEvent, EventKind};
use memprof_common::sampling::CERTAIN;

use super::*;
use crate::encode::{flamegraph, folded, pprof, report::Report, table};
use crate::input::ProcessKey;
use crate::process::module::{FileId, ModuleImage, Segment};
use crate::profile::{Profile, ValueKind};
use crate::recording::{RecordingReader, RecordingWriter};
use crate::stack::{end_of, thread_of};
use crate::symbols::SymbolizedFrame;

const MAPS: &str = "400000-410000 r-xp 00000000 08:01 77 /tmp/leak\n";

fn header(kind: EventKind, tgid: u32, time: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = [kind as u32, tgid, tgid, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
    bytes.extend(time.to_ne_bytes());
    bytes
}

/// A block allocated by the code at `ip`.
#[derive(Clone, Copy)]
pub(super) struct Alloc {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) probability: u64,
    pub(super) replaces: u64,
    pub(super) ip: u64,
}

pub(super) const BLOCK: Alloc =
    Alloc { address: 0x1000, size: 100, probability: CERTAIN, replaces: 0, ip: 0x40_0100 };

pub(super) fn alloc(tgid: u32, time: u64, block: Alloc) -> Input<'static> {
    let mut bytes = header(EventKind::Alloc, tgid, time);
    for field in [block.address, block.size, block.probability, 0x40_0010, block.replaces] {
        bytes.extend(field.to_ne_bytes());
    }
    bytes.extend([0u8; 56]);
    bytes.extend(*b"worker\0\0\0\0\0\0\0\0\0\0");
    bytes.extend(block.ip.to_ne_bytes());
    bytes.resize(size_of::<AllocEvent>(), 0);
    Input::Event(Cow::Owned(bytes))
}

pub(super) fn free(tgid: u32, time: u64, address: u64, allocated_at: u64) -> Input<'static> {
    let mut bytes = header(EventKind::Free, tgid, time);
    bytes.extend(address.to_ne_bytes());
    bytes.extend(allocated_at.to_ne_bytes());
    Input::Event(Cow::Owned(bytes))
}

fn exec(tgid: u32, time: u64) -> Input<'static> {
    Input::Event(Cow::Owned(header(EventKind::Exec, tgid, time)))
}

fn process(tgid: u32, start_time: u64, comm: &str) -> Input<'static> {
    let key = ProcessKey { tgid, start_time };
    Input::Process(ProcessInfo { key, comm: comm.into(), executable: format!("/tmp/{comm}") })
}

fn mappings(tgid: u32) -> Input<'static> {
    Input::Mappings { tgid, text: MAPS.into() }
}

pub(super) fn beginning() -> Vec<Input<'static>> {
    let run = RunInfo { version: "0.1.0".into(), sample_interval: 1, started_at: 500, ..RunInfo::default() };
    let module = ModuleImage {
        file: FileId { major: 8, minor: 1, inode: 77 },
        path: "/tmp/leak".into(),
        build_id: vec![1],
        segments: vec![Segment { file_offset: 0, svma: 0, size: 0x1_0000, executable: true }],
        text: None,
        eh_frame: None,
        eh_frame_hdr: None,
    };
    vec![Input::Run(run), process(12, 1, "leak"), Input::Module(module), mappings(12)]
}

pub(super) fn feed(session: &mut Session, inputs: impl IntoIterator<Item = Input<'static>>) {
    for input in inputs {
        assert_eq!(session.ingest(&input), Ingested::Done);
    }
}

pub(super) fn session(inputs: impl IntoIterator<Item = Input<'static>>) -> Session {
    let mut session = Session::new();
    feed(&mut session, beginning());
    feed(&mut session, inputs);
    session
}

fn in_use(profile: &Profile) -> (f64, f64) {
    let totals = profile.totals();
    (totals.in_use.bytes, totals.in_use.objects)
}

/// Ages of the first site's oldest and youngest block.
fn span(profile: &Profile) -> Option<(u64, u64)> {
    profile.sites[0].ages.map(|ages| (ages.oldest, ages.youngest))
}

#[test]
fn counts_blocks_by_site() {
    let other = Alloc { address: 0x2000, size: 7, ip: 0x40_0200, ..BLOCK };
    let weighted = Alloc { address: 0x3000, size: 1024, probability: CERTAIN / 4, ..BLOCK };
    let session = session([
        alloc(12, 1000, BLOCK),
        alloc(12, 1100, other),
        alloc(12, 1200, weighted),
        free(12, 1300, 0x1000, 1000),
        free(12, 1400, 0x1000, 1000),
        alloc(99, 1500, BLOCK),
        Input::Event(Cow::Borrowed(b"no event")),
        Input::Counters(vec![2; Counter::COUNT]),
        Input::RecordingLost { inputs: 4 },
    ]);
    let profile = session.snapshot(0);
    assert_eq!(in_use(&profile), (7.0 + 4096.0, 1.0 + 4.0));
    assert_eq!(profile.totals().allocated.bytes, 107.0 + 4096.0);
    assert_eq!(profile.sites.len(), 2);
    assert_eq!(profile.sites[0].allocated.samples, 2);
    assert_eq!(profile.sites[0].in_use.bytes_variance, 0.75 * 4096.0 * 4096.0);
    assert_eq!((profile.coverage.samples, profile.coverage.truncated), (3, 3));
    let losses = profile.losses;
    assert_eq!((losses.unknown_frees, losses.foreign_events, losses.undecodable_events), (1, 1, 1));
    assert_eq!((losses.recording_lost, losses.kernel(Counter::FreeMissed)), (4, 2));
}

#[test]
fn unknown_code_asks_for_mappings_and_leaves_no_trace() {
    let mut session = session([alloc(12, 1000, BLOCK)]);
    let before = session.snapshot(0);
    let Input::Event(event) = alloc(12, 2000, Alloc { ip: 0x90_0000, ..BLOCK }) else { unreachable!() };
    assert_eq!(
        session.ingest_event(&event, false, &mut RecordedMemory::default()),
        Ingested::NeedsMappings { tgid: 12, address: 0x90_0000 }
    );
    assert_eq!(session.snapshot(0), before);
    assert_eq!(session.ingest_event(&event, true, &mut RecordedMemory::default()), Ingested::Done);
    let after = session.snapshot(0);
    assert_eq!(after.coverage.samples, 2);
    assert!(after.sites.iter().any(|s| s.stack.last() == Some(&Frame::Truncated(Truncation::UnknownCode))));
}

#[test]
fn threads_are_told_apart_when_asked_for() {
    let threads = |mut session: Session| {
        feed(&mut session, beginning().into_iter().chain([alloc(12, 1000, BLOCK)]));
        let profile = session.snapshot(0);
        let name =
            thread_of(&profile.sites[0].stack).map(|name| profile.threads.get(name).map(str::to_owned));
        (name, end_of(&profile.sites[0].stack))
    };
    let (name, end) = threads(Session::new());
    assert_eq!(name, None);
    let mut session = Session::new();
    session.tell_threads();
    assert_eq!(threads(session), (Some(Some("worker".into())), end));
}

#[test]
fn a_block_whose_free_was_missed_is_replaced() {
    let session = session([
        alloc(12, 1000, BLOCK),
        alloc(12, 2000, Alloc { size: 64, replaces: 1000, ..BLOCK }),
        alloc(12, 3000, Alloc { address: 0x5000, size: 1, replaces: 900, ..BLOCK }),
    ]);
    assert_eq!(in_use(&session.snapshot(0)), (65.0, 2.0));
    assert_eq!(session.quality.losses.unknown_frees, 0);
}

#[test]
fn exec_empties_the_live_table_and_forgets_mappings() {
    let mut session = session([alloc(12, 1000, BLOCK), exec(12, 2000), exec(99, 2000)]);
    let profile = session.snapshot(0);
    assert_eq!(in_use(&profile), (0.0, 0.0));
    assert_eq!(profile.totals().allocated.bytes, 100.0);
    assert_eq!(profile.losses.foreign_events, 1);
    let event = alloc(12, 3000, BLOCK);
    let Input::Event(bytes) = &event else { unreachable!() };
    assert_eq!(
        session.ingest_event(bytes, false, &mut RecordedMemory::default()),
        Ingested::NeedsMappings { tgid: 12, address: BLOCK.ip }
    );
    feed(&mut session, [process(12, 1, "next"), mappings(12), event]);
    let profile = session.snapshot(0);
    assert_eq!(in_use(&profile), (100.0, 1.0));
    assert_eq!(profile.processes.len(), 1, "exec does not make another process");
    assert_eq!(profile.processes[0].comm, "next");
}

#[test]
fn an_ended_process_keeps_what_it_held() {
    let mut session = session([
        alloc(12, 1000, BLOCK),
        Input::Exit { tgid: 12, time: 4000 },
        Input::Exit { tgid: 12, time: 4100 },
        free(12, 5000, 0x1000, 1000),
        alloc(12, 5000, BLOCK),
        Input::LiveBlocks(vec![]),
    ]);
    // The same id, another process: it must not touch the first one's blocks.
    feed(&mut session, [process(12, 2, "later"), mappings(12), alloc(12, 6000, BLOCK), exec(12, 7000)]);
    feed(&mut session, [alloc(99, 8000, BLOCK), Input::End { time: 9000 }]);
    let profile = session.snapshot(0);
    assert_eq!(in_use(&profile), (100.0, 1.0));
    assert_eq!(profile.taken_at, 9000);
    assert_eq!(profile.ended, [0]);
    assert_eq!(profile.processes.iter().map(|p| p.comm.as_str()).collect::<Vec<_>>(), ["leak", "later"]);
    assert_eq!((profile.sites[0].process, span(&profile)), (0, Some((3000, 3000))));
    assert_eq!(profile.losses.foreign_events, 4);
    assert_eq!(profile.losses.repaired_frees, 0);
}

#[test]
fn a_reused_process_id_ends_the_process_before() {
    let session = session([alloc(12, 1000, BLOCK), process(12, 2, "later")]);
    assert_eq!(session.snapshot(0).ended, [0]);
    assert_eq!(in_use(&session.snapshot(0)), (100.0, 1.0));
}

#[test]
fn blocks_that_the_kernel_no_longer_holds_are_freed() {
    let session = session([
        alloc(12, 1000, BLOCK),
        alloc(12, 1100, Alloc { address: 0x2000, size: 1, ..BLOCK }),
        alloc(12, 1200, Alloc { address: 0x3000, size: 10, ..BLOCK }),
        Input::LiveBlocks(vec![(12, 0x2000, 1100), (12, 0x3000, 1), (99, 0x3000, 1200)]),
    ]);
    assert_eq!(in_use(&session.snapshot(0)), (1.0, 1.0));
    assert_eq!(session.quality.losses.repaired_frees, 2);
}

#[test]
fn the_minimum_age_leaves_out_young_blocks() {
    let young = Alloc { address: 0x2000, size: 1, ..BLOCK };
    let session = session([alloc(12, 1000, BLOCK), alloc(12, 5000, young), Input::End { time: 6000 }]);
    let profile = session.snapshot(2000);
    assert_eq!(in_use(&profile), (100.0, 1.0));
    assert_eq!(profile.totals().allocated.bytes, 101.0);
    assert_eq!(span(&profile), Some((5000, 5000)));
    assert_eq!(span(&session.snapshot(1000)), Some((5000, 1000)));
}

#[test]
fn unreadable_or_foreign_mappings_are_counted() {
    let bad = |tgid| Input::Mappings { tgid, text: "what is this".into() };
    let session = session([bad(12), bad(99)]);
    assert_eq!((session.quality.losses.undecodable_events, session.quality.losses.foreign_events), (1, 1));
}

/// A busy run of several processes, with names.
fn busy_run() -> Vec<Input<'static>> {
    let mut inputs = beginning();
    inputs.extend([process(13, 1, "other"), mappings(13)]);
    let mut live = Vec::new();
    let mut state = 1u64;
    for i in 0..2000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = state >> 33;
        let (tgid, time) = (12 + (random % 2) as u32, 1000 + i);
        if random.is_multiple_of(3) && !live.is_empty() {
            let (tgid, address, allocated_at) = live.swap_remove(random as usize % live.len());
            inputs.push(free(tgid, time, address, allocated_at));
        } else {
            let (address, ip) = (0x1000 + i * 16, 0x40_0100 + random % 37 * 16);
            let probability = CERTAIN / (1 + random % 5);
            inputs.push(alloc(
                tgid,
                time,
                Alloc { address, size: random % 4000, probability, replaces: 0, ip },
            ));
            live.push((tgid, address, time));
        }
    }
    let name = |function: &str| SymbolizedFrame {
        function: function.into(),
        file: None,
        line: None,
        inlined: false,
    };
    let names = (0..20).map(|i| (0, 0xff + i * 16, vec![name(&format!("site_{i}"))])).collect();
    inputs.extend([Input::End { time: 9000 }, Input::Symbols(names)]);
    inputs
}

fn all_outputs(inputs: &[Input<'_>]) -> Vec<Vec<u8>> {
    let mut session = Session::new();
    for input in inputs {
        assert_eq!(session.ingest(input), Ingested::Done);
    }
    let profile = session.snapshot(0);
    let symbols = session.symbols();
    let mut outputs = vec![
        serde_json::to_vec(&Report::new(&profile, symbols)).unwrap(),
        table::encode(&profile, symbols, 10).into_bytes(),
    ];
    for kind in ValueKind::SAMPLE_TYPES {
        outputs.push(folded::encode(&profile, symbols, kind).into_bytes());
        outputs.push(flamegraph::encode(&profile, symbols, kind).unwrap());
        outputs.push(pprof::encode(&profile, symbols, kind).unwrap());
    }
    outputs
}

#[test]
fn the_same_inputs_give_the_same_bytes_live_and_replayed() {
    let inputs = busy_run();
    let outputs = all_outputs(&inputs);
    assert_eq!(outputs, all_outputs(&inputs));
    let mut writer = RecordingWriter::new(Vec::new()).unwrap();
    inputs.iter().for_each(|input| writer.write(input).unwrap());
    let recording = writer.finish().unwrap();
    let replayed: Vec<_> = RecordingReader::new(recording.as_slice()).unwrap().map(Result::unwrap).collect();
    assert_eq!(outputs, all_outputs(&replayed));
    let folded = String::from_utf8(outputs[2].clone()).unwrap();
    assert!(folded.contains("site_3"), "{folded}");
}

#[test]
fn sites_are_in_a_total_order() {
    let mut session = Session::new();
    for input in busy_run() {
        assert_eq!(session.ingest(&input), Ingested::Done);
    }
    let profile = session.snapshot(0);
    let key = |i: usize| (profile.sites[i].in_use.bytes, profile.sites[i].allocated.bytes);
    assert!((1..profile.sites.len()).all(|i| key(i - 1) >= key(i)));
    let samples: u64 = profile.sites.iter().map(|site| site.allocated.samples).sum();
    assert_eq!(samples, profile.coverage.samples);
}
