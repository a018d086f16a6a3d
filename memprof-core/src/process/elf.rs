//! ELF bytes to a [`ModuleImage`]. Pure: the caller has read the file.

use object::elf::{
    ELF_NOTE_GNU, EM_X86_64, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE,
    ProgramHeader64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable};
use object::{LittleEndian, ReadRef as _};
use thiserror::Error;

use super::cfi::eh_frame_address;
use super::module::{FileId, ModuleImage, Section, Segment};
use crate::address::Svma;

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// Why a mapped file is no module. Frames in it are shown as unknown code.
#[derive(Debug, Error)]
pub enum ModuleError {
    /// Not a 64-bit little-endian ELF file, or a damaged one.
    #[error("reading the ELF file {path}: {source}; frames in it stay unknown")]
    Elf {
        /// Path of the file.
        path: String,
        /// What is wrong.
        source: object::read::Error,
    },
    /// Code of another architecture.
    #[error("reading the ELF file {path}: machine {machine} is not x86-64 (62); frames in it stay unknown")]
    Machine {
        /// Path of the file.
        path: String,
        /// `e_machine` of the file.
        machine: u16,
    },
}

/// Reduces an ELF file to what unwinding and naming need.
///
/// # Errors
/// When `bytes` is not an ELF file for x86-64 with readable program headers. A file without section
/// headers, build id or unwind information is fine.
pub fn parse_elf(file: FileId, path: String, bytes: &[u8]) -> Result<ModuleImage, ModuleError> {
    match Elf::parse(bytes) {
        Ok(elf) if elf.machine != EM_X86_64 => Err(ModuleError::Machine { path, machine: elf.machine.0 }),
        Ok(elf) => Ok(elf.image(file, path)),
        Err(source) => Err(ModuleError::Elf { path, source }),
    }
}

struct Elf<'a> {
    bytes: &'a [u8],
    machine: object::elf::Machine,
    programs: &'a [ProgramHeader64<LittleEndian>],
    /// Empty when the file has no (readable) section headers.
    sections: SectionTable<'a, Header>,
}

impl<'a> Elf<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, object::read::Error> {
        let header = Header::parse(bytes)?;
        header.endian()?;
        Ok(Self {
            bytes,
            machine: header.e_machine(LE),
            programs: header.program_headers(LE, bytes)?,
            sections: header.sections(LE, bytes).unwrap_or_default(),
        })
    }

    fn image(&self, file: FileId, path: String) -> ModuleImage {
        let eh_frame_hdr = self.section(b".eh_frame_hdr").or_else(|| self.eh_frame_hdr_segment());
        let eh_frame = self
            .section(b".eh_frame")
            .or_else(|| self.rest_of_segment(eh_frame_address(eh_frame_hdr.as_ref()?)?));
        ModuleImage {
            file,
            path,
            build_id: self.build_id().unwrap_or_default().to_vec(),
            segments: self.segments(),
            text: self.text(),
            eh_frame,
            eh_frame_hdr,
        }
    }

    fn segments(&self) -> Vec<Segment> {
        let mut segments: Vec<Segment> = self
            .of_type(PT_LOAD)
            .map(|program| Segment {
                file_offset: program.p_offset(LE),
                svma: program.p_vaddr(LE),
                size: program.p_filesz(LE),
                executable: program.p_flags(LE).contains(PF_X),
            })
            .collect();
        segments.sort_by_key(|segment| segment.svma);
        segments
    }

    fn build_id(&self) -> Option<&'a [u8]> {
        self.of_type(PT_NOTE)
            .filter_map(|program| program.notes(LE, self.bytes).ok().flatten())
            .flatten()
            .filter_map(Result::ok)
            .find(|note| note.name() == ELF_NOTE_GNU && note.n_type(LE) == NT_GNU_BUILD_ID)
            .map(|note| note.desc())
    }

    fn text(&self) -> Option<(Svma, Svma)> {
        let (_, section) = self.sections.section_by_name(LE, b".text")?;
        let start = section.sh_addr(LE);
        Some((start, start.checked_add(section.sh_size(LE))?))
    }

    fn section(&self, name: &[u8]) -> Option<Section> {
        let (_, section) = self.sections.section_by_name(LE, name)?;
        let bytes = section.data(LE, self.bytes).ok().filter(|bytes| !bytes.is_empty())?;
        Some(Section { svma: section.sh_addr(LE), bytes: bytes.into() })
    }

    fn eh_frame_hdr_segment(&self) -> Option<Section> {
        let program = self.of_type(PT_GNU_EH_FRAME).next()?;
        let bytes = program.data(LE, self.bytes).ok().filter(|bytes| !bytes.is_empty())?;
        Some(Section { svma: program.p_vaddr(LE), bytes: bytes.into() })
    }

    /// From an address to the end of its segment: for `.eh_frame` without a section header. It ends
    /// itself with an empty entry.
    fn rest_of_segment(&self, svma: Svma) -> Option<Section> {
        self.of_type(PT_LOAD).find_map(|program| {
            let skip = svma.checked_sub(program.p_vaddr(LE))?;
            let size = program.p_filesz(LE).checked_sub(skip).filter(|size| *size > 0)?;
            let offset = program.p_offset(LE).checked_add(skip)?;
            let bytes = self.bytes.read_bytes_at(offset, size).ok()?;
            Some(Section { svma, bytes: bytes.into() })
        })
    }

    fn of_type(
        &self,
        kind: object::elf::ProgramType,
    ) -> impl Iterator<Item = &'a ProgramHeader64<LittleEndian>> + use<'a> {
        self.programs.iter().filter(move |program| program.p_type(LE) == kind)
    }
}
