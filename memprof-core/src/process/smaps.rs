//! The text of `/proc/PID/smaps`: how much of each mapping is in memory.
//!
//! A mapping's line as in `maps` comes first, then one line for each figure (`Documentation/filesystems/proc.rst`):
//!
//! ```text
//! 7f1c00028000-7f1c0017d000 r-xp 00026000 fd:01 1835012      /usr/lib/x86_64-linux-gnu/libc.so.6
//! Rss:                1024 kB
//! Pss:                  57 kB
//! VmFlags: rd ex mr mw me
//! ```

use thiserror::Error;

use super::mappings::Mapping;

/// A line of the text that is neither a mapping nor a figure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("reading /proc/PID/smaps: line {line} is neither a mapping nor a figure: {text:?}")]
pub struct SmapsError {
    /// Line number, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

/// A mapping and what of it is in memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedMemory<'a> {
    /// The mapping.
    pub mapping: Mapping<'a>,
    /// In memory, huge pages of hugetlbfs excepted.
    pub rss: u64,
    /// The same, each page divided by the number of processes that map it.
    pub pss: u64,
    /// What of `rss` belongs to no file.
    pub anonymous: u64,
    /// What of `rss` is mapped by transparent huge pages.
    pub transparent_huge: u64,
    /// Swapped out.
    pub swap: u64,
    /// Huge pages of hugetlbfs that others may map, too.
    pub hugetlb_shared: u64,
    /// Huge pages of hugetlbfs of this process alone.
    pub hugetlb_private: u64,
}

/// Reads the whole text. Figures that are not known are left out.
///
/// # Errors
/// When a line is neither a mapping nor a figure.
pub fn parse(text: &str) -> Result<Vec<MappedMemory<'_>>, SmapsError> {
    let mut found: Vec<MappedMemory<'_>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(mapping) = Mapping::parse(line) {
            found.push(MappedMemory {
                mapping,
                rss: 0,
                pss: 0,
                anonymous: 0,
                transparent_huge: 0,
                swap: 0,
                hugetlb_shared: 0,
                hugetlb_private: 0,
            });
            continue;
        }
        let figure = line.split_once(':').filter(|(name, _)| !name.contains(' '));
        let (Some((name, value)), Some(memory)) = (figure, found.last_mut()) else {
            return Err(SmapsError { line: index + 1, text: line.to_owned() });
        };
        let field = match name {
            "Rss" => &mut memory.rss,
            "Pss" => &mut memory.pss,
            "Anonymous" => &mut memory.anonymous,
            "AnonHugePages" => &mut memory.transparent_huge,
            "Swap" => &mut memory.swap,
            "Shared_Hugetlb" => &mut memory.hugetlb_shared,
            "Private_Hugetlb" => &mut memory.hugetlb_private,
            _ => continue,
        };
        *field = kilobytes(value).ok_or_else(|| SmapsError { line: index + 1, text: line.to_owned() })?;
    }
    Ok(found)
}

/// `  1024 kB` in bytes.
pub(crate) fn kilobytes(value: &str) -> Option<u64> {
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0a1000000-55d0a1021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
KernelPageSize:        4 kB
Rss:                  20 kB
Pss:                  10 kB
Pss_Dirty:            10 kB
Anonymous:            20 kB
AnonHugePages:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:    2048 kB
Swap:                  8 kB
SwapPss:               8 kB
THPeligible:           0
VmFlags: rd wr mr mw me ac sd
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                   4 kB
";

    #[test]
    fn figures_belong_to_the_mapping_before_them() {
        let memory = parse(TEXT).expect("all lines are known");
        let [heap, stack] = memory[..] else { panic!("{memory:?}") };
        assert_eq!((heap.mapping.name, stack.mapping.name), ("[heap]", "[stack]"));
        assert_eq!((heap.rss, heap.pss, heap.anonymous, heap.swap), (20480, 10240, 20480, 8192));
        assert_eq!((heap.hugetlb_private, heap.hugetlb_shared, heap.transparent_huge), (2 << 20, 0, 0));
        assert_eq!((stack.rss, stack.pss), (4096, 0));
    }

    #[test]
    fn what_is_no_figure_is_named() {
        assert_eq!(parse("Rss: 4 kB\n").map_err(|error| error.line), Err(1), "a figure of no mapping");
        let text = TEXT.replace("Rss:                  20 kB", "Rss: much");
        assert_eq!(parse(&text), Err(SmapsError { line: 4, text: "Rss: much".into() }));
        let text = TEXT.replace("Rss:                  20 kB", "Rss: 18446744073709551615 kB");
        assert!(parse(&text).is_err(), "more than can be");
    }
}
