//! What is known of processes' mappings, and when they are read again.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

use anyhow::Result;
use memprof_core::input::Input;
use memprof_core::process::mappings::code_files;
use memprof_core::process::module::FileId;

use super::{Intake, Notice};
use crate::host::module_file::Found;
use crate::host::proc_fs;

/// Reading mappings again and again for the same code may take at most one part in this many of the time: a
/// target whose stacks point into code that nobody can name must not be asked again for every one of them.
const DUTY: u32 = 10;
/// Most pages of unknown code that are remembered. A process maps its libraries one by one, so that code is
/// new at most so often; after these the duty holds for all.
const MAX_UNKNOWN_PAGES: usize = 1024;
/// Bytes of a page, as a power of two.
const PAGE_SHIFT: u32 = 12;

/// Known mappings by process id.
pub(super) type Mappings = HashMap<u32, Known>;

/// What is known of one process's mappings.
pub(super) struct Known {
    text: String,
    /// The files that it maps as code.
    code: Vec<FileId>,
    /// When they may be read again for code that they did not explain the last time.
    next_read: Instant,
    /// Pages of code that they did not explain.
    unknown: HashSet<u64>,
}

impl Known {
    /// Whether to read the mappings for the code at this address, which the known ones do not explain.
    fn is_due(&mut self, address: u64) -> bool {
        let is_new = self.unknown.len() < MAX_UNKNOWN_PAGES && self.unknown.insert(address >> PAGE_SHIFT);
        is_new || Instant::now() >= self.next_read
    }
}

impl Intake {
    /// Reads a process's mappings; when they are the known ones nothing happens.
    pub(crate) fn read_mappings(&mut self, tgid: u32) -> Result<()> {
        let started = Instant::now();
        let text = proc_fs::maps_text(tgid.cast_signed())?;
        // Looking at new modules takes longer, but happens once for each.
        let read_in = started.elapsed();
        if text.is_empty() {
            // It has just ended. Events of it may still be in the ring: they need what was known.
            return Ok(());
        }
        let next_read = Instant::now() + read_in * DUTY;
        if let Some(known) = self.sources.mappings.get_mut(&tgid).filter(|known| known.text == text) {
            known.next_read = next_read;
            return Ok(());
        }
        let code = self.code_mapped(tgid, &text);
        self.ingest(Input::Mappings { tgid, text: Cow::Owned(text.clone()) });
        self.sources.mappings.insert(tgid, Known { text, code, next_read, unknown: HashSet::new() });
        Ok(())
    }

    /// Reads a process's mappings for the code at this address, if that may explain it.
    pub(super) fn read_mappings_for(&mut self, tgid: u32, address: u64) {
        if self.sources.mappings.get_mut(&tgid).is_none_or(|known| known.is_due(address)) {
            self.try_read_mappings(tgid);
        }
    }

    /// Compares the mappings of all processes with what is known.
    pub(super) fn check_mappings(&mut self) {
        let tgids: Vec<u32> = self.sources.mappings.keys().copied().collect();
        for tgid in tgids {
            self.try_read_mappings(tgid);
        }
    }

    /// A process that is gone keeps the mappings it had.
    fn try_read_mappings(&mut self, tgid: u32) {
        if let Err(error) = self.read_mappings(tgid) {
            log::debug!("mappings of process {tgid}: {error:#}");
        }
    }

    /// The child of a process starts with its parent's mappings.
    pub(super) fn inherit_mappings(&mut self, parent: u32, child: u32) {
        if let Some(Known { text, code, next_read, .. }) = self.sources.mappings.get(&parent) {
            let unknown = HashSet::new();
            let known = Known { text: text.clone(), code: code.clone(), next_read: *next_read, unknown };
            self.sources.mappings.insert(child, known);
        }
    }

    /// The files that a process maps as code: new ones become modules, others than before are told.
    fn code_mapped(&mut self, tgid: u32, text: &str) -> Vec<FileId> {
        let code: Vec<FileId> = code_files(text).iter().map(|file| file.file).collect();
        if self.sources.mappings.get(&tgid).is_none_or(|known| known.code != code) {
            self.lives.push(Notice::Mapped { tgid });
        }
        for Found { image, jvm } in self.sources.modules.discover(tgid.cast_signed(), text) {
            let (file, path) = (image.file, image.path.clone());
            self.ingest(Input::Module(image));
            if let Some(jvm) = jvm {
                self.ingest(Input::Jvm { file, path, jvm });
            }
        }
        code
    }
}
