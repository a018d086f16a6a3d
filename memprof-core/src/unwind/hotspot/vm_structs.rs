//! HotSpot's own description of its structures, which it exports for debuggers: `gHotSpotVMStructs` (fields)
//! and `gHotSpotVMTypes` (sizes). See `src/hotspot/share/runtime/vmStructs.hpp` of OpenJDK.
//!
//! Both are arrays that end with an entry without a name. Where an entry holds what, and how long it is, is
//! exported as well.

use rustc_hash::{FxHashMap, FxHashSet};

use super::OpenError;
use crate::address::Avma;
use crate::memory::{Piece, ProcessMemory};

/// Most entries of one array. The largest ones known have 1700.
const MAX_ENTRIES: usize = 8192;

/// Most bytes of one entry. Known are 40 and 48.
const MAX_STRIDE: u64 = 256;

/// Bytes read of a name, its end mark included. Longer names are none that anybody asks for.
const NAME: usize = 40;

/// Strings read at once.
const BATCH: usize = 512;

/// What an array is read by: pages that hold its start are there, those behind its end may not be.
const PAGE: u64 = 4096;

/// Fields and sizes of the structures that were asked for.
#[derive(Debug, Default)]
pub(super) struct VmStructs {
    fields: FxHashMap<(Name, Name), Field>,
    sizes: FxHashMap<Name, u64>,
}

/// A short string.
type Name = Box<str>;

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// So many bytes into its structure.
    At(u64),
    /// At this address.
    Static(Avma),
}

impl VmStructs {
    /// Reads what a JVM says about the structures `wanted`. Its exported variables are at the live addresses
    /// `symbols`.
    pub(super) fn read(
        wanted: &[&str],
        symbols: &[(&str, Avma)],
        memory: &mut ProcessMemory<'_>,
    ) -> Result<Self, OpenError> {
        let mut variable = |name: &str| -> Result<u64, OpenError> {
            let address = symbols.iter().find(|(symbol, _)| *symbol == name).map(|(_, address)| *address);
            let address = address.ok_or_else(|| unsupported(format_args!("{name} is not exported")))?;
            memory.u64(address).ok_or(OpenError::NotReady)
        };
        let fields = variable("gHotSpotVMStructs")?;
        let fields_stride = variable("gHotSpotVMStructEntryArrayStride")?;
        let type_name = variable("gHotSpotVMStructEntryTypeNameOffset")?;
        let field_name = variable("gHotSpotVMStructEntryFieldNameOffset")?;
        let is_static = variable("gHotSpotVMStructEntryIsStaticOffset")?;
        let offset = variable("gHotSpotVMStructEntryOffsetOffset")?;
        let address = variable("gHotSpotVMStructEntryAddressOffset")?;
        let types = variable("gHotSpotVMTypes")?;
        let types_stride = variable("gHotSpotVMTypeEntryArrayStride")?;
        let size_name = variable("gHotSpotVMTypeEntryTypeNameOffset")?;
        let size = variable("gHotSpotVMTypeEntrySizeOffset")?;

        let fields = entries(fields, fields_stride, type_name, memory)?;
        let types = entries(types, types_stride, size_name, memory)?;
        let owners = fields.iter().map(|entry| word(entry, type_name));
        let names = names(owners.chain(types.iter().map(|entry| word(entry, size_name))), memory);
        let wanted_name =
            |pointer: Option<u64>| names.get(&pointer?).filter(|name| wanted.contains(&&***name));

        let fields: Vec<_> =
            fields.iter().filter_map(|entry| Some((wanted_name(word(entry, type_name))?, entry))).collect();
        let field_names = self::names(fields.iter().map(|(_, entry)| word(entry, field_name)), memory);
        let mut structs = Self::default();
        for (owner, entry) in fields {
            let field = match word(entry, is_static).map(|word| word as u32) {
                None => None,
                Some(0) => word(entry, offset).map(Field::At),
                Some(_) => word(entry, address).map(Field::Static),
            };
            let name = word(entry, field_name).and_then(|pointer| field_names.get(&pointer));
            if let (Some(name), Some(field)) = (name, field) {
                structs.fields.entry((owner.clone(), name.clone())).or_insert(field);
            }
        }
        for entry in &types {
            if let (Some(name), Some(size)) = (wanted_name(word(entry, size_name)), word(entry, size)) {
                structs.sizes.entry(name.clone()).or_insert(size);
            }
        }
        Ok(structs)
    }

    /// Bytes from the start of a structure to one of its fields.
    pub(super) fn offset(&self, owner: &str, field: &str) -> Option<u64> {
        match self.field(owner, field)? {
            Field::At(offset) => Some(offset),
            Field::Static(_) => None,
        }
    }

    /// Where a static field is.
    pub(super) fn address(&self, owner: &str, field: &str) -> Option<Avma> {
        match self.field(owner, field)? {
            Field::Static(address) if address != 0 => Some(address),
            Field::Static(_) | Field::At(_) => None,
        }
    }

    /// Bytes of a structure.
    pub(super) fn size(&self, owner: &str) -> Option<u64> {
        self.sizes.get(owner).copied()
    }

    fn field(&self, owner: &str, field: &str) -> Option<Field> {
        self.fields.get(&(owner.into(), field.into())).copied()
    }
}

/// The entries of an array, up to the one whose name is missing.
fn entries(
    array: Avma,
    stride: u64,
    name: u64,
    memory: &mut ProcessMemory<'_>,
) -> Result<Vec<Box<[u8]>>, OpenError> {
    if array == 0 {
        return Err(OpenError::NotReady);
    }
    if !(8..=MAX_STRIDE).contains(&stride) || name > stride - 8 {
        return Err(unsupported(format_args!("entries of its tables have {stride} bytes")));
    }
    let stride = stride as usize;
    let mut entries = Vec::new();
    let mut bytes: Vec<u8> = Vec::new();
    let mut end = array;
    while entries.len() < MAX_ENTRIES {
        while bytes.len() < stride {
            let length = PAGE - end % PAGE;
            bytes.extend(memory.bytes(end, length as usize).ok_or(OpenError::NotReady)?);
            end = end.wrapping_add(length);
        }
        let rest = bytes.split_off(stride);
        let entry = std::mem::replace(&mut bytes, rest);
        if word(&entry, name).is_none_or(|name| name == 0) {
            return Ok(entries);
        }
        entries.push(entry.into());
    }
    Err(unsupported(format_args!("one of its tables has more than {MAX_ENTRIES} entries")))
}

/// Strings by their addresses. Those that are too long or cannot be read are missing.
fn names(
    pointers: impl Iterator<Item = Option<Avma>>,
    memory: &mut ProcessMemory<'_>,
) -> FxHashMap<Avma, Name> {
    let mut seen = FxHashSet::default();
    let pointers: Vec<Avma> =
        pointers.flatten().filter(|&pointer| pointer != 0 && seen.insert(pointer)).collect();
    let mut names = FxHashMap::default();
    for batch in pointers.chunks(BATCH) {
        let piece = |&address| Piece { address, bytes: vec![0; NAME], is_read: false };
        let mut pieces: Vec<Piece> = batch.iter().map(piece).collect();
        memory.read_pieces(&mut pieces);
        for piece in pieces.into_iter().filter(|piece| piece.is_read) {
            if let Some(name) = until_zero(&piece.bytes) {
                names.insert(piece.address, name.into());
            }
        }
    }
    names
}

/// The text before the first zero byte.
pub(super) fn until_zero(bytes: &[u8]) -> Option<&str> {
    let length = bytes.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(bytes.get(..length)?).ok()
}

/// Eight bytes of an entry, or as many as it has from there on.
fn word(entry: &[u8], offset: u64) -> Option<u64> {
    let bytes = entry.get(usize::try_from(offset).ok()?..)?;
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    (length >= 4).then(|| u64::from_le_bytes(word))
}

fn unsupported(what: std::fmt::Arguments<'_>) -> OpenError {
    OpenError::Unsupported(format!("cannot read what the JVM says about its structures: {what}"))
}
