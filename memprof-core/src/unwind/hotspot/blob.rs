//! Blobs: the pieces of code in the code cache, from compiled methods to the interpreter.

use std::ops::Range;

use super::code_cache::CodeCache;
use super::layout::{CodeStart, Layout, Metadata, NmethodLayout, SectionsLayout};
use super::pc_desc::{PC_DESC, PcDescs};
use super::vm_structs::until_zero;
use super::witness::Witness;
use crate::address::Avma;
use crate::java::FrameKinds;
use crate::memory::ProcessMemory;

/// Most bytes of a blob (64 MiB). The JVM gives up on methods long before.
const MAX_BLOB: u64 = 64 << 20;

/// Most bytes of a frame (1 MiB).
const MAX_FRAME: u64 = 1 << 20;

/// Most bytes of a method's `PcDesc`s, and of its other sections (16 MiB).
const MAX_SECTION: u64 = 16 << 20;

/// Most bytes of a blob's name.
const MAX_NAME: usize = 96;

/// A piece of code.
#[derive(Debug)]
pub(super) struct Blob {
    /// Header, code and all.
    pub(super) range: Range<Avma>,
    /// Bytes of its frame with the return address, where all of its code has the same frame; else 0.
    pub(super) frame_size: u64,
    pub(super) kind: BlobKind,
}

#[derive(Debug)]
pub(super) enum BlobKind {
    /// The interpreter: all of it.
    Interpreter,
    /// A compiled method.
    Method(Box<Nmethod>),
    /// Anything else, by its name.
    Stub(Box<str>),
}

/// A compiled method, or the passage to a native one.
#[derive(Debug)]
pub(super) struct Nmethod {
    /// Its `Method`.
    pub(super) method: Avma,
    /// By which compiler, or that it is a native method's.
    pub(super) kind: FrameKinds,
    /// Where its code starts; return addresses are counted from there.
    pub(super) code: Avma,
    pub(super) pcs: PcDescs,
    /// Its scopes, as bytes.
    pub(super) scopes: Range<Avma>,
    /// Pointers to the `Method`s and other things that its scopes refer to.
    pub(super) metadata: Range<Avma>,
    /// What replaces a return address into it when it is to be deoptimized.
    pub(super) deopt_handlers: Box<[Avma]>,
    /// Where the replaced return address is, from the stack pointer.
    pub(super) orig_pc_offset: u64,
    /// What tells it from any other one while it exists.
    pub(super) witness: Witness,
}

impl Blob {
    /// Reads the blob around an address. `None` when there is none, or none that makes sense.
    pub(super) fn read(
        pc: Avma,
        cache: &CodeCache,
        layout: &Layout,
        memory: &mut ProcessMemory<'_>,
    ) -> Option<Self> {
        let block = cache.block(pc, memory)?;
        let header = Header::read(block, cache.rest(block), layout, memory)?;
        let size = u64::try_from(header.i32(layout.blob.size)?).ok()?;
        let range = header.blob..header.blob.checked_add(size)?;
        if size > MAX_BLOB || !range.contains(&pc) {
            return None;
        }
        let name = name(header.u64(layout.blob.name)?, memory)?;
        // The size is in words, and negative for some stubs that have no fixed frame.
        let frame_size = u64::try_from(header.i32(layout.blob.frame_size)?).unwrap_or(0).checked_mul(8)?;
        if frame_size > MAX_FRAME {
            return None;
        }
        let kind = match &*name {
            "Interpreter" => BlobKind::Interpreter,
            "nmethod" => BlobKind::Method(Box::new(Nmethod::read(&header, &range, false, layout, memory)?)),
            "native nmethod" => {
                BlobKind::Method(Box::new(Nmethod::read(&header, &range, true, layout, memory)?))
            }
            _ => BlobKind::Stub(name),
        };
        Some(Self { range, frame_size, kind })
    }

    /// The compiled method that it is.
    pub(super) fn method(&self) -> Option<&Nmethod> {
        match &self.kind {
            BlobKind::Method(method) => Some(method),
            BlobKind::Interpreter | BlobKind::Stub(_) => None,
        }
    }
}

impl Nmethod {
    fn read(
        header: &Header,
        range: &Range<Avma>,
        is_wrapper: bool,
        layout: &Layout,
        memory: &mut ProcessMemory<'_>,
    ) -> Option<Self> {
        let fields = &layout.nmethod;
        let method = header.u64(fields.method).filter(|&method| method != 0)?;
        let kind = match header.bytes(fields.comp_level, 1)?[0] {
            _ if is_wrapper => FrameKinds::NATIVE_WRAPPER,
            1..=3 => FrameKinds::C1,
            4 => FrameKinds::C2,
            _ => return None,
        };
        let code = header.address(layout.blob.code)?;
        if !range.contains(&code) {
            return None;
        }
        let [pcs, scopes, metadata] = sections(header, range, &fields.sections)?;
        let pcs = if is_wrapper { PcDescs::default() } else { read_pcs(&pcs, memory)? };
        let deopt_handlers = fields.deopt_handlers.iter().filter_map(|handler| header.address(*handler));
        Some(Self {
            method,
            kind,
            code,
            pcs,
            scopes,
            metadata,
            deopt_handlers: deopt_handlers.filter(|handler| range.contains(handler)).collect(),
            orig_pc_offset: u64::try_from(header.i32(fields.orig_pc_offset)?).unwrap_or(0),
            witness: header.witness(layout.cache.block_used, fields)?,
        })
    }

    /// Whether it is the passage to a native method.
    pub(super) fn is_wrapper(&self) -> bool {
        self.kind == FrameKinds::NATIVE_WRAPPER
    }

    /// The scope's offset of exactly this return address.
    pub(super) fn scope(&self, pc: Avma) -> Option<u32> {
        self.pcs.scope(pc.checked_sub(self.code)?)
    }

    /// Whether `pc` is a return address of its, as it is or replaced to deoptimize.
    pub(super) fn is_return_address(&self, pc: Avma) -> bool {
        self.is_wrapper() || self.scope(pc).is_some() || self.deopt_handlers.contains(&pc)
    }
}

/// Where a compiled method's `PcDesc`s, scopes and metadata are.
fn sections(header: &Header, blob: &Range<Avma>, layout: &SectionsLayout) -> Option<[Range<Avma>; 3]> {
    let sections = match *layout {
        SectionsLayout::InBlob { scopes_data, scopes_pcs, dependencies, metadata } => {
            let pcs = header.address(CodeStart::Offset(scopes_pcs))?;
            let scopes = header.address(scopes_data)?;
            let metadata = header.address(CodeStart::Offset(metadata))?;
            let dependencies = header.address(CodeStart::Offset(dependencies))?;
            // The metadata ends before the scopes; that it ends there at the latest is all that matters.
            [pcs..dependencies, scopes..pcs, metadata..scopes]
        }
        SectionsLayout::Apart { immutable_data, immutable_size, scopes_pcs, scopes_data, metadata } => {
            let data = header.u64(immutable_data)?;
            let at = |offset: u64| data.checked_add(u64::try_from(header.i32(offset)?).ok()?);
            let scopes = at(scopes_data)?;
            [at(scopes_pcs)?..scopes, scopes..at(immutable_size)?, metadata.range(header, blob)?]
        }
    };
    let is_sane = |section: &Range<Avma>| {
        section.end.checked_sub(section.start).is_some_and(|size| size <= MAX_SECTION)
    };
    sections.iter().all(is_sane).then_some(sections)
}

fn read_pcs(pcs: &Range<Avma>, memory: &mut ProcessMemory<'_>) -> Option<PcDescs> {
    let length = usize::try_from(pcs.end - pcs.start).ok()?;
    Some(PcDescs::parse(&memory.bytes(pcs.start, length / PC_DESC * PC_DESC)?))
}

impl Metadata {
    fn range(self, header: &Header, blob: &Range<Avma>) -> Option<Range<Avma>> {
        match self {
            Self::InData { data_offset, offset } => {
                let data = header.address(CodeStart::Offset(data_offset))?;
                Some(data.checked_add(header.u16(offset)?.into())?..blob.end)
            }
            Self::Mutable { data, size, relocation_size } => {
                let data = header.u64(data)?;
                let at = |offset: u64| data.checked_add(u64::try_from(header.i32(offset)?).ok()?);
                Some(at(relocation_size)?..at(size)?)
            }
        }
    }
}

/// A blob's header, and what precedes it.
struct Header {
    /// Where the blob starts.
    blob: Avma,
    /// What precedes it.
    block: Avma,
    bytes: Vec<u8>,
    block_size: u64,
}

impl Header {
    /// Reads a header, if its block is in use. `room` bytes are left in the heap.
    fn read(block: Avma, room: u64, layout: &Layout, memory: &mut ProcessMemory<'_>) -> Option<Self> {
        let block_size = layout.cache.block_size;
        let blob = block.checked_add(block_size)?;
        let whole = usize::try_from(block_size.checked_add(layout.nmethod.size)?.min(room)).ok()?;
        // A stub's header is shorter, and behind it may be nothing.
        let least = [layout.blob.name, layout.blob.size, layout.blob.frame_size].into_iter().max()? + 8;
        let least = usize::try_from(block_size.checked_add(least)?).ok()?;
        let bytes = match memory.bytes(block, whole) {
            Some(bytes) => bytes,
            None => memory.bytes(block, least)?,
        };
        let is_used = *bytes.get(usize::try_from(layout.cache.block_used).ok()?)? == 1;
        is_used.then_some(Self { blob, block, bytes, block_size })
    }

    fn bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(self.block_size.checked_add(offset)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    fn u64(&self, offset: u64) -> Option<u64> {
        self.bytes(offset, 8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn i32(&self, offset: u64) -> Option<i32> {
        self.bytes(offset, 4)?.try_into().ok().map(i32::from_le_bytes)
    }

    fn u16(&self, offset: u64) -> Option<u16> {
        self.bytes(offset, 2)?.try_into().ok().map(u16::from_le_bytes)
    }

    /// An address that a field says.
    fn address(&self, field: CodeStart) -> Option<Avma> {
        match field {
            CodeStart::Pointer(offset) => self.u64(offset),
            CodeStart::Offset(offset) => self.blob.checked_add(u64::try_from(self.i32(offset)?).ok()?),
        }
    }

    /// That the block is in use, by which method, by which compilation: the JVM numbers these.
    fn witness(&self, block_used: u64, fields: &NmethodLayout) -> Option<Witness> {
        let mut witness = Witness::default();
        witness.add(self.block.wrapping_add(block_used), &[1]);
        for (offset, length) in [(fields.method, 8), (fields.compile_id, 4)] {
            witness.add(self.blob.wrapping_add(offset), self.bytes(offset, length)?);
        }
        Some(witness.finish())
    }
}

/// A blob's name. Those with other characters than people write are none.
fn name(address: Avma, memory: &mut ProcessMemory<'_>) -> Option<Box<str>> {
    let mut bytes = memory.bytes(address, MAX_NAME).or_else(|| {
        // It may be the last thing in its page.
        let rest = usize::try_from(4096 - address % 4096).ok()?;
        memory.bytes(address, rest.min(MAX_NAME))
    })?;
    // A longer name is cut.
    if bytes.len() == MAX_NAME {
        *bytes.last_mut()? = 0;
    }
    let name = until_zero(&bytes)?;
    let is_text = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    (!name.is_empty() && name.bytes().all(is_text)).then(|| name.into())
}
