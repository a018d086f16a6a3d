//! Which allocator a process has.

use std::fmt;

use serde::Serialize;

use crate::process::mappings::Mapping;

/// A version of glibc: 2.36 is (2, 36).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version(pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Where libc's version may be in a process: its mappings that are not written to. (The read-only data lie behind
/// the code; before 2.28 they are part of it.)
pub fn read_only_data<'a>(mappings: &'a [Mapping<'a>]) -> impl Iterator<Item = &'a Mapping<'a>> {
    mappings.iter().rev().filter(|mapping| is_libc(mapping) && !mapping.read_write && !mapping.no_access)
}

/// No more of libc's read-only data needs to be searched for the version.
pub const MAX_VERSION_BYTES: u64 = 4 << 20;

/// What stands before the version in libc's read-only data (`csu/version.c`).
const BANNER: &[u8] = b"GNU C Library ";

/// Reads the version from libc's read-only data: `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`
#[must_use]
pub fn version(read_only_data: &[u8]) -> Option<Version> {
    let start = find(read_only_data, BANNER)?;
    let text = &read_only_data[start..read_only_data.len().min(start + 256)];
    let marker = b"release version ";
    let at = find(text, marker)? + marker.len();
    let digits: String = text[at..]
        .iter()
        .map(|&byte| char::from(byte))
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let mut numbers = digits.split('.').map(str::parse);
    Some(Version(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Libraries of other allocators: what the file's name starts with, and what it is called.
const OTHERS: [(&str, &str); 8] = [
    ("libjemalloc", "jemalloc"),
    ("libtcmalloc", "tcmalloc"),
    ("libmimalloc", "mimalloc"),
    ("libsnmalloc", "snmalloc"),
    ("librpmalloc", "rpmalloc"),
    ("libhoard", "Hoard"),
    ("libtbbmalloc", "TBB malloc"),
    ("ld-musl-", "musl malloc"),
];

/// Another allocator whose library the process maps, by name. One that is linked into the program shows itself only
/// by what glibc's does not hold.
#[must_use]
pub fn other_allocator(mappings: &[Mapping<'_>]) -> Option<&'static str> {
    mappings.iter().filter(|mapping| mapping.executable).find_map(|mapping| {
        let name = mapping.path().rsplit('/').next()?;
        OTHERS.iter().find(|(start, _)| name.starts_with(start)).map(|&(_, called)| called)
    })
}

/// Whether this is the mapping of glibc's library: `libc.so.6`, `libc-2.31.so`.
pub(super) fn is_libc(mapping: &Mapping<'_>) -> bool {
    let name = mapping.path().rsplit('/').next().unwrap_or_default();
    mapping.file.is_some() && (name == "libc.so.6" || (name.starts_with("libc-2.") && name.ends_with(".so")))
}
