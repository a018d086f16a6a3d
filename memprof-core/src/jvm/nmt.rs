//! Native memory tracking: the answer to `VM.native_memory detail scale=b` (`src/hotspot/share/nmt/memReporter.cpp`).
//!
//! ```text
//! -                     Class (reserved=1073802023, committed=518951)
//!                             (malloc=60199 tag=Class #N) (at peak)          before JDK 24 "type=Class", in old ones nothing
//!                             (mmap: reserved=1073741824, committed=458752)
//!                             (arena=18432 #N)
//! Virtual memory map:                                                          only with detail
//! [0x00007fc54ece1000 - 0x00007fc54ece2000] reserved and committed 4096 for Internal from
//!     [0x00007fc54d98fe9e]initialize_assert_poison()+0x1e                      who did it
//!         [0x00007fc54ece1000 - 0x00007fc54ece2000] committed 4096 from        part of the region above
//! Details:
//! ```

use super::{JvmArea, JvmPart};
use crate::address::Avma;

/// What a JVM answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NmtAnswer {
    /// Nothing that can be understood, or nobody asked.
    Unknown,
    /// It does not watch its memory.
    Off,
    /// It does.
    Tracked(Nmt),
}

/// What a JVM has allocated, by its own account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nmt {
    /// By purpose.
    pub categories: Vec<Category>,
    /// Bytes that watching costs in headers of its blocks.
    pub overhead: u64,
    /// What it has mapped; empty unless details are watched.
    pub regions: Vec<Region>,
}

/// What serves one purpose. Amounts are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Category {
    /// As the JVM calls it: `Class`, `Compiler`, …
    pub name: String,
    /// Mapped and allocated, and usable.
    pub committed: u64,
    /// From malloc, arenas excepted.
    pub malloc: u64,
    /// Blocks of these.
    pub blocks: u64,
    /// In arenas, which are made of blocks from malloc.
    pub arena: u64,
}

/// Address space that it has reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: Avma,
    /// One past the last address.
    pub end: Avma,
    /// The purpose: the name of a category or, for stacks, `Thread Stack`.
    pub purpose: String,
}

impl Nmt {
    /// Bytes that it has from malloc, its own headers included.
    #[must_use]
    pub fn malloc_bytes(&self) -> u64 {
        self.categories.iter().map(|category| category.malloc + category.arena).sum::<u64>() + self.overhead
    }

    /// Blocks that these bytes are in, those of arenas excepted.
    #[must_use]
    pub fn malloc_blocks(&self) -> u64 {
        self.categories.iter().map(|category| category.blocks).sum()
    }

    /// Its regions by what they serve for. Those of unknown purpose come last.
    pub(super) fn areas(&self) -> Vec<JvmArea> {
        // Up to JDK 15 both kinds of metadata are of one category.
        let tells_metaspace = self.regions.iter().any(|region| region.purpose == "Metaspace");
        let part = |purpose: &str| match purpose {
            "Java Heap" => JvmPart::JavaHeap,
            "Metaspace" => JvmPart::Metaspace,
            "Class" if tells_metaspace => JvmPart::ClassSpace,
            "Class" => JvmPart::Metaspace,
            "Code" => JvmPart::CodeCache,
            "GC" | "GCCardSet" => JvmPart::Gc,
            "Shared class space" => JvmPart::SharedClasses,
            "Thread Stack" => JvmPart::ThreadStacks,
            _ => JvmPart::Other,
        };
        let mut areas: Vec<JvmArea> = self
            .regions
            .iter()
            .map(|region| JvmArea { start: region.start, end: region.end, part: part(&region.purpose) })
            .collect();
        areas.sort_by_key(|area| area.part == JvmPart::Other);
        areas
    }
}

/// Reads the answer.
#[must_use]
pub fn native_memory(text: &str) -> NmtAnswer {
    if text.contains("Native memory tracking is not enabled") {
        return NmtAnswer::Off;
    }
    let mut nmt = Nmt::default();
    let mut in_summary = true;
    for line in text.lines() {
        if line.starts_with("Virtual memory map:") {
            in_summary = false;
        } else if line.starts_with("Details:") {
            break;
        } else if in_summary {
            summary_line(&mut nmt, line);
        } else {
            nmt.regions.extend(region(line));
        }
    }
    if nmt.categories.is_empty() { NmtAnswer::Unknown } else { NmtAnswer::Tracked(nmt) }
}

fn summary_line(nmt: &mut Nmt, line: &str) {
    if let Some(rest) = line.strip_prefix('-') {
        let Some((name, figures)) = rest.split_once('(') else { return };
        let committed = figures.split_once("committed=").and_then(|(_, rest)| bytes(rest)).unwrap_or(0);
        nmt.categories.push(Category { name: name.trim().to_owned(), committed, ..Category::default() });
        return;
    }
    let Some(category) = nmt.categories.last_mut() else { return };
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("(malloc=") {
        category.malloc = bytes(rest).unwrap_or(0);
        category.blocks = rest.split_once('#').and_then(|(_, rest)| number(rest)).unwrap_or(0);
    } else if let Some(rest) = line.strip_prefix("(arena=") {
        category.arena = bytes(rest).unwrap_or(0);
    } else if let Some(rest) = line.strip_prefix("(tracking overhead=") {
        nmt.overhead = bytes(rest).unwrap_or(0);
    }
}

/// A region's line; those of its parts and callers are indented.
fn region(line: &str) -> Option<Region> {
    let (range, rest) = line.strip_prefix("[0x")?.split_once(']')?;
    let (start, end) = range.split_once(" - 0x")?;
    let (_, purpose) = rest.split_once(" for ")?;
    let hex = |digits: &str| u64::from_str_radix(digits.trim(), 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let purpose = purpose.trim_end();
    let purpose = purpose.strip_suffix(" from").unwrap_or(purpose).to_owned();
    (start < end).then_some(Region { start, end, purpose })
}

fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// A number of bytes. Some JVMs print a unit although bytes were asked for.
fn bytes(text: &str) -> Option<u64> {
    let digits = number(text)?;
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let scale = [("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30)]
        .iter()
        .find(|(name, _)| unit.starts_with(name))
        .map_or(1, |&(_, scale)| scale);
    digits.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As JDK 11 prints it.
    const OLD: &str = "\
Native Memory Tracking:

Total: reserved=7961689137, committed=477293617
-                 Java Heap (reserved=6320816128, committed=396361728)
                            (mmap: reserved=6320816128, committed=396361728) 
 
-                     Class (reserved=1082242887, committed=5093191)
                            (classes #513)
                            (malloc=112455 #566) 
                            (mmap: reserved=1082130432, committed=4980736) 
 
-                    Thread (reserved=17905248, committed=869984)
                            (thread #17)
                            (stack: reserved=17825792, committed=790528)
                            (malloc=61024 #104) 
                            (arena=18KB #32)
 
-    Native Memory Tracking (reserved=300000, committed=300000)
                            (malloc=1000 #20) 
                            (tracking overhead=299000)

Virtual memory map:
 
[0x0000000687400000 - 0x0000000800000000] reserved 6320816128 for Java Heap from
    [0x00007fd924539ebb] ReservedHeapSpace::try_reserve_heap(unsigned long, unsigned long, bool, char*)+0xcb

\t[0x0000000687400000 - 0x000000069ee00000] committed 396361728 from
            [0x00007fd923dee97c] G1PageBasedVirtualSpace::commit_preferred_pages(unsigned long, unsigned long)+0x6c
[0x0000000800000000 - 0x0000000840000000] reserved 1073741824 for Class from
[0x00007fd8c36ff000 - 0x00007fd8c37ff000] reserved and committed 1048576 for Thread Stack from
Details:
[0x00007fd8c36ff000 - 0x00007fd8c37ff000] reserved 1 for Nothing from
                             (malloc=99999999 type=Class #566)
";

    fn tracked(text: &str) -> Nmt {
        match native_memory(text) {
            NmtAnswer::Tracked(nmt) => nmt,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sums_and_regions_are_read() {
        let nmt = tracked(OLD);
        let of = |name: &str| nmt.categories.iter().find(|category| category.name == name).expect(name);
        assert_eq!((of("Class").malloc, of("Class").blocks, of("Class").arena), (112_455, 566, 0));
        assert_eq!((of("Thread").malloc, of("Thread").arena), (61_024, 18 << 10));
        assert_eq!(of("Java Heap").committed, 396_361_728);
        assert_eq!(nmt.malloc_bytes(), 112_455 + 61_024 + (18 << 10) + 1000 + 299_000);
        assert_eq!(nmt.malloc_blocks(), 690);
        let regions: Vec<_> = nmt.regions.iter().map(|region| region.purpose.as_str()).collect();
        assert_eq!(regions, ["Java Heap", "Class", "Thread Stack"]);
        assert_eq!(nmt.areas()[1].part, JvmPart::Metaspace, "there is no purpose of that name");
    }

    #[test]
    fn newer_versions_name_the_purpose_once_more() {
        let text = OLD.replace("(malloc=112455 #566) ", "(malloc=112455 tag=Class #566) (at peak)");
        assert_eq!(tracked(&text).categories[1].blocks, 566);
        let text = OLD.replace("for Thread Stack from", "for Metaspace from");
        let parts: Vec<_> = tracked(&text).areas().iter().map(|area| area.part).collect();
        assert_eq!(parts, [JvmPart::JavaHeap, JvmPart::ClassSpace, JvmPart::Metaspace]);
    }

    #[test]
    fn other_answers() {
        assert_eq!(native_memory("Native memory tracking is not enabled\n"), NmtAnswer::Off);
        assert_eq!(native_memory("Detail tracking is not enabled\n"), NmtAnswer::Unknown);
        assert_eq!(
            native_memory("java.lang.IllegalArgumentException: Unknown command\n"),
            NmtAnswer::Unknown
        );
        assert_eq!(native_memory(""), NmtAnswer::Unknown);
    }
}
