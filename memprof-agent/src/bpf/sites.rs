//! Where in a target's files the probes go.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Result, bail};
use memprof_common::function::{FunctionKind, Nesting};
use memprof_core::input::AllocatorPart;
use memprof_core::probe::elf::AllocatorFunction;
use memprof_core::probe::placement;
use memprof_core::process::mappings::code_files;
use memprof_core::process::module::FileId;

use super::own_code::allocator_part;
use crate::host::allocators::{AllocatorFile, AllocatorFiles};
use crate::host::proc_fs;

/// The functions that programs call most, those first that matter most.
pub(crate) const HOT: [&str; 5] = ["malloc", "free", "_Znwm", "calloc", "realloc"];
/// Most files that an error names.
const NAMED_FILES: usize = 12;

/// One place for a probe.
#[derive(Clone, Debug)]
pub(crate) struct ProbeSite {
    /// What kind of function it is in.
    pub(crate) kind: FunctionKind,
    /// Whether that may call another one that is probed.
    pub(crate) nesting: Nesting,
    /// The function's name.
    pub(crate) symbol: String,
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
pub(crate) struct FilePlan {
    /// The file.
    file: Rc<AllocatorFile>,
    /// The places.
    pub(crate) sites: Vec<ProbeSite>,
}

impl FilePlan {
    /// All places of a file.
    pub(crate) fn new(file: Rc<AllocatorFile>) -> Self {
        let sites = file.examined.functions.iter().map(site).collect();
        Self { file, sites }
    }

    /// Which file.
    pub(crate) fn id(&self) -> FileId {
        self.file.mapping.file
    }

    /// A path under which the kernel finds the very file that the process has mapped, even when it was
    /// deleted or lies in another mount namespace. Valid in this process only.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.file.as_raw_fd()).into()
    }

    /// Its path as the process sees it.
    pub(crate) fn mapped_path(&self) -> &str {
        &self.file.mapping.path
    }

    /// Which part of the file maps memory for the blocks, in a process of this `executable`.
    pub(crate) fn part(&self, executable: &str) -> AllocatorPart {
        allocator_part(self.mapped_path(), executable, &self.file.examined)
    }

    /// The file and its allocators, for messages.
    pub(crate) fn description(&self) -> String {
        format!("{} ({})", self.file.mapping.path, self.file.names())
    }

    /// The place in the main function of one kind: that which every program knows, or else
    /// the one with the shortest name.
    pub(crate) fn main_site(&self, kind: FunctionKind) -> Option<&ProbeSite> {
        let of_kind = self.sites.iter().filter(|site| site.kind == kind);
        of_kind.min_by_key(|site| (!HOT.contains(&site.symbol.as_str()), site.symbol.len()))
    }

    /// File offsets of the sites of one kind.
    pub(crate) fn offsets(&self, kind: FunctionKind, nesting: Nesting) -> Vec<u64> {
        let chosen = self.sites.iter().filter(|site| site.kind == kind && site.nesting == nesting);
        chosen.map(|site| site.file_offset).collect()
    }
}

/// The functions whose probes are single-stepped, in words ("malloc and 3 other functions are"), and the one
/// among them that matters most.
pub(crate) fn single_stepped(plans: &[FilePlan]) -> Option<(String, &ProbeSite)> {
    let sites = plans.iter().flat_map(|plan| &plan.sites).filter(|site| !site.emulated);
    let mut stepped: Vec<&ProbeSite> = sites.collect();
    stepped.sort_by_key(|site| HOT.iter().position(|hot| *hot == site.symbol).unwrap_or(HOT.len()));
    let (&first, others) = stepped.split_first()?;
    let others = match others.len() {
        0 => " is".to_owned(),
        1 => " and one other function are".to_owned(),
        count => format!(" and {count} other functions are"),
    };
    Some((format!("{}{others}", first.symbol), first))
}

fn site(function: &AllocatorFunction) -> ProbeSite {
    let placement = placement::choose(function.kind, &function.code, function.svma);
    ProbeSite {
        kind: function.kind,
        nesting: function.nesting,
        symbol: function.symbol.clone(),
        file_offset: function.file_offset + u64::from(placement.offset),
        emulated: placement.emulated,
        instruction: placement.instruction,
    }
}

/// The places for probes in all allocators of a process: the blocks of several are told apart by their
/// addresses.
///
/// # Errors
/// When the process has none that can be seen; it is said what was looked at.
pub(crate) fn plan_process(files: &mut AllocatorFiles, tgid: u32) -> Result<Vec<FilePlan>> {
    let mapped = code_files(&proc_fs::maps_text(tgid.cast_signed())?);
    let found = files.find(tgid.cast_signed(), &mapped);
    if found.files.is_empty() {
        let mut others = found.others;
        let left_out = others.len().saturating_sub(NAMED_FILES);
        others.truncate(NAMED_FILES);
        let mut looked_at = if others.is_empty() { "no file".to_owned() } else { others.join(", ") };
        if left_out > 0 {
            looked_at += &format!(" and {left_out} more");
        }
        bail!(
            "process {tgid} maps no allocator that can be seen, neither a shared one nor one that is linked into a \
             program with its symbol table; looked at {looked_at}"
        );
    }
    Ok(found.files.into_iter().map(FilePlan::new).collect())
}
