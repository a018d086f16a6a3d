use std::collections::BTreeSet;
use std::io::Read;

use super::*;
use crate::encode::sample;

fn decode(bytes: &[u8]) -> message::Profile {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    message::Profile::decode(plain.as_slice()).unwrap()
}

fn encoded() -> message::Profile {
    let (profile, symbols) = sample::profile();
    decode(&encode(&profile, &symbols, ValueKind::InuseSpace).unwrap())
}

fn text(profile: &message::Profile, index: i64) -> &str {
    &profile.string_table[index as usize]
}

/// The rules by which `go tool pprof` accepts a profile.
#[test]
fn is_valid_for_readers() {
    let profile = encoded();
    assert_eq!(profile.string_table[0], "");
    assert_eq!(profile.string_table.iter().collect::<BTreeSet<_>>().len(), profile.string_table.len());
    let ids = |ids: Vec<u64>| {
        let set: BTreeSet<u64> = ids.iter().copied().collect();
        assert!(set.len() == ids.len() && !set.contains(&0), "ids are not unique or zero: {ids:?}");
        set
    };
    let mappings = ids(profile.mapping.iter().map(|m| m.id).collect());
    let functions = ids(profile.function.iter().map(|f| f.id).collect());
    let locations = ids(profile.location.iter().map(|l| l.id).collect());
    for location in &profile.location {
        assert!(location.mapping_id == 0 || mappings.contains(&location.mapping_id));
        assert!(location.line.iter().all(|line| functions.contains(&line.function_id)));
    }
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        assert!(sample.location_id.iter().all(|id| locations.contains(id)));
    }
    let strings = profile.function.iter().flat_map(|f| [f.name, f.system_name, f.filename]);
    let strings = strings.chain(profile.mapping.iter().flat_map(|m| [m.filename, m.build_id]));
    let strings = strings.chain(profile.sample_type.iter().flat_map(|t| [t.r#type, t.unit]));
    let labels = profile.sample.iter().flat_map(|s| &s.label).flat_map(|l| [l.key, l.str]);
    for index in strings.chain(labels).chain(profile.comment.iter().copied()) {
        assert!((0..profile.string_table.len() as i64).contains(&index));
    }
}

#[test]
fn holds_values_types_and_times() {
    let profile = encoded();
    let types: Vec<_> =
        profile.sample_type.iter().map(|t| (text(&profile, t.r#type), text(&profile, t.unit))).collect();
    let expected = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count")];
    assert_eq!(types[..3], expected);
    assert_eq!(types[3], ("inuse_space", "bytes"));
    assert_eq!(text(&profile, profile.default_sample_type), "inuse_space");
    let values: Vec<_> = profile.sample.iter().map(|s| s.value.as_slice()).collect();
    assert_eq!(values, [&[5, 4196, 5, 4196], &[1, 1000, 1, 1000], &[1, 64, 0, 0]]);
    assert_eq!(profile.period, 4096);
    assert_eq!(profile.time_nanos, 1_700_000_000_000_000_000);
    assert_eq!(profile.duration_nanos, 5_000_000_000);
    let comments: Vec<_> = profile.comment.iter().map(|&c| text(&profile, c)).collect();
    assert!(comments.contains(&summary::NOT_INCLUDED));
}

#[test]
fn holds_stacks_with_inlined_functions_and_marks() {
    let profile = encoded();
    let stack = |sample: usize| -> Vec<Vec<(&str, i64)>> {
        let locations =
            profile.sample[sample].location_id.iter().map(|&id| &profile.location[id as usize - 1]);
        let name = |id: u64| text(&profile, profile.function[id as usize - 1].name);
        locations.map(|l| l.line.iter().map(|line| (name(line.function_id), line.line)).collect()).collect()
    };
    assert_eq!(stack(0), [vec![("malloc", 0)], vec![("push", 10), ("grow;[u8; 4]", 20)], vec![("main", 40)]]);
    assert_eq!(stack(1), [vec![("malloc", 0)], vec![], vec![("[truncated: snapshot limit]", 0)]]);
    assert_eq!(stack(2)[2], [("[java]", 0)]);
    let label = |i: usize| profile.sample[1].label[i];
    assert_eq!((text(&profile, label(0).key), label(0).num), ("pid", 13));
    assert_eq!((text(&profile, label(1).key), text(&profile, label(1).str)), ("process", "other"));
    assert_eq!(text(&profile, label(2).str), "truncated: snapshot limit");
}

#[test]
fn mappings_tell_files_build_ids_and_what_is_named() {
    let profile = encoded();
    let [leak, libc, lib_one] = profile.mapping.as_slice() else { panic!("{:?}", profile.mapping) };
    assert_eq!(text(&profile, leak.filename), "/tmp/leak");
    assert_eq!(text(&profile, libc.build_id), "abcd");
    assert_eq!((libc.memory_start, libc.memory_limit, libc.file_offset), (0x8000, 0x1_8000, 0x4000));
    assert!(leak.has_functions && leak.has_filenames && leak.has_line_numbers && leak.has_inline_frames);
    assert!(libc.has_functions && !libc.has_filenames && !libc.has_inline_frames);
    assert!(!lib_one.has_functions, "one of its locations has no name");
    let unnamed = profile.location.iter().find(|l| l.line.is_empty()).unwrap();
    assert_eq!((unnamed.address, unnamed.mapping_id), (0x2ff, lib_one.id));
}

#[test]
fn java_methods_have_files_and_lines() {
    let (profile, symbols) = sample::java();
    let profile = decode(&encode(&profile, &symbols, ValueKind::InuseSpace).unwrap());
    let location = |id: u64| profile.location.iter().find(|location| location.id == id).unwrap();
    let frames = |sample: usize| -> Vec<(&str, &str, i64)> {
        let ids = profile.sample[sample].location_id.iter();
        ids.flat_map(|&id| &location(id).line)
            .map(|line| {
                let function = &profile.function[line.function_id as usize - 1];
                (text(&profile, function.name), text(&profile, function.filename), line.line)
            })
            .collect()
    };
    assert_eq!(
        frames(0)[2..],
        [
            ("a.Leak.<init>", "Leak.java", 7),
            ("a.Leak.grow", "Leak.java", 30),
            ("call_stub", "", 0),
            ("main", "leak.rs", 40)
        ]
    );
    assert_eq!(frames(1)[2], ("a.Leak.grow", "Leak.java", 0));
    // What lies in no module has neither mapping nor address.
    let java = location(profile.sample[0].location_id[2]);
    assert_eq!((java.mapping_id, java.address), (0, 0));
}
