//! The files through which processes get memory.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use memprof_core::probe::elf::{Examined, examine};
use memprof_core::process::mappings::CodeFile;
use memprof_core::process::module::FileId;

use super::module_file::MappedFile;
use super::proc_fs::open_mapping;

/// Most files of which it is remembered what they hold; beyond, all are looked at anew.
const MAX_KNOWN: usize = 4096;

/// A mapped file that holds one or several allocators.
#[derive(Debug)]
pub(crate) struct AllocatorFile {
    /// Which file, as a process maps it.
    pub(crate) mapping: CodeFile,
    /// The file.
    pub(crate) file: File,
    /// What it holds.
    pub(crate) examined: Examined,
}

impl AllocatorFile {
    /// The names of its allocators.
    pub(crate) fn names(&self) -> String {
        let name = |found: &memprof_core::probe::elf::Recognised| match found.prefix.as_str() {
            "" => found.allocator.name.to_owned(),
            prefix => format!("{} as {prefix}*", found.allocator.name),
        };
        self.examined.allocators.iter().map(name).collect::<Vec<_>>().join(" and ")
    }
}

/// What was found among the files that a process maps as code.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The files with allocators, in order of address.
    pub(crate) files: Vec<Rc<AllocatorFile>>,
    /// The others: path, and what is known of them.
    pub(crate) others: Vec<String>,
}

/// Looks for allocators, in each file once.
#[derive(Debug, Default)]
pub(crate) struct AllocatorFiles {
    known: HashMap<FileId, Known>,
}

#[derive(Clone, Debug)]
enum Known {
    Allocator(Rc<AllocatorFile>),
    Other(String),
}

impl AllocatorFiles {
    /// The allocators among `files` of the process `pid`.
    pub(crate) fn find(&mut self, pid: i32, files: &[CodeFile]) -> Found {
        let mut found = Found::default();
        for mapping in files {
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
            }
            let known = self.known.entry(mapping.file).or_insert_with(|| look_into(pid, mapping));
            match known {
                Known::Allocator(file) => found.files.push(Rc::clone(file)),
                Known::Other(text) => found.others.push(format!("{} ({text})", mapping.path)),
            }
        }
        found
    }
}

fn look_into(pid: i32, mapping: &CodeFile) -> Known {
    let file = match open_mapping(pid, mapping) {
        Ok(file) => file,
        Err(error) => return Known::Other(error.to_string()),
    };
    let examined = match MappedFile::new(&file).map(|mapped| examine(mapped.bytes())) {
        Ok(Ok(examined)) => examined,
        Ok(Err(error)) => return Known::Other(error.to_string()),
        Err(error) => return Known::Other(error.to_string()),
    };
    if examined.functions.is_empty() || is_glibc_loader(mapping) {
        return Known::Other(examined.symbols.to_string());
    }
    Known::Allocator(Rc::new(AllocatorFile { mapping: mapping.clone(), file, examined }))
}

/// Old versions of the dynamic loader export a small allocator for their own start.
fn is_glibc_loader(mapping: &CodeFile) -> bool {
    let name = Path::new(&mapping.path).file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld-linux") || name.starts_with("ld-2.")
}
