//! Children of watched processes in a session.

use memprof_common::event::{FORK_SHARES_MEMORY, FORK_WATCHED};

use super::*;
use crate::encode::summary;
use crate::input::Scope;
use crate::profile::Child;

/// In nanoseconds; 70 clock ticks.
const STARTED: u64 = 700_000_000;

fn fork(parent: u32, time: u64, child: u32, flags: u32) -> Input<'static> {
    let mut bytes = header(EventKind::Fork, parent, time);
    bytes.extend([child, flags].into_iter().flat_map(u32::to_ne_bytes));
    bytes.extend(STARTED.to_ne_bytes());
    Input::Event(Cow::Owned(bytes))
}

#[test]
fn a_child_inherits_blocks_that_are_not_its_own() {
    let mut session = session([
        alloc(12, 1000, BLOCK),
        alloc(12, 1001, Alloc { address: 0x2000, size: 50, ..BLOCK }),
        free(12, 1002, 0x2000, 1001),
        fork(12, 1100, 20, FORK_WATCHED),
        alloc(20, 1200, Alloc { size: 7, ..BLOCK }),
        Input::ProbesInPlace { tgid: 20, time: 1150 },
        free(12, 1300, 0x1000, 1000),
    ]);
    let profile = session.snapshot(0);
    assert_eq!(session.running(20), Some(ProcessKey { tgid: 20, start_time: 70 }));
    assert_eq!(in_use(&profile), (7.0, 1.0), "the parent has freed its block");
    let [child] = profile.children.recorded[..] else { panic!("one child") };
    assert_eq!((child.process, child.parent, child.forked_at, child.probes_at), (1, 0, 1100, Some(1150)));
    assert_eq!((child.inherited.bytes, child.inherited.objects), (100.0, 1.0));
    assert_eq!(profile.processes[1].comm, "leak", "it runs the same program");
    assert_eq!(profile.sites[0].process, 1);
    assert_eq!(profile.losses.foreign_events + profile.losses.unknown_frees, 0);
    let lines = summary::lines(&profile).join("\n");
    assert!(lines.contains("leak (pid 20) inherited 100 B in 1 block from leak (pid 12)"), "{lines}");

    feed(&mut session, [exec(20, 1400)]);
    let profile = session.snapshot(0);
    assert_eq!(profile.children.recorded[0].inherited, Estimate::default(), "exec has dropped the copy");
    assert_eq!(in_use(&profile), (0.0, 0.0));
    feed(&mut session, [process(20, 70, "next")]);
    assert_eq!(session.snapshot(0).processes[1].comm, "next");
}

#[test]
fn a_child_of_vfork_inherits_nothing() {
    let flags = FORK_WATCHED | FORK_SHARES_MEMORY;
    let session =
        session([alloc(12, 1000, BLOCK), fork(12, 1100, 20, flags), fork(20, 1200, 30, FORK_WATCHED)]);
    let children = session.snapshot(0).children.recorded;
    assert!(children.iter().all(|child| child.inherited == Estimate::default()));
    assert_eq!(children.iter().map(|child| child.parent).collect::<Vec<_>>(), [0, 1], "grandchildren too");
    let Child { probes_at, .. } = children[0];
    assert_eq!(probes_at, None);
}

#[test]
fn children_that_are_not_recorded_are_counted() {
    let mut session = session([fork(12, 1000, 20, 0), fork(12, 1001, 21, FORK_SHARES_MEMORY)]);
    let profile = session.snapshot(0);
    assert_eq!((profile.children.not_recorded, profile.processes.len()), (2, 1));
    assert!(summary::lines(&profile).join("\n").contains("not recorded: 2; --children records them"));
    feed(
        &mut session,
        [Input::Scope(Scope { children: true, maps: false }), fork(99, 1002, 22, FORK_WATCHED)],
    );
    let profile = session.snapshot(0);
    assert_eq!(profile.losses.foreign_events, 1, "nobody's child");
    assert!(summary::lines(&profile).join("\n").contains("too many were watched at once: 2"));
}

#[test]
fn a_reused_id_is_another_child() {
    let session = session([
        fork(12, 1000, 20, FORK_WATCHED),
        Input::Exit { tgid: 20, time: 1100 },
        fork(12, 1200, 20, FORK_WATCHED),
        alloc(20, 1300, BLOCK),
    ]);
    let profile = session.snapshot(0);
    assert_eq!((profile.processes.len(), profile.ended.as_slice()), (3, &[1][..]));
    assert_eq!(profile.sites[0].process, 2);
}
