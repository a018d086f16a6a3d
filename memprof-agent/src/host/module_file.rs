//! The files behind mapped code: opened while the process still maps them, kept open until their names
//! are asked for.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::{io, ptr, slice};

use memprof_core::input::Jvm;
use memprof_core::process::jvm;
use memprof_core::process::mappings::{CodeFile, code_files};
use memprof_core::process::module::{FileId, ModuleError, ModuleImage, ModuleIndex, parse_elf};
use thiserror::Error;

use super::proc_fs::{ProcessError, open_mapping};

/// Why a mapped file is no module. Its frames are shown as unmapped code.
#[derive(Debug, Error)]
pub(crate) enum ModuleFileError {
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] ProcessError),
    /// It could not be read.
    #[error("cannot map {path} into memory: {source}")]
    Map {
        /// Its path as the process sees it.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is not code that can be unwound.
    #[error(transparent)]
    Parse(#[from] ModuleError),
}

/// What the core needs of a file that a process maps as code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The module.
    pub(crate) image: ModuleImage,
    /// The JVM that it is or holds.
    pub(crate) jvm: Option<Jvm>,
}

/// Opens the file of a mapping and reads what the core needs of it.
///
/// # Errors
/// When it cannot be opened or is no ELF file for this processor.
pub(crate) fn load(pid: i32, mapping: &CodeFile) -> Result<(File, Found), ModuleFileError> {
    let file = open_mapping(pid, mapping)?;
    let bytes = MappedFile::new(&file)
        .map_err(|source| ModuleFileError::Map { path: mapping.path.clone(), source })?;
    let image = parse_elf(mapping.file, mapping.path.clone(), bytes.bytes())?;
    let jvm = jvm::recognise(&mapping.path, bytes.bytes());
    Ok((file, Found { image, jvm }))
}

/// A module's file, by which a symbolizer finds its names.
#[derive(Debug)]
pub(crate) struct ModuleFile {
    /// The process that mapped it first.
    pub(crate) pid: i32,
    /// GNU build id, empty when it has none.
    pub(crate) build_id: Vec<u8>,
    /// The file; `None` beyond the limit of open files.
    pub(crate) file: Option<File>,
}

/// The module files of a session, each once. The index of a module is its position among the images
/// that [`ModuleFiles::discover`] has returned, so all of them must go into the session, in order.
#[derive(Debug)]
pub(crate) struct ModuleFiles {
    modules: Vec<ModuleFile>,
    /// Files already looked at, those that turned out to be no modules included.
    seen: HashSet<FileId>,
    open: usize,
    open_limit: usize,
}

impl ModuleFiles {
    /// No files yet; at most `open_limit` are kept open.
    pub(crate) fn new(open_limit: usize) -> Self {
        Self { modules: Vec::new(), seen: HashSet::new(), open: 0, open_limit }
    }

    /// Loads the files in the text of `/proc/PID/maps` that no earlier call has seen, in order of address.
    /// A file that cannot be read is logged and not tried again.
    pub(crate) fn discover(&mut self, pid: i32, maps_text: &str) -> Vec<Found> {
        let new: Vec<CodeFile> =
            code_files(maps_text).into_iter().filter(|file| self.seen.insert(file.file)).collect();
        new.iter().filter_map(|mapping| self.load(pid, mapping)).collect()
    }

    fn load(&mut self, pid: i32, mapping: &CodeFile) -> Option<Found> {
        match load(pid, mapping) {
            Ok((file, found)) => {
                self.keep(pid, file, &found.image);
                Some(found)
            }
            Err(ModuleFileError::Open(ProcessError::NoSuchProcess(_))) => {
                // Another process may map it.
                self.seen.remove(&mapping.file);
                None
            }
            Err(error) => {
                log::warn!("code of {} cannot be unwound or named: {error}", mapping.path);
                None
            }
        }
    }

    fn keep(&mut self, pid: i32, file: File, image: &ModuleImage) {
        let keeps_open = self.open < self.open_limit;
        if keeps_open {
            self.open += 1;
        } else {
            log::warn!("{} will have no names: {} files are open already", image.path, self.open);
        }
        self.modules.push(ModuleFile {
            pid,
            build_id: image.build_id.clone(),
            file: keeps_open.then_some(file),
        });
    }

    /// The file of a module.
    pub(crate) fn get(&self, index: ModuleIndex) -> Option<&ModuleFile> {
        self.modules.get(index.0 as usize)
    }
}

/// A file's bytes, mapped: programs with debug information are too large to copy. As with every mapped
/// file, reading what someone cuts off meanwhile is fatal; installers replace files instead.
pub(crate) struct MappedFile {
    start: *mut libc::c_void,
    length: usize,
}

impl MappedFile {
    /// Maps the whole file.
    ///
    /// # Errors
    /// When it is no regular file or the system refuses.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let length = usize::try_from(metadata.len()).map_err(io::Error::other)?;
        if length == 0 {
            return Ok(Self { start: ptr::null_mut(), length });
        }
        Self::map(file.as_raw_fd(), length)
    }

    fn map(fd: RawFd, length: usize) -> io::Result<Self> {
        // SAFETY: a new private, read-only mapping at an address of the kernel's choice touches no memory
        // of this program.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { start, length }) }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the mapping is readable, `length` bytes long and lives as long as `self`.
        unsafe { slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: `map` made this mapping, and no borrow of it outlives `self`.
            unsafe { libc::munmap(self.start, self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_fs::maps_text;

    fn own_pid() -> i32 {
        std::process::id().cast_signed()
    }

    #[test]
    fn each_file_becomes_one_module() {
        let maps = maps_text(own_pid()).unwrap();
        let mut files = ModuleFiles::new(1);
        let images = files.discover(own_pid(), &maps);
        assert!(images.len() >= 3, "program, libc and loader: {images:?}");
        let is_libc = |image: &ModuleImage| image.path.ends_with("/libc.so.6") && image.build_id.len() == 20;
        assert!(images.iter().any(|found| is_libc(&found.image) && found.jvm.is_none()));
        assert!(files.get(ModuleIndex(0)).is_some_and(|module| module.file.is_some()));
        assert!(files.get(ModuleIndex(1)).is_some_and(|module| module.file.is_none()));
        assert_eq!(files.discover(own_pid(), &maps), [], "known files are not loaded again");
    }

    #[test]
    fn mapped_code_that_is_no_elf_file_is_no_module() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &[0x90; 4096]).unwrap();
        let mapping = MappedFile::new(file.as_file()).unwrap();
        // SAFETY: the range is the mapping made above; it stays readable.
        let result =
            unsafe { libc::mprotect(mapping.start, mapping.length, libc::PROT_READ | libc::PROT_EXEC) };
        assert_eq!(result, 0);
        let path = file.path().to_string_lossy().into_owned();
        let maps = maps_text(own_pid()).unwrap();
        let found = code_files(&maps).into_iter().find(|file| file.path == path).unwrap();
        assert!(matches!(load(own_pid(), &found), Err(ModuleFileError::Parse(_))));
        let mut files = ModuleFiles::new(64);
        assert!(files.discover(own_pid(), &maps).iter().all(|found| found.image.path != path));
    }

    #[test]
    fn an_empty_file_has_no_bytes() {
        let file = tempfile::tempfile().unwrap();
        assert!(MappedFile::new(&file).unwrap().bytes().is_empty());
        assert!(MappedFile::new(&File::open("/").unwrap()).is_err());
    }
}
