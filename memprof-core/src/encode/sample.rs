//! A small profile that has something of everything, for the encoders' tests.

use memprof_common::sampling::CERTAIN;

use crate::address::CodeAddressKind::{InstructionPointer, ReturnAddress};
use crate::estimate::Estimate;
use crate::input::{ProcessInfo, ProcessKey, RunInfo};
use crate::java::{FrameKinds, JavaMethod, JavaMethodId, JavaMethods};
use crate::process::module::{ModuleIndex, Segment};
use crate::profile::{Ages, Children, Coverage, Losses, ModuleFacts, Profile, Site};
use crate::stack::{Frame, Truncation};
use crate::symbols::{SymbolKey, SymbolizedFrame, Symbols};
use crate::threads::ThreadNames;

const LIBC: ModuleIndex = ModuleIndex(0);
const LEAK: ModuleIndex = ModuleIndex(1);
const LIB_ONE: ModuleIndex = ModuleIndex(2);
const MALLOC: Frame = Frame::Code { module: LIBC, svma: 0x9000, kind: InstructionPointer };
const DEFLATE: Frame = Frame::Code { module: LIB_ONE, svma: 0x401, kind: ReturnAddress };

fn call(module: ModuleIndex, svma: u64) -> Frame {
    Frame::Code { module, svma, kind: ReturnAddress }
}

fn module(path: &str, build_id: &[u8], svma: u64) -> ModuleFacts {
    let code = Segment { file_offset: svma / 2, svma, size: 0x1_0000, executable: true };
    ModuleFacts { path: path.into(), build_id: build_id.into(), code: Some(code) }
}

fn process(tgid: u32, comm: &str) -> ProcessInfo {
    let key = ProcessKey { tgid, start_time: 100 };
    ProcessInfo { key, comm: comm.into(), executable: format!("/tmp/{comm}") }
}

fn site(process: usize, stack: &[Frame], blocks: &[(u64, u64)], live: bool) -> Site {
    let mut allocated = Estimate::default();
    for &(size, probability) in blocks {
        allocated += Estimate::of_block(size, probability);
    }
    let (in_use, ages) = if live {
        let mut ages = None;
        Ages::add(&mut ages, 2_500_000_000, allocated);
        Ages::add(&mut ages, 100_000_000, Estimate::default());
        (allocated, ages)
    } else {
        (Estimate::default(), None)
    };
    Site {
        process,
        stack: stack.into(),
        kinds: Box::default(),
        allocated,
        in_use,
        ages,
        trend: None,
        growth: None,
    }
}

fn symbols() -> Symbols {
    let frame = |function: &str, file: Option<&str>, line, inlined| SymbolizedFrame {
        function: function.into(),
        file: file.map(Into::into),
        line,
        inlined,
    };
    let mut symbols = Symbols::default();
    let mut name = |module, lookup, frames| symbols.insert(SymbolKey { module, lookup }, frames);
    name(LIBC, 0x9000, vec![frame("malloc", None, None, false)]);
    name(LIB_ONE, 0x400, vec![frame("deflateInit_", None, None, false)]);
    name(
        LEAK,
        0x100,
        vec![
            frame("push", Some("vec.rs"), Some(10), true),
            frame("grow;[u8; 4]", Some("leak.rs"), Some(20), false),
        ],
    );
    name(LEAK, 0x200, vec![frame("main", Some("leak.rs"), Some(40), false)]);
    symbols
}

/// Two processes, three modules (one without a name for its code), four samples of three sites: an
/// inlined function, a truncated stack and one that ends at Java code and has nothing in use.
pub(super) fn profile() -> (Profile, Symbols) {
    let truncated = Frame::Truncated(Truncation::SnapshotLimit);
    let sites = vec![
        site(
            0,
            &[MALLOC, call(LEAK, 0x101), call(LEAK, 0x201)],
            &[(100, CERTAIN), (1024, CERTAIN / 4)],
            true,
        ),
        site(1, &[MALLOC, call(LIB_ONE, 0x300), truncated], &[(1000, CERTAIN)], true),
        site(0, &[MALLOC, DEFLATE, Frame::Java], &[(64, CERTAIN)], false),
    ];
    let profile = Profile {
        run: RunInfo {
            version: "0.1.0".into(),
            sample_interval: 4096,
            attach_mode: "session".into(),
            started_at: 1_000_000_000,
            started_at_unix: 1_700_000_000,
            ..RunInfo::default()
        },
        taken_at: 6_000_000_000,
        processes: vec![process(12, "leak"), process(13, "other")],
        ended: vec![],
        children: Children::default(),
        modules: vec![
            module("/usr/lib/libc.so.6", &[0xab, 0xcd], 0x8000),
            module("/tmp/leak", &[0x01], 0),
            module("/tmp/lib one.so", &[], 0),
        ],
        methods: JavaMethods::default(),
        threads: ThreadNames::default(),
        sites,
        coverage: Coverage { samples: 4, complete: 2, java: 1, truncated: 1 },
        losses: Losses::default(),
        events: Vec::new(),
        trend: None,
        figures: None,
    };
    (profile, symbols())
}

/// The other profile with sites of Java code alone: two overloads, one of which calls an inlined constructor.
pub(super) fn java() -> (Profile, Symbols) {
    let (mut profile, symbols) = profile();
    let mut method = |class: &str, name: &str, signature: &str| {
        let file = (!class.is_empty()).then(|| "Leak.java".into());
        let method = JavaMethod { class: class.into(), name: name.into(), signature: signature.into(), file };
        profile.methods.intern(method).expect("room for a method")
    };
    let init = method("a.Leak", "<init>", "()V");
    let overloads = [method("a.Leak", "grow", "(I)V"), method("a.Leak", "grow", "(J)V")];
    let stub = method("", "call_stub", "");
    let java = |method: JavaMethodId, line| Frame::JavaMethod { method, line };
    let entry = [java(stub, 0), call(LEAK, 0x201)];
    let inlined = [MALLOC, DEFLATE, java(init, 7), java(overloads[0], 30), entry[0], entry[1]];
    let mut first = site(0, &inlined, &[(4096, CERTAIN)], true);
    let native = FrameKinds::default();
    let compiled = FrameKinds::C2.union(FrameKinds::INTERPRETED);
    let constructor = FrameKinds::C2.union(FrameKinds::INLINED);
    first.kinds = [native, native, constructor, compiled, FrameKinds::STUB, native].into();
    let mut second =
        site(0, &[MALLOC, DEFLATE, java(overloads[1], 0), entry[0], entry[1]], &[(64, CERTAIN)], true);
    second.kinds = [native, native, FrameKinds::NATIVE_WRAPPER, FrameKinds::STUB, native].into();
    profile.sites = vec![first, second];
    profile.coverage = Coverage { samples: 2, complete: 2, java: 0, truncated: 0 };
    (profile, symbols)
}
