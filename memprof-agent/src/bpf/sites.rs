//! Where in a target's files the probes go.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use memprof_common::function::FunctionKind;
use memprof_core::probe::elf::{AllocatorFunction, FindError, find_functions, identify};
use memprof_core::probe::functions::Allocator;
use memprof_core::probe::placement;
use memprof_core::process::mappings::{CodeFile, code_files};
use memprof_core::process::module::FileId;

use crate::host::module_file::MappedFile;
use crate::host::proc_fs;

/// One place for a probe.
#[derive(Clone, Debug)]
pub(crate) struct ProbeSite {
    /// What kind of function it is in.
    pub(crate) kind: FunctionKind,
    /// The function's name.
    pub(crate) symbol: &'static str,
    /// Offset of the probed instruction in the file.
    pub(crate) file_offset: u64,
    /// Whether the kernel emulates that instruction. If not it is single-stepped, which is about ten
    /// times dearer.
    pub(crate) emulated: bool,
    /// The instruction, for messages.
    pub(crate) instruction: String,
}

/// The places for probes in one file that one process maps.
#[derive(Debug)]
pub(crate) struct ProbePlan {
    /// The file.
    file: File,
    /// The places.
    pub(crate) sites: Vec<ProbeSite>,
}

impl ProbePlan {
    /// Plans the probes of `allocator`, whose file has these `bytes` and is `file`.
    pub(crate) fn new(file: File, bytes: &[u8], allocator: &Allocator) -> std::result::Result<Self, FindError> {
        let sites = find_functions(bytes, allocator)?.into_iter().map(site).collect();
        Ok(Self { file, sites })
    }

    /// A path under which the kernel finds the very file that the process has mapped, even when it was
    /// deleted or lies in another mount namespace. Valid in this process only.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// File offsets of the sites of one kind.
    pub(crate) fn offsets(&self, kind: FunctionKind) -> Vec<u64> {
        self.sites.iter().filter(|site| site.kind == kind).map(|site| site.file_offset).collect()
    }
}

fn site(function: AllocatorFunction) -> ProbeSite {
    let placement = placement::choose(function.kind, &function.code, function.svma);
    ProbeSite {
        kind: function.kind,
        symbol: function.symbol,
        file_offset: function.file_offset + u64::from(placement.offset),
        emulated: placement.emulated,
        instruction: placement.instruction,
    }
}

/// The probes for the allocator of a process, and which file that is.
pub(crate) struct AllocatorPlan {
    /// The file.
    pub(crate) file: FileId,
    /// Its path as the process sees it, for messages.
    pub(crate) path: String,
    /// The allocator's name.
    pub(crate) allocator: &'static str,
    /// Where the probes go.
    pub(crate) probes: ProbePlan,
}

/// Finds the allocator among the files that a process maps as code.
///
/// # Errors
/// When there is none that can be probed: says what was looked at.
pub(crate) fn plan_allocator(tgid: u32) -> Result<AllocatorPlan> {
    let text = proc_fs::maps_text(tgid.cast_signed())?;
    let files = code_files(&text);
    let mut unreadable = Vec::new();
    for file in &files {
        match plan_file(tgid, file) {
            Ok(Some(plan)) => return Ok(plan),
            Ok(None) => {}
            Err(error) => unreadable.push(format!("{} ({error:#})", file.path)),
        }
    }
    let looked_at: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let unreadable =
        if unreadable.is_empty() { String::new() } else { format!("; unreadable: {}", unreadable.join(", ")) };
    bail!(
        "no supported allocator (glibc's) in process {tgid}; looked at {}{unreadable}",
        if looked_at.is_empty() { "no file, none is mapped as code".to_owned() } else { looked_at.join(", ") }
    )
}

fn plan_file(tgid: u32, file: &CodeFile) -> Result<Option<AllocatorPlan>> {
    let opened = proc_fs::open_mapping(tgid.cast_signed(), file)?;
    let mapped = MappedFile::new(&opened).with_context(|| format!("mapping {}", file.path))?;
    // What is no ELF file for this machine holds no allocator; the loader would not have it either.
    let Ok(Some(allocator)) = identify(mapped.bytes()) else { return Ok(None) };
    let probes = ProbePlan::new(opened, mapped.bytes(), allocator)
        .with_context(|| format!("finding the functions of {} in {}", allocator.name, file.path))?;
    Ok(Some(AllocatorPlan { file: file.file, path: file.path.clone(), allocator: allocator.name, probes }))
}
