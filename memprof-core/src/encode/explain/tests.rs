use super::*;
use crate::glibc::{Arena, MmappedChunks, Use, Walk, WalkLosses};
use crate::input::ProcessKey;
use crate::jvm::JvmPart;
use crate::rss::{Allocator, CgroupVersion, Line, VerdictKind};

fn line(owner: Owner, category: Option<&str>, bytes: u64) -> Line {
    Line { owner, category: category.map(str::to_owned), bytes }
}

fn account() -> Account {
    let arena = Arena {
        system_bytes: 1 << 20,
        free: Use { chunks: 1, bytes: 8192, resident_bytes: 8192 },
        ..Arena::default()
    };
    let walk = Walk {
        total: Arena { in_use: Use { chunks: 1234, ..Use::default() }, ..Arena::default() },
        arenas: vec![arena; 3],
        mmapped: MmappedChunks { chunks: 1, expected_bytes: Some(4096), ..MmappedChunks::default() },
        heaps: Vec::new(),
        mmapped_areas: Vec::new(),
        thread_caches: 2,
        losses: WalkLosses::default(),
    };
    Account {
        rss_bytes: 1000 << 20,
        lines: vec![
            line(Owner::Jvm(JvmPart::JavaHeap), None, 500 << 20),
            line(Owner::MallocOfJvm, Some("Other"), 100 << 20),
            line(Owner::MallocOfJvm, Some("Class"), 2 << 20),
            line(Owner::MallocOfJvm, Some("Module"), 1 << 20),
            line(Owner::Malloc, None, 300 << 20),
            line(Owner::Trimmable, None, 90 << 20),
            line(Owner::Tops, None, 10 << 20),
        ],
        unexplained_bytes: -(3 << 20),
        beside: Beside { pss_bytes: 990 << 20, page_table_bytes: 2 << 20, ..Beside::default() },
        allocator: Allocator {
            name: Some("glibc"),
            version: Some(crate::glibc::Version(2, 36)),
            heaps: Ok(walk),
        },
        jvm: Some(JvmSummary {
            version: Some("X VM (17)".into()),
            tracking: Tracking::Summary,
            malloc_bytes: None,
        }),
    }
}

fn process() -> ProcessInfo {
    let key = ProcessKey { tgid: 12, start_time: 1 };
    ProcessInfo { key, comm: "java".into(), executable: "/jdk/bin/java".into() }
}

#[test]
fn the_report_is_aligned_and_complete() {
    let (account, process) = (account(), process());
    let cgroup = Cgroup {
        path: "/pod".into(),
        version: CgroupVersion::V2,
        usage_bytes: 1200 << 20,
        inactive_file_bytes: 100 << 20,
        limit_bytes: Some(2 << 30),
    };
    let movement = Movement {
        name: "malloc in use",
        first_bytes: 1 << 20,
        last_bytes: 3 << 20,
        trend: Some("growing"),
        bytes_per_second: Some(2048.0),
    };
    let verdict =
        Verdict { kind: VerdictKind::Leak, evidence: vec![movement], blocks_in_use: Some((10, 1200)) };
    let explanation = Explanation {
        process: &process,
        account: &account,
        cgroup: Some(&cgroup),
        verdict: Some(&verdict),
        gaps: &["something".to_owned()],
    };
    let expected = "\
memprof: process 12 java (/jdk/bin/java), RSS 1000.0 MiB
JVM: X VM (17), native memory tracking summary
allocator: glibc 2.36, arenas: 3, blocks in use: 1,235

  Java heap                                            500.0 MiB   50.0 %  ############
  malloc by the JVM: Other (direct buffers, Unsafe)    100.0 MiB   10.0 %  ##
  malloc by the JVM, other purposes                      3.0 MiB    0.3 %
  malloc in use, not by the JVM (native libraries)     300.0 MiB   30.0 %  #######
  glibc keeps: malloc_trim returns it                   90.0 MiB    9.0 %  ##
  glibc keeps: ends of arenas                           10.0 MiB    1.0 %
  unexplained                                           -3.0 MiB   -0.3 %
  RSS                                                 1000.0 MiB    100 %

beside the RSS: page tables 2.0 MiB; shared pages divided (Pss): 990.0 MiB
cgroup /pod: 1.2 GiB in use, of which 100.0 MiB are files that can be dropped; limit 2.0 GiB: 948.0 MiB left before \
the OOM killer
malloc_trim would return 90.0 MiB now (memprof-agent trim -p 12); 10.0 MiB more are free and would stay
fewer arenas (MALLOC_ARENA_MAX=2, from the next start on) could save up to 8.0 KiB: what 1 of the 3 arenas keep \
free; threads then wait for each other more
lost: glibc counts 4.0 KiB in blocks with mappings of their own, 0 B were found
not known: something
not known: native memory tracking has no details: parts of the JVM are shown as other memory; \
-XX:NativeMemoryTracking=detail at the next start tells

verdict: leak or growth: blocks that native code has allocated and not freed grow; `memprof-agent record` shows who \
allocates them
  malloc in use                                      1.0 MiB -> 3.0 MiB, growing 2.0 KiB/s
  blocks in use                                      10 -> 1,200
";
    assert_eq!(explanation.text(true), expected);
    assert!(!explanation.text(false).contains('#'), "bars only if asked for");
}

#[test]
fn the_document_has_the_same_numbers() {
    let (account, process) = (account(), process());
    let explanation =
        Explanation { process: &process, account: &account, cgroup: None, verdict: None, gaps: &[] };
    let value = serde_json::to_value(explanation.document()).expect("it is serialised");
    assert_eq!(value["rss_bytes"], 1000 << 20);
    assert_eq!(value["unexplained_bytes"], -(3 << 20));
    assert_eq!(
        value["lines"][1],
        serde_json::json!({"owner": "malloc_jvm", "category": "Other", "bytes": 100 << 20})
    );
    assert_eq!(value["lines"][0].get("category"), None);
    assert_eq!(value["jvm"]["tracking"], "summary");
    assert_eq!(value["glibc_version"], "2.36");
    assert_eq!(value["heaps"]["arenas"].as_array().map(Vec::len), Some(3));
    assert_eq!(value["forecast"]["trim_bytes"], 90 << 20);
    assert_eq!(value["heaps_unread"], serde_json::Value::Null);
}
