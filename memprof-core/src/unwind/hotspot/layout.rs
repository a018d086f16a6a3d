//! Where the fields are that unwinding and naming of Java frames need, for the JDK at hand.
//!
//! Fields have moved, been renamed and been replaced over the releases. Which release a form belongs to is
//! said where it is looked up; the JDK's own description decides which one it is. A field that is in none of
//! its places makes the JVM unsupported: no offset is ever guessed.

use super::OpenError;
use super::vm_structs::VmStructs;
use crate::address::Avma;
use crate::memory::ProcessMemory;

/// Feature releases whose structures are known.
const VERSIONS: std::ops::RangeInclusive<u32> = 8..=26;

/// Most bytes of a compiled method's header. Known are 224 to 400.
const MAX_HEADER: u64 = 4096;

/// The structures whose fields are looked up.
const STRUCTURES: [&str; 23] = [
    "Abstract_VM_Version",
    "ClassLoaderData",
    "ClassLoaderDataGraph",
    "CodeBlob",
    "CodeCache",
    "CodeHeap",
    "CompiledMethod",
    "ConstMethod",
    "ConstantPool",
    "ContinuationEntry",
    "GenericGrowableArray",
    "GrowableArray<int>",
    "GrowableArrayBase",
    "HeapBlock",
    "HeapBlock::Header",
    "InstanceKlass",
    "JDK_Version",
    "Klass",
    "Method",
    "StubRoutines",
    "Symbol",
    "VirtualSpace",
    "nmethod",
];

/// Everything that is known of a JVM's structures. Offsets are in bytes.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Feature release: 17 for JDK 17.
    pub(super) version: u32,
    pub(super) cache: CacheLayout,
    pub(super) blob: BlobLayout,
    pub(super) nmethod: NmethodLayout,
    pub(super) method: MethodLayout,
    /// Where `StubRoutines::_call_stub_return_address` is.
    pub(super) call_stub_return: Avma,
    /// Where `ContinuationEntry::_return_pc` is, if it is told.
    pub(super) continuation_return: Option<Avma>,
    /// Bytes of a `ContinuationEntry`.
    pub(super) continuation_entry: u64,
}

/// The code cache: where its heaps are, and how blobs are found in one.
#[derive(Clone, Debug)]
pub(super) struct CacheLayout {
    pub(super) heaps: Heaps,
    /// `CodeHeap::_memory` and `_segmap`, each a `VirtualSpace`.
    pub(super) memory: u64,
    pub(super) segmap: u64,
    pub(super) log2_segment_size: u64,
    /// In a `VirtualSpace`: its reserved range.
    pub(super) low_boundary: u64,
    pub(super) high_boundary: u64,
    /// What precedes a blob: its size, and where in it the mark is that the block is in use.
    pub(super) block_size: u64,
    pub(super) block_used: u64,
}

/// Where the code heaps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heaps {
    /// JDK 8: a pointer to the only one.
    One(Avma),
    /// From JDK 9 on: a pointer to an array of pointers.
    Array { pointer: Avma, len: u64, data: u64 },
}

/// `CodeBlob`: a piece of code.
#[derive(Clone, Debug)]
pub(super) struct BlobLayout {
    pub(super) name: u64,
    pub(super) size: u64,
    pub(super) frame_size: u64,
    pub(super) code: CodeStart,
}

/// Where a blob says that its code starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeStart {
    /// JDK 9 to 22: a pointer.
    Pointer(u64),
    /// JDK 8, and from 23 on: four bytes, counted from the blob.
    Offset(u64),
}

/// `nmethod`: the blob of a compiled method.
#[derive(Clone, Debug)]
pub(super) struct NmethodLayout {
    /// Bytes of its header, in which all of these fields are.
    pub(super) size: u64,
    pub(super) method: u64,
    pub(super) compile_id: u64,
    pub(super) comp_level: u64,
    pub(super) orig_pc_offset: u64,
    /// The handlers that replace the return address into a method to be deoptimized.
    pub(super) deopt_handlers: Vec<CodeStart>,
    pub(super) sections: SectionsLayout,
}

/// Where a compiled method keeps its `PcDesc`s, its scopes and the metadata that these refer to. All fields
/// but pointers and those of two bytes are of four bytes.
#[derive(Clone, Debug)]
pub(super) enum SectionsLayout {
    /// Up to JDK 22: behind its code.
    InBlob { scopes_data: CodeStart, scopes_pcs: u64, dependencies: u64, metadata: u64 },
    /// From JDK 23 on: in memory of their own.
    Apart { immutable_data: u64, immutable_size: u64, scopes_pcs: u64, scopes_data: u64, metadata: Metadata },
}

/// Where the metadata is from JDK 23 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metadata {
    /// JDK 23 and 24: `offset` (two bytes) behind the blob's data, up to the blob's end.
    InData { data_offset: u64, offset: u64 },
    /// From JDK 25 on: behind the relocations, in memory of its own.
    Mutable { data: u64, size: u64, relocation_size: u64 },
}

/// `Method` and what its name and lines are read from.
#[derive(Clone, Debug)]
pub(super) struct MethodLayout {
    /// `Method::_constMethod`.
    pub(super) const_method: u64,
    pub(super) const_: ConstMethodLayout,
    /// `ConstantPool::_pool_holder`, a pointer.
    pub(super) pool_holder: u64,
    /// Bytes of a `ConstantPool`; its slots of eight bytes follow.
    pub(super) pool_size: u64,
    pub(super) source_file: SourceFile,
    /// `Klass::_name`, a pointer to a `Symbol`.
    pub(super) klass_name: u64,
    /// The loaders of classes, if they are told.
    pub(super) loaders: Option<LoadersLayout>,
    /// `Symbol::_length`, two bytes.
    pub(super) symbol_length: u64,
    /// `Symbol::_body`, the first byte of its text.
    pub(super) symbol_body: u64,
}

/// Class loaders (`ClassLoaderData`).
#[derive(Clone, Debug)]
pub(super) struct LoadersLayout {
    /// Where `ClassLoaderDataGraph::_head` is, a pointer to the first one.
    pub(super) head: Avma,
    /// `ClassLoaderData::_next`, a pointer.
    pub(super) next: u64,
    /// `Klass::_class_loader_data`, a pointer to the loader of a class.
    pub(super) of_class: u64,
}

/// `ConstMethod`. Its fields have two bytes but for the pointer.
#[derive(Clone, Debug)]
pub(super) struct ConstMethodLayout {
    /// Bytes of it; the bytecodes follow.
    pub(super) size: u64,
    /// A pointer to the `ConstantPool`.
    pub(super) constants: u64,
    pub(super) name_index: u64,
    pub(super) signature_index: u64,
    pub(super) code_size: u64,
    /// Bit 0: there is a line table behind the bytecodes.
    pub(super) flags: u64,
}

/// Where the index of a class's source file is, two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceFile {
    /// Up to JDK 11 or so: in the `InstanceKlass`.
    Klass(u64),
    /// After that: in the `ConstantPool`.
    Pool(u64),
}

impl Layout {
    /// Reads the layout of a JVM whose exported variables are at these live addresses.
    pub(super) fn read(symbols: &[(&str, Avma)], memory: &mut ProcessMemory<'_>) -> Result<Self, OpenError> {
        let structs = VmStructs::read(&STRUCTURES, symbols, memory)?;
        let version = version(&structs, memory)?;
        if !VERSIONS.contains(&version) {
            let (first, last) = (VERSIONS.start(), VERSIONS.end());
            let reason = format!("this is JDK {version}; the structures of JDK {first} to {last} are known");
            return Err(OpenError::Unsupported(reason));
        }
        Lookup { structs: &structs, version }.layout()
    }

    /// What UNSIGNED5 numbers add to each byte (`src/hotspot/share/utilities/unsigned5.hpp`): from JDK 20 on,
    /// no byte is zero.
    pub(super) fn unsigned5_bias(&self) -> u8 {
        u8::from(self.version >= 20)
    }
}

/// The feature release: up to JDK 21 in `JDK_Version`, from 22 on the number of the VM itself.
fn version(structs: &VmStructs, memory: &mut ProcessMemory<'_>) -> Result<u32, OpenError> {
    let current = structs.address("JDK_Version", "_current");
    let version = match (current, structs.offset("JDK_Version", "_major")) {
        (Some(current), Some(major)) => memory.u32(current.wrapping_add(major)).map(|word| word & 0xff),
        _ => match structs.address("Abstract_VM_Version", "_vm_major_version") {
            Some(address) => memory.u32(address),
            None => return Err(OpenError::Unsupported("the JVM does not say its version".into())),
        },
    };
    version.filter(|&version| version != 0).ok_or(OpenError::NotReady)
}

/// Looks fields up, in the places where they have been.
struct Lookup<'a> {
    structs: &'a VmStructs,
    version: u32,
}

impl Lookup<'_> {
    fn layout(&self) -> Result<Layout, OpenError> {
        Ok(Layout {
            version: self.version,
            cache: self.cache()?,
            blob: self.blob()?,
            nmethod: self.nmethod()?,
            method: self.method()?,
            call_stub_return: self.address("StubRoutines", "_call_stub_return_address")?,
            continuation_return: self.structs.address("ContinuationEntry", "_return_pc"),
            // JDK 21 to 24 do not say.
            continuation_entry: self
                .structs
                .size("ContinuationEntry")
                .filter(|&size| size < 4096)
                .unwrap_or(64),
        })
    }

    fn cache(&self) -> Result<CacheLayout, OpenError> {
        let heaps = match self.structs.address("CodeCache", "_heap") {
            Some(pointer) => Heaps::One(pointer),
            None => Heaps::Array {
                pointer: self.address("CodeCache", "_heaps")?,
                len: self.any(&[("GrowableArrayBase", "_len"), ("GenericGrowableArray", "_len")])?,
                data: self.offset("GrowableArray<int>", "_data")?,
            },
        };
        let block_header = self.offset("HeapBlock", "_header")?;
        Ok(CacheLayout {
            heaps,
            memory: self.offset("CodeHeap", "_memory")?,
            segmap: self.offset("CodeHeap", "_segmap")?,
            log2_segment_size: self.offset("CodeHeap", "_log2_segment_size")?,
            low_boundary: self.offset("VirtualSpace", "_low_boundary")?,
            high_boundary: self.offset("VirtualSpace", "_high_boundary")?,
            block_size: self.size("HeapBlock")?,
            block_used: block_header.wrapping_add(self.offset("HeapBlock::Header", "_used")?),
        })
    }

    fn blob(&self) -> Result<BlobLayout, OpenError> {
        let code = match self.structs.offset("CodeBlob", "_code_begin") {
            Some(offset) => CodeStart::Pointer(offset),
            None => CodeStart::Offset(self.offset("CodeBlob", "_code_offset")?),
        };
        Ok(BlobLayout {
            name: self.offset("CodeBlob", "_name")?,
            size: self.offset("CodeBlob", "_size")?,
            frame_size: self.offset("CodeBlob", "_frame_size")?,
            code,
        })
    }

    fn nmethod(&self) -> Result<NmethodLayout, OpenError> {
        let size = self.size("nmethod")?;
        if size > MAX_HEADER {
            return Err(self.unsupported(format_args!("an nmethod has {size} bytes")));
        }
        Ok(NmethodLayout {
            size,
            // JDK 9 to 22 have a CompiledMethod between CodeBlob and nmethod.
            method: self.any(&[("nmethod", "_method"), ("CompiledMethod", "_method")])?,
            compile_id: self.offset("nmethod", "_compile_id")?,
            comp_level: self.offset("nmethod", "_comp_level")?,
            orig_pc_offset: self.offset("nmethod", "_orig_pc_offset")?,
            deopt_handlers: self.deopt_handlers()?,
            sections: self.sections()?,
        })
    }

    /// The second one, for calls of method handles, is gone from JDK 26 on.
    fn deopt_handlers(&self) -> Result<Vec<CodeStart>, OpenError> {
        let pointers = ["_deopt_handler_begin", "_deopt_mh_handler_begin"];
        let pointers = pointers.iter().filter_map(|field| self.structs.offset("CompiledMethod", field));
        let offsets = [
            // JDK 8.
            "_deoptimize_offset",
            "_deoptimize_mh_offset",
            // JDK 23 to 25.
            "_deopt_handler_offset",
            "_deopt_mh_handler_offset",
            // From JDK 26 on.
            "_deopt_handler_entry_offset",
        ];
        let offsets = offsets.iter().filter_map(|field| self.structs.offset("nmethod", field));
        let handlers: Vec<_> =
            pointers.map(CodeStart::Pointer).chain(offsets.map(CodeStart::Offset)).collect();
        if handlers.is_empty() { Err(self.missing("nmethod", "_deopt_handler_offset")) } else { Ok(handlers) }
    }

    fn sections(&self) -> Result<SectionsLayout, OpenError> {
        let scopes_pcs = self.offset("nmethod", "_scopes_pcs_offset")?;
        let Some(immutable_data) = self.structs.offset("nmethod", "_immutable_data") else {
            let scopes_data = match self.structs.offset("CompiledMethod", "_scopes_data_begin") {
                Some(offset) => CodeStart::Pointer(offset),
                None => CodeStart::Offset(self.offset("nmethod", "_scopes_data_offset")?),
            };
            return Ok(SectionsLayout::InBlob {
                scopes_data,
                scopes_pcs,
                dependencies: self.offset("nmethod", "_dependencies_offset")?,
                metadata: self.offset("nmethod", "_metadata_offset")?,
            });
        };
        let metadata = match self.structs.offset("CodeBlob", "_mutable_data") {
            Some(data) => Metadata::Mutable {
                data,
                size: self.offset("CodeBlob", "_mutable_data_size")?,
                relocation_size: self.offset("CodeBlob", "_relocation_size")?,
            },
            None => Metadata::InData {
                data_offset: self.offset("CodeBlob", "_data_offset")?,
                offset: self.offset("nmethod", "_metadata_offset")?,
            },
        };
        Ok(SectionsLayout::Apart {
            immutable_data,
            immutable_size: self.offset("nmethod", "_immutable_data_size")?,
            scopes_pcs,
            scopes_data: self.offset("nmethod", "_scopes_data_offset")?,
            metadata,
        })
    }

    fn method(&self) -> Result<MethodLayout, OpenError> {
        let source_file = match self.structs.offset("ConstantPool", "_source_file_name_index") {
            Some(offset) => SourceFile::Pool(offset),
            None => SourceFile::Klass(self.offset("InstanceKlass", "_source_file_name_index")?),
        };
        // Some releases put length and reference count in one word; the length is its upper half.
        let symbol_length = match self.structs.offset("Symbol", "_length_and_refcount") {
            Some(both) => both.wrapping_add(2),
            None => self.offset("Symbol", "_length")?,
        };
        Ok(MethodLayout {
            const_method: self.offset("Method", "_constMethod")?,
            const_: ConstMethodLayout {
                size: self.size("ConstMethod")?,
                constants: self.offset("ConstMethod", "_constants")?,
                name_index: self.offset("ConstMethod", "_name_index")?,
                signature_index: self.offset("ConstMethod", "_signature_index")?,
                code_size: self.offset("ConstMethod", "_code_size")?,
                flags: self.any(&[("ConstMethod", "_flags"), ("ConstMethod", "_flags._flags")])?,
            },
            pool_holder: self.offset("ConstantPool", "_pool_holder")?,
            pool_size: self.size("ConstantPool")?,
            source_file,
            klass_name: self.offset("Klass", "_name")?,
            loaders: self.loaders(),
            symbol_length,
            symbol_body: self.any(&[("Symbol", "_body"), ("Symbol", "_body[0]")])?,
        })
    }

    fn loaders(&self) -> Option<LoadersLayout> {
        Some(LoadersLayout {
            head: self.structs.address("ClassLoaderDataGraph", "_head")?,
            next: self.structs.offset("ClassLoaderData", "_next")?,
            of_class: self.structs.offset("Klass", "_class_loader_data")?,
        })
    }

    fn offset(&self, owner: &str, field: &str) -> Result<u64, OpenError> {
        self.structs.offset(owner, field).ok_or_else(|| self.missing(owner, field))
    }

    /// The first of several fields that there is.
    fn any(&self, fields: &[(&str, &str)]) -> Result<u64, OpenError> {
        let found = fields.iter().find_map(|(owner, field)| self.structs.offset(owner, field));
        found.ok_or_else(|| {
            let (owner, field) = fields.first().copied().unwrap_or_default();
            self.missing(owner, field)
        })
    }

    fn address(&self, owner: &str, field: &str) -> Result<Avma, OpenError> {
        self.structs.address(owner, field).ok_or_else(|| self.missing(owner, field))
    }

    fn size(&self, owner: &str) -> Result<u64, OpenError> {
        let size = self.structs.size(owner).filter(|&size| size != 0);
        size.ok_or_else(|| self.unsupported(format_args!("the size of {owner} is not told")))
    }

    fn missing(&self, owner: &str, field: &str) -> OpenError {
        self.unsupported(format_args!("{owner}::{field} is not told"))
    }

    fn unsupported(&self, what: std::fmt::Arguments<'_>) -> OpenError {
        OpenError::Unsupported(format!("the structures of this JDK {} are not known: {what}", self.version))
    }
}
