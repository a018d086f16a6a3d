//! Where members of kernel structures are in the running kernel, from its own type information
//! (`/sys/kernel/btf/vmlinux`, format: the kernel's `include/uapi/linux/btf.h`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use memprof_common::settings::KernelOffsets;
use thiserror::Error;

/// Where the running kernel shows its types.
pub(crate) const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Why the kernel's types could not be read.
#[derive(Debug, Error)]
pub(crate) enum BtfError {
    /// The file could not be read.
    #[error(
        "cannot read the kernel's types from {path} (is the kernel built with CONFIG_DEBUG_INFO_BTF?): {source}"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("cannot understand the kernel's types: {0}")]
    Format(String),
}

/// The members that the probes need, as far as the kernel has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelLayout {
    /// Byte offsets; [`KernelOffsets::UNKNOWN`] for each that is missing.
    pub(crate) offsets: KernelOffsets,
    /// Names of the members that the kernel does not have (`struct.member`).
    pub(crate) missing: Vec<&'static str>,
}

impl KernelLayout {
    /// Reads the layout of the kernel that `path` describes; for the running one, [`KERNEL_BTF`].
    ///
    /// # Errors
    /// When the file cannot be read or is no BTF. A missing member is no error.
    pub(crate) fn read(path: &Path) -> Result<Self, BtfError> {
        let bytes = fs::read(path).map_err(|source| BtfError::Read { path: path.to_owned(), source })?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, BtfError> {
        let types = Types::parse(bytes)?;
        let mut missing = Vec::new();
        let mut offset = |name: &'static str| {
            let (structure, path) = name.split_once('.').unwrap_or((name, ""));
            types.member_offset(structure, path).unwrap_or_else(|| {
                missing.push(name);
                KernelOffsets::UNKNOWN
            })
        };
        let offsets = KernelOffsets {
            task_fsbase: offset("task_struct.thread.fsbase"),
            task_mm: offset("task_struct.mm"),
            mm_start_stack: offset("mm_struct.start_stack"),
            task_utask: offset("task_struct.utask"),
            utask_return_instances: offset("uprobe_task.return_instances"),
            return_instance_stack: offset("return_instance.stack"),
            return_instance_original: offset("return_instance.orig_ret_vaddr"),
            return_instance_next: offset("return_instance.next"),
            task_tgid: offset("task_struct.tgid"),
            task_start_boottime: offset("task_struct.start_boottime"),
            mm_brk: offset("mm_struct.brk"),
            reserved: 0,
        };
        Ok(Self { offsets, missing })
    }
}

const MAGIC: u16 = 0xeb9f;
const HEADER_SIZE: usize = 24;

/// Kinds of types, by their number in the format.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// The type section: all types one after the other, numbered from 1.
struct Types<'a> {
    data: &'a [u8],
    strings: &'a [u8],
    /// Where type N+1 starts in `data`.
    starts: Vec<u32>,
    /// Numbers of the structures.
    structures: Vec<u32>,
}

impl<'a> Types<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let format = |what: &str| BtfError::Format(what.to_owned());
        let header = bytes.get(..HEADER_SIZE).ok_or_else(|| format("shorter than its header"))?;
        if header[..2] != MAGIC.to_ne_bytes() {
            return Err(format("no BTF magic number in this machine's byte order"));
        }
        let word = |at| word(header, at).map(|value| value as usize);
        let section = |offset, length| {
            let body = bytes.get(word(4)?..)?;
            let start: usize = word(offset)?;
            body.get(start..start.checked_add(word(length)?)?)
        };
        let data = section(8, 12).ok_or_else(|| format("types outside of the file"))?;
        let strings = section(16, 20).ok_or_else(|| format("strings outside of the file"))?;
        let mut types = Self { data, strings, starts: Vec::new(), structures: Vec::new() };
        types.index()?;
        Ok(types)
    }

    /// Finds the start of every type: they are of different lengths, so each leads to the next.
    fn index(&mut self) -> Result<(), BtfError> {
        let mut at = 0;
        while at < self.data.len() {
            let number = self.starts.len() as u32 + 1;
            let record = Record::read(self.data, at)
                .ok_or_else(|| BtfError::Format(format!("type {number} is cut off")))?;
            let extra = record.extra_size().ok_or_else(|| {
                BtfError::Format(format!(
                    "type {number} is of kind {}, which is newer than this program",
                    record.kind
                ))
            })?;
            self.starts.push(at as u32);
            if record.kind == kind::STRUCT {
                self.structures.push(number);
            }
            at += Record::SIZE + extra;
        }
        Ok(())
    }

    /// Byte offset of a member of a named structure; `path` goes through nested ones (`thread.fsbase`).
    fn member_offset(&self, structure: &str, path: &str) -> Option<u32> {
        self.structures.iter().find_map(|&number| {
            // Several structures may have one name.
            if !self.is_string(self.record(number)?.name, structure.as_bytes()) {
                return None;
            }
            let mut number = number;
            let mut bits = 0;
            for name in path.split('.') {
                let (offset, member) = self.member(self.resolve(number)?, name.as_bytes(), 0)?;
                bits += offset;
                number = member;
            }
            (bits % 8 == 0).then_some(bits / 8)
        })
    }

    /// Offset in bits and type of a member, also inside of members without a name. Bit fields have no
    /// byte offset and are not found.
    fn member(&self, number: u32, name: &[u8], depth: u32) -> Option<(u32, u32)> {
        /// More levels than any kernel structure nests; stops a type that contains itself.
        const MAX_DEPTH: u32 = 16;
        let record = self.record(number)?;
        if !matches!(record.kind, kind::STRUCT | kind::UNION) || depth > MAX_DEPTH {
            return None;
        }
        (0..record.count).find_map(|index| {
            let at = record.at + Record::SIZE + index * 12;
            let (member_name, member_type) = (word(self.data, at)?, word(self.data, at + 4)?);
            let packed = word(self.data, at + 8)?;
            let (bits, width) = if record.flag { (packed & 0xff_ffff, packed >> 24) } else { (packed, 0) };
            if self.is_string(member_name, name) {
                (width == 0).then_some((bits, member_type))
            } else if self.is_string(member_name, b"") {
                let (inner, found) = self.member(self.resolve(member_type)?, name, depth + 1)?;
                Some((bits + inner, found))
            } else {
                None
            }
        })
    }

    /// The type behind typedefs and qualifiers.
    fn resolve(&self, mut number: u32) -> Option<u32> {
        // A chain cannot be longer than there are kinds of links a few times over; a longer one is a loop.
        for _ in 0..32 {
            let record = self.record(number)?;
            match record.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    number = record.size_or_type;
                }
                _ => return Some(number),
            }
        }
        None
    }

    fn record(&self, number: u32) -> Option<Record> {
        let start = self.starts.get(number.checked_sub(1)? as usize)?;
        Record::read(self.data, *start as usize)
    }

    /// Whether the string at this offset is `text`.
    fn is_string(&self, offset: u32, text: &[u8]) -> bool {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.strip_prefix(text).is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// The part that all types have.
struct Record {
    at: usize,
    name: u32,
    kind: u32,
    /// Members, parameters or values.
    count: usize,
    /// In structures: members are packed as (width, offset).
    flag: bool,
    size_or_type: u32,
}

impl Record {
    const SIZE: usize = 12;

    fn read(data: &[u8], at: usize) -> Option<Self> {
        let info = word(data, at + 4)?;
        Some(Self {
            at,
            name: word(data, at)?,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            flag: info >> 31 == 1,
            size_or_type: word(data, at + 8)?,
        })
    }

    /// Bytes that follow the common part; `None` for kinds that are not known.
    fn extra_size(&self) -> Option<usize> {
        Some(match self.kind {
            kind::PTR
            | kind::FWD
            | kind::TYPEDEF
            | kind::VOLATILE
            | kind::CONST
            | kind::RESTRICT
            | kind::FUNC
            | kind::FLOAT
            | kind::TYPE_TAG => 0,
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::ENUM | kind::FUNC_PROTO => self.count * 8,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => self.count * 12,
            _ => return None,
        })
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
