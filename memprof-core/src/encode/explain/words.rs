//! Owners and verdicts in words.

use crate::jvm::{JvmPart, Tracking};
use crate::rss::{Account, Line, Owner, Verdict, VerdictKind};

/// What a line is called.
pub(super) fn name(line: &Line, account: &Account) -> String {
    if let Some(category) = &line.category {
        let hint = match category.as_str() {
            "Other" => " (direct buffers, Unsafe)",
            "Compiler" => " (JIT compilers at work)",
            "Symbol" => " (names in classes)",
            _ => "",
        };
        return format!("malloc by the JVM: {category}{hint}");
    }
    let tracking = account.jvm.as_ref().map(|jvm| jvm.tracking);
    match line.owner {
        Owner::Jvm(JvmPart::JavaHeap) => "Java heap",
        Owner::Jvm(JvmPart::Metaspace) => "metaspace",
        Owner::Jvm(JvmPart::ClassSpace) => "class space",
        Owner::Jvm(JvmPart::SharedClasses) => "shared classes (CDS)",
        Owner::Jvm(JvmPart::CodeCache) => "code cache",
        Owner::Jvm(JvmPart::Gc) => "garbage collector",
        Owner::Jvm(JvmPart::Other) => "JVM, other",
        Owner::Jvm(JvmPart::ThreadStacks) => "thread stacks",
        Owner::MallocOfJvm => "malloc by the JVM",
        Owner::Malloc if matches!(tracking, Some(Tracking::Summary | Tracking::Detail)) => {
            "malloc in use, not by the JVM (native libraries)"
        }
        Owner::Malloc => "malloc in use",
        Owner::Trimmable => "glibc keeps: malloc_trim returns it",
        Owner::Tops => "glibc keeps: ends of arenas",
        Owner::PartialPages => "glibc keeps: free parts of used pages",
        Owner::Caches => "glibc keeps: caches of threads",
        Owner::Heads => "glibc's own structures",
        Owner::UnreadHeap => "glibc's heaps, not readable",
        Owner::OtherAllocator => {
            return format!("{}, in use or kept", account.allocator.name.unwrap_or("another allocator"));
        }
        Owner::LibraryCode => "libraries: code",
        Owner::LibraryData => "libraries: variables",
        Owner::Archives => "jars and modules",
        Owner::Files => "other files",
        Owner::Shared => "shared memory",
        Owner::Kernel => "mapped by the kernel",
        Owner::Anonymous => "other anonymous memory",
    }
    .to_owned()
}

/// The verdict in a sentence for a tired person.
pub(super) fn sentence(verdict: &Verdict) -> String {
    let first = verdict.evidence.first().map_or("it", |movement| movement.name);
    match verdict.kind {
        VerdictKind::Leak => "leak or growth: blocks that native code has allocated and not freed grow; \
             `memprof-agent record` shows who allocates them"
            .to_owned(),
        VerdictKind::JvmGrowth => format!("the JVM itself grows: {first}"),
        VerdictKind::OtherGrowth => format!("{first} grows: neither malloc nor a known part of the JVM"),
        VerdictKind::Retention => {
            "retention: nothing grows, but glibc keeps much that was freed; malloc_trim, fewer \
             arenas or another allocator would help, looking for a leak would not"
                .to_owned()
        }
        VerdictKind::Steady => "steady: nothing grew while it was watched".to_owned(),
    }
}
