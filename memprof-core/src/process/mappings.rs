//! The text of `/proc/PID/maps`: which code is where.
//!
//! ```text
//! 7f1c00028000-7f1c0017d000 r-xp 00026000 fd:01 1835012      /usr/lib/x86_64-linux-gnu/libc.so.6
//! start        end          perm offset   dev   inode        name, perhaps followed by " (deleted)"
//! ```
//! The names come from the watched process, so that nothing in them may make the parser fail.

use rustc_hash::FxHashSet;
use thiserror::Error;

use super::jvm::is_libjvm;
use super::module::FileId;
use crate::address::Avma;

/// A line of the text that is no mapping.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("reading /proc/PID/maps: line {line} is no mapping: {text:?}")]
pub struct MappingsError {
    /// Line number, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

/// A file that a process maps as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFile {
    /// Which file.
    pub file: FileId,
    /// Its path as the process sees it.
    pub path: String,
    /// Whether it has been deleted (or replaced), so that the path leads elsewhere.
    pub deleted: bool,
    /// Start of its first executable mapping; with `end` the name in `/proc/PID/map_files`.
    pub start: Avma,
    /// End of that mapping.
    pub end: Avma,
}

/// The files that the text says are mapped as code, each once, in order of address. Lines that cannot
/// be read are left out.
#[must_use]
pub fn code_files(text: &str) -> Vec<CodeFile> {
    let mut seen = FxHashSet::default();
    text.lines()
        .filter_map(Mapping::parse)
        .filter(|mapping| mapping.executable)
        .filter_map(|mapping| Some((mapping, mapping.file?)))
        .filter(|(_, file)| seen.insert(*file))
        .map(|(mapping, file)| CodeFile {
            file,
            path: mapping.path().to_owned(),
            deleted: mapping.is_deleted(),
            start: mapping.start,
            end: mapping.end,
        })
        .collect()
}

/// Reads the whole text.
///
/// # Errors
/// When a line is no mapping.
pub fn parse(text: &str) -> Result<Vec<Mapping<'_>>, MappingsError> {
    text.lines()
        .enumerate()
        .map(|(i, line)| {
            Mapping::parse(line).ok_or_else(|| MappingsError { line: i + 1, text: line.to_owned() })
        })
        .collect()
}

/// One line of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address.
    pub start: Avma,
    /// One past the last address.
    pub end: Avma,
    /// Whether it may be read and written.
    pub read_write: bool,
    /// Whether it may be neither read, written nor run: a guard, or room kept for later.
    pub no_access: bool,
    /// Whether code may run here.
    pub executable: bool,
    /// Whether what is written here is seen by others who map it.
    pub shared: bool,
    /// Offset in the file of the first address.
    pub offset: u64,
    /// The file behind the mapping, if there is one.
    pub file: Option<FileId>,
    /// Path or `[name]` as printed, empty for an anonymous mapping.
    pub name: &'a str,
}

/// What the kernel appends to the path of a file that has no name any more.
const DELETED: &str = " (deleted)";

impl<'a> Mapping<'a> {
    /// Path without the mark of a deleted file.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.name.strip_suffix(DELETED).unwrap_or(self.name)
    }

    /// Whether the file has no name any more.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.name.ends_with(DELETED)
    }

    /// Whether this is memory without a file or a purpose that the kernel knows. (Since Linux 5.17 a
    /// process may name such memory.)
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.file.is_none() && (self.name.is_empty() || self.name.starts_with("[anon:"))
    }

    /// Whether the kernel keeps its uprobe trampoline here.
    #[must_use]
    pub fn is_uprobes(&self) -> bool {
        self.file.is_none() && self.name == "[uprobes]"
    }

    /// Whether this is a JVM's library, see [`is_libjvm`].
    #[must_use]
    pub fn is_libjvm(&self) -> bool {
        self.file.is_some() && is_libjvm(self.path())
    }

    /// Reads one line; none when it is no mapping.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        // The name may hold spaces, so it is all that follows the fifth field.
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?.as_bytes();
        let offset = fields.next()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode: u64 = fields.next()?.parse().ok()?;
        let name = fields.next().unwrap_or_default().trim_start_matches(' ');

        let (start, end) = (hex(start)?, hex(end)?);
        let file = FileId { major: hex(major)?.try_into().ok()?, minor: hex(minor)?.try_into().ok()?, inode };
        (start < end).then_some(Self {
            start,
            end,
            read_write: permissions.starts_with(b"rw"),
            no_access: permissions.starts_with(b"---"),
            executable: permissions.get(2) == Some(&b'x'),
            shared: permissions.get(3) == Some(&b's'),
            offset: hex(offset)?,
            file: (inode != 0).then_some(file),
            name,
        })
    }
}

pub(super) fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0a0000000-55d0a0001000 r--p 00000000 fd:01 4242                       /opt/my app/server
55d0a0001000-55d0a0009000 r-xp 00001000 fd:01 4242                       /opt/my app/server
55d0a1000000-55d0a1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000270000 rwxp 00000000 00:00 0 
7f0000270000-7f0000300000 rwxp 00000000 00:00 0                          [anon:code]
7f1000000000-7f1000001000 r-xp 00000000 103:0a 7                         /SYSV
7f1000001000-7f1000002000 r-xp 00002000 103:0a 7                         /SYSV
7f1000002000-7f1000003000 r-xp 00000000 00:1f 99                         /usr/lib/libjvm.so (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00021000-7ffc00022000 r-xp 00000000 00:00 0                          [vdso]
7fffffffe000-7ffffffff000 --xp 00000000 00:00 0                          [uprobes]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn every_kind_of_line() {
        let maps = parse(TEXT).expect("all lines are mappings");
        assert_eq!(maps.len(), 12);
        let server = maps[1];
        assert_eq!((server.start, server.end, server.offset), (0x55d0_a000_1000, 0x55d0_a000_9000, 0x1000));
        assert_eq!(server.file, Some(FileId { major: 0xfd, minor: 1, inode: 4242 }));
        assert_eq!(
            (server.path(), server.executable, server.is_deleted()),
            ("/opt/my app/server", true, false)
        );
        assert!(!maps[0].executable);

        let anonymous: Vec<bool> = maps.iter().map(Mapping::is_anonymous).collect();
        assert_eq!(anonymous.iter().filter(|is| **is).count(), 2, "unnamed and [anon:…] only");
        assert!(anonymous[3] && anonymous[4]);
        assert!(maps[7].is_libjvm() && maps[7].is_deleted() && maps[7].path() == "/usr/lib/libjvm.so");
        assert!(maps[10].is_uprobes() && maps[10].executable);
        assert_eq!(maps.iter().filter(|map| map.is_uprobes()).count(), 1);
    }

    #[test]
    fn code_files_are_executable_and_listed_once() {
        let files = code_files(TEXT);
        let facts: Vec<_> = files.iter().map(|f| (f.path.as_str(), f.deleted, f.start, f.end)).collect();
        assert_eq!(
            facts,
            [
                ("/opt/my app/server", false, 0x55d0_a000_1000, 0x55d0_a000_9000),
                ("/SYSV", false, 0x7f10_0000_0000, 0x7f10_0000_1000),
                ("/usr/lib/libjvm.so", true, 0x7f10_0000_2000, 0x7f10_0000_3000),
            ]
        );
        assert_eq!(files[1].file, FileId { major: 0x103, minor: 10, inode: 7 });
    }

    #[test]
    fn what_is_no_mapping_is_named() {
        let text = "55d0a0000000-55d0a0001000 r--p 00000000 fd:01 4242 /a\nnonsense\n";
        let error = parse(text).expect_err("the second line is no mapping");
        assert_eq!(error, MappingsError { line: 2, text: "nonsense".to_owned() });
        for line in ["2000-1000 r-xp 0 0:0 0 ", "1000-2000 r-xp 0 0 0 ", "1000-2000 r-xp", ""] {
            assert_eq!(Mapping::parse(line), None, "{line:?}");
        }
        assert!(parse("").expect("no lines").is_empty());
        assert_eq!(parse("1000-2000 r-xp 0 0:0 0").expect("no trailing space").len(), 1);
    }
}
