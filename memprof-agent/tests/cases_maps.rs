//! Memory that programs map themselves (`--mmap`): every call and its failure, and what is the allocator's own.

mod support;

use support::agent::Recorder;
use support::exclusive;
use support::program::compile;

/// Partial unmapping, unmapping over several blocks, failing calls, MAP_FIXED over tracked ranges, mremap that
/// grows, shrinks and moves, reserved memory, the program break: pages and calls left of each site.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn memory_maps_are_exact() {
    let _alone = exclusive();
    let program = compile("maps", &["maps.c"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).args(["--mmap"]).start();
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses();
    report.assert_exact(&truth);
    report.assert_all_complete();
    assert_eq!(report.0["memory_maps"], true);
    for site in report.sites_of("map_middle_gone") {
        assert!(site.frames[0].function.as_deref().is_some_and(|name| name.contains("mmap")), "{site:?}");
        site.assert_order(&["map_middle_gone", "middle_gone", "main"]);
    }
    let made = report.sum("map_middle_gone");
    assert_eq!((made.alloc_bytes, made.alloc_objects), (40960.0, 1.0), "what the call mapped");
    let reserved = report.sum("map_reserved");
    assert_eq!((reserved.alloc_bytes, reserved.alloc_objects), (22.0 * 4096.0, 1.0), "became usable");
}

/// The same program without `--mmap`: maps are not blocks.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn memory_maps_are_left_out_unless_asked_for() {
    let _alone = exclusive();
    let program = compile("maps", &["maps.c"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).start();
    target.work();
    let report = recording.report();
    report.assert_no_losses();
    assert!(report.sites().is_empty(), "{:?}", report.sites());
}

/// What glibc maps for its blocks (large blocks, aligned ones, arenas of threads, the heap) counts once, as
/// blocks; thread stacks and files are direct maps.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_the_allocator_maps_is_not_counted_twice() {
    let _alone = exclusive();
    for mode in support::ATTACH_MODES {
        let program = compile("maps_of_allocator", &["maps_of_allocator.c"]);
        let mut target = program.start(&[]);
        let recording = Recorder::exact(&target).args(["--mmap", "--attach-mode", mode]).start();
        let truth = target.work();
        let report = recording.report();
        report.assert_no_losses();
        report.assert_exact(&truth);
        let stacks = report.sum("start_threads");
        let stack_maps: Vec<_> = report
            .sites_of("start_threads")
            .into_iter()
            .filter(|site| site.frames[0].function.as_deref().is_some_and(|name| name.contains("mmap")))
            .collect();
        assert_eq!(stack_maps.len(), 1, "{:?}", report.sites_of("start_threads"));
        let live = (stack_maps[0].sum.inuse_bytes, stack_maps[0].sum.inuse_objects);
        assert_eq!(live, (truth.value("stacks") as f64, 3.0), "thread stacks without guards, mode {mode}");
        assert!(stacks.inuse_bytes >= live.0);
        let threads: Vec<_> = report.sites_of("thread_work");
        let names: Vec<_> = threads.iter().map(support::report::Site::names).collect();
        assert!(threads.iter().all(|site| site.contains("small_malloc")), "arenas as direct maps: {names:?}");
    }
}

/// Threads that map and unmap the same addresses, and each other's: every page is counted once.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn threads_that_race_for_addresses_are_exact() {
    let _alone = exclusive();
    let program = compile("maps_race", &["maps_race.c"]);
    let mut target = program.start(&[]);
    let recording = Recorder::exact(&target).args(["--mmap"]).start();
    let truth = target.work();
    let report = recording.report();
    report.assert_no_losses();
    report.assert_exact(&truth);
    assert_eq!(report.sum("race_map").alloc_objects, truth.value("maps") as f64);
}

/// Random sequences of calls by several threads, against the program's own log.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn random_sequences_agree_with_the_programs_log() {
    let _alone = exclusive();
    for seed in ["1", "2"] {
        let program = compile("maps_random", &["maps_random.c"]);
        let mut target = program.start(&[seed, "240"]);
        let recording = Recorder::exact(&target).args(["--mmap"]).start();
        let truth = target.work();
        let report = recording.report();
        report.assert_no_losses();
        report.assert_exact(&truth);
        assert!(truth.sites.values().all(|&(bytes, calls)| bytes > 0 && calls > 0), "{truth:?}");
    }
}
