//! Modules: files mapped as code, reduced to what unwinding and naming need.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cfi::Cfi;
pub use super::elf::{ModuleError, parse_elf};
use crate::address::{Avma, Svma};

/// Which file: device and inode as `/proc/PID/maps` prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// Device major number.
    pub major: u32,
    /// Device minor number.
    pub minor: u32,
    /// Inode number.
    pub inode: u64,
}

/// Identity of a module within a session: its position among the module inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleIndex(pub u32);

/// A part of a module's file that is mapped into memory (an ELF `PT_LOAD` program header).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Offset in the file.
    pub file_offset: u64,
    /// Address as linked.
    pub svma: Svma,
    /// Bytes in the file.
    pub size: u64,
    /// Whether it holds code.
    pub executable: bool,
}

/// A section's bytes and the address they are linked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Address as linked.
    pub svma: Svma,
    /// Content.
    pub bytes: Arc<[u8]>,
}

/// What the core keeps of a module's file. It travels in recordings, so that a replay needs no file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleImage {
    /// Which file.
    pub file: FileId,
    /// Path as the process sees it.
    pub path: String,
    /// GNU build id, empty when the file has none.
    pub build_id: Vec<u8>,
    /// Loadable segments by ascending address.
    pub segments: Vec<Segment>,
    /// Address range of `.text` as linked, when the file has section headers.
    pub text: Option<(Svma, Svma)>,
    /// `.eh_frame`
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`
    pub eh_frame_hdr: Option<Section>,
}

/// A module of the session: its image, and its unwind information indexed by address.
#[derive(Debug)]
pub struct Module {
    /// Its identity in the session.
    pub index: ModuleIndex,
    /// What was kept of its file.
    pub image: ModuleImage,
    cfi: Option<Cfi>,
}

impl Module {
    /// Indexes an image. Reads all of its `.eh_frame` once.
    #[must_use]
    pub fn new(index: ModuleIndex, image: ModuleImage) -> Self {
        let cfi = Cfi::new(&image);
        Self { index, image, cfi }
    }

    /// Its call frame information, if it has any.
    #[must_use]
    pub fn cfi(&self) -> Option<&Cfi> {
        self.cfi.as_ref()
    }

    /// Whether there is an unwind rule for the instruction at `svma`.
    #[must_use]
    pub fn covers(&self, svma: Svma) -> bool {
        self.cfi.as_ref().is_some_and(|cfi| cfi.covers(svma))
    }

    /// Whether the instruction at `svma` is in an executable segment.
    #[must_use]
    pub fn is_code(&self, svma: Svma) -> bool {
        let mut code = self.image.segments.iter().filter(|segment| segment.executable);
        code.any(|segment| svma.checked_sub(segment.svma).is_some_and(|offset| offset < segment.size))
    }

    /// The address as linked of the code at `file_offset`.
    #[must_use]
    pub fn svma(&self, file_offset: u64) -> Option<Svma> {
        let mut code = self.image.segments.iter().filter(|segment| segment.executable);
        code.find_map(|segment| {
            let offset =
                file_offset.checked_sub(segment.file_offset).filter(|offset| *offset < segment.size)?;
            segment.svma.checked_add(offset)
        })
    }

    /// What to add to an address as linked (wrapping) for the live address, when `size` bytes of the
    /// file from `file_offset` are mapped at `start`. `None` when they hold no code segment.
    #[must_use]
    pub fn bias(&self, start: Avma, size: u64, file_offset: u64) -> Option<u64> {
        let end = file_offset.checked_add(size)?;
        let mut code = self.image.segments.iter().filter(|segment| segment.executable);
        code.find(|segment| {
            segment.file_offset < end && file_offset < segment.file_offset.saturating_add(segment.size)
        })
        .map(|segment| {
            start.wrapping_add(segment.file_offset).wrapping_sub(file_offset).wrapping_sub(segment.svma)
        })
    }
}
