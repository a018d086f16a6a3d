//! The files through which a process gets memory.

use std::fs::File;
use std::path::Path;

use memprof_core::probe::elf::{find_functions, identify};
use memprof_core::probe::functions::Allocator;
use memprof_core::process::mappings::CodeFile;

use super::module_file::MappedFile;
use super::proc_fs::open_mapping;

/// A mapped file that offers `malloc` and `free`.
#[derive(Debug)]
pub(crate) struct AllocatorFile {
    /// Which file, as the process maps it.
    pub(crate) mapping: CodeFile,
    /// The file.
    pub(crate) file: File,
    /// `None`: one that cannot be probed.
    pub(crate) allocator: Option<&'static Allocator>,
}

/// Anything that offers malloc and free.
const ANY: Allocator = Allocator { name: "an allocator", markers: &["malloc", "free"], functions: &[] };

/// The allocators among the files that a process maps as code. A file that cannot be read holds none.
pub(crate) fn allocator_files(pid: i32, files: &[CodeFile]) -> Vec<AllocatorFile> {
    files.iter().filter_map(|mapping| examine(pid, mapping)).collect()
}

fn examine(pid: i32, mapping: &CodeFile) -> Option<AllocatorFile> {
    let file = open_mapping(pid, mapping)
        .map_err(|error| log::info!("not looked at for an allocator: {error}"))
        .ok()?;
    let mapped = MappedFile::new(&file).ok()?;
    // What is no ELF file for this machine holds no allocator; the loader would not have it either.
    let allocator = identify(mapped.bytes()).ok()?;
    if allocator.is_none() && (is_glibc_loader(mapping) || find_functions(mapped.bytes(), &ANY).is_err()) {
        return None;
    }
    drop(mapped);
    Some(AllocatorFile { mapping: mapping.clone(), file, allocator })
}

/// Old versions of the dynamic loader export a small allocator for their own start.
fn is_glibc_loader(mapping: &CodeFile) -> bool {
    let name = Path::new(&mapping.path).file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld-linux") || name.starts_with("ld-2.")
}
