//! Where in a target's files the probes go.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use memprof_common::function::FunctionKind;
use memprof_core::probe::elf::{AllocatorFunction, FindError, find_functions};
use memprof_core::probe::functions::Allocator;
use memprof_core::probe::placement;
use memprof_core::process::mappings::code_files;
use memprof_core::process::module::FileId;

use crate::host::allocators::allocator_files;
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

/// The places for probes of `allocator` in its file with these `bytes`.
///
/// # Errors
/// When the file is not what the allocator's table says.
pub(crate) fn probe_sites(
    bytes: &[u8],
    allocator: &Allocator,
) -> std::result::Result<Vec<ProbeSite>, FindError> {
    Ok(find_functions(bytes, allocator)?.into_iter().map(site).collect())
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
/// When there is none that can be probed, or, unless `force` is given, when another file offers `malloc`
/// too: then it is likely that one that the program uses, and the profile would be empty or wrong.
pub(crate) fn plan_allocator(tgid: u32, force: bool) -> Result<AllocatorPlan> {
    let files = code_files(&proc_fs::maps_text(tgid.cast_signed())?);
    let mut others = Vec::new();
    let mut known = None;
    for found in allocator_files(tgid.cast_signed(), &files) {
        match found.allocator {
            Some(allocator) if known.is_none() => known = Some((found, allocator)),
            Some(_) => {}
            None => others.push(found.mapping.path),
        }
    }
    let others = others.join(", ");
    let Some((found, allocator)) = known else {
        let looked_at: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let looked_at = if looked_at.is_empty() { "no file".into() } else { looked_at.join(", ") };
        let unknown = if others.is_empty() { String::new() } else { format!("; malloc is in {others}") };
        bail!(
            "process {tgid} maps no allocator that can be probed (glibc's can){unknown}; looked at {looked_at}"
        );
    };
    if !others.is_empty() && !force {
        bail!(
            "process {tgid} gets memory from {others}, which cannot be probed yet \
             (--force records what still goes through {})",
            found.mapping.path
        );
    }
    let bytes = MappedFile::new(&found.file).with_context(|| format!("mapping {}", found.mapping.path))?;
    let sites = probe_sites(bytes.bytes(), allocator)
        .with_context(|| format!("finding the functions of {} in {}", allocator.name, found.mapping.path))?;
    drop(bytes);
    Ok(AllocatorPlan {
        file: found.mapping.file,
        path: found.mapping.path,
        allocator: allocator.name,
        probes: ProbePlan { file: found.file, sites },
    })
}
