//! The processes and modules of a session.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

use super::mappings::{self, Mapping, MappingsError};
use super::module::{FileId, Module, ModuleImage, ModuleIndex};
use crate::input::{ProcessInfo, ProcessKey};
use crate::stack::Frame;
use crate::unwind::StackEnd;
use crate::unwind::code::{CodeMapping, CodeOwner};
use crate::unwind::native::NativeUnwinder;
use memprof_common::event::AllocEvent;

/// Why mappings could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// The process was never added, or has ended.
    #[error("setting the mappings of process {0}: it is not watched")]
    UnknownProcess(u32),
    /// The text is not that of `/proc/PID/maps`. The mappings known before stay in force.
    #[error("setting the mappings of process {tgid}")]
    Mappings {
        /// The process.
        tgid: u32,
        /// The line.
        source: MappingsError,
    },
}

/// All processes and modules that the session has heard of.
#[derive(Default)]
pub struct ProcessTable {
    modules: ModuleTable,
    /// Every process ever added, in order of appearance.
    infos: Vec<ProcessInfo>,
    /// Those that have not ended.
    running: FxHashMap<u32, Process>,
}

impl ProcessTable {
    /// Adds a file. The same file, path and build id again is the same module.
    pub fn add_module(&mut self, image: ModuleImage) -> ModuleIndex {
        self.modules.add(image)
    }

    /// The modules by [`ModuleIndex`].
    #[must_use]
    pub fn modules(&self) -> &[Arc<Module>] {
        &self.modules.modules
    }

    /// Adds a process, or replaces the facts of one with the same key: it has executed another
    /// program, so its mappings are forgotten. Another key under the same tgid is a new process.
    pub fn add_process(&mut self, info: ProcessInfo) {
        match self.position(info.key) {
            Some(index) => self.infos[index].clone_from(&info),
            None => self.infos.push(info.clone()),
        }
        self.running.insert(info.key.tgid, Process { info, unwinder: NativeUnwinder::default() });
    }

    /// Replaces what is known of a process's mappings. Modules added later are seen by the next call.
    ///
    /// # Errors
    /// When the process is not running or the text is not that of `/proc/PID/maps`.
    pub fn set_mappings(&mut self, tgid: u32, text: &str) -> Result<(), TableError> {
        let process = self.running.get_mut(&tgid).ok_or(TableError::UnknownProcess(tgid))?;
        let maps = mappings::parse(text).map_err(|source| TableError::Mappings { tgid, source })?;
        process.unwinder.set_code(self.modules.code(&maps));
        Ok(())
    }

    /// A running process.
    #[must_use]
    pub fn get(&self, tgid: u32) -> Option<&Process> {
        self.running.get(&tgid)
    }

    /// A running process, to unwind with.
    #[must_use]
    pub fn get_mut(&mut self, tgid: u32) -> Option<&mut Process> {
        self.running.get_mut(&tgid)
    }

    /// A process has ended: what was needed to unwind its stacks is given back, its facts stay.
    pub fn exit(&mut self, tgid: u32) {
        self.running.remove(&tgid);
    }

    /// Every process ever added, in order of appearance, with its last facts.
    #[must_use]
    pub fn processes(&self) -> &[ProcessInfo] {
        &self.infos
    }

    fn position(&self, key: ProcessKey) -> Option<usize> {
        self.infos.iter().position(|info| info.key == key)
    }
}

/// A running process.
pub struct Process {
    info: ProcessInfo,
    unwinder: NativeUnwinder,
}

impl Process {
    /// Facts about it.
    #[must_use]
    pub fn info(&self) -> &ProcessInfo {
        &self.info
    }

    /// Unwinds the stack of an allocation into `frames` (emptied first), innermost frame first:
    /// the allocator function, its caller and so on. How the stack ends is returned; an end before the
    /// thread's entry is also the last frame.
    pub fn unwind(&mut self, event: &AllocEvent, stack: &[u8], frames: &mut Vec<Frame>) -> StackEnd {
        self.unwinder.unwind(event, stack, frames)
    }
}

/// Every module once.
#[derive(Default)]
struct ModuleTable {
    modules: Vec<Arc<Module>>,
    /// A file can have been rewritten in place, or be mapped under several paths.
    by_file: FxHashMap<FileId, Vec<ModuleIndex>>,
}

impl ModuleTable {
    fn add(&mut self, image: ModuleImage) -> ModuleIndex {
        let same_file = self.by_file.entry(image.file).or_default();
        let known = same_file.iter().position(|index| is_same(&self.modules[index.0 as usize].image, &image));
        if let Some(position) = known {
            // The file's present content: what mappings made from now on refer to.
            let index = same_file.remove(position);
            same_file.push(index);
            return index;
        }
        let index = ModuleIndex(u32::try_from(self.modules.len()).expect("fewer than 2^32 modules"));
        same_file.push(index);
        self.modules.push(Arc::new(Module::new(index, image)));
        index
    }

    /// The newest module of a file, preferably under this path.
    fn find(&self, file: FileId, path: &str) -> Option<&Arc<Module>> {
        let indices = self.by_file.get(&file)?;
        let newest_first = || indices.iter().rev().map(|index| &self.modules[index.0 as usize]);
        newest_first().find(|module| module.image.path == path).or_else(|| newest_first().next())
    }

    /// What is known of the code in these mappings, by ascending address.
    fn code(&self, maps: &[Mapping<'_>]) -> Vec<CodeMapping> {
        let has_jvm = maps.iter().any(Mapping::is_libjvm);
        let mut code: Vec<CodeMapping> = maps
            .iter()
            .filter(|mapping| mapping.executable)
            .filter_map(|mapping| {
                let owner = self.owner(mapping, has_jvm)?;
                Some(CodeMapping { start: mapping.start, end: mapping.end, owner })
            })
            .collect();
        code.sort_by_key(|mapping| mapping.start);
        // The kernel prints no overlaps; a damaged recording may hold some.
        code.dedup_by(|next, previous| next.start < previous.end);
        code
    }

    fn owner(&self, mapping: &Mapping<'_>, has_jvm: bool) -> Option<CodeOwner> {
        if mapping.is_uprobes() {
            return Some(CodeOwner::Uprobes);
        }
        // HotSpot reserves its code cache as memory without a file.
        if has_jvm && mapping.is_anonymous() {
            return Some(CodeOwner::Java);
        }
        let module = self.find(mapping.file?, mapping.path())?;
        let bias = module.bias(mapping.start, mapping.end - mapping.start, mapping.offset)?;
        Some(CodeOwner::Module { module: Arc::clone(module), bias })
    }
}

/// Whether two images of one file are of one content. A build id says so; without one, all must match.
fn is_same(a: &ModuleImage, b: &ModuleImage) -> bool {
    a.path == b.path && a.build_id == b.build_id && (!a.build_id.is_empty() || a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::module::Segment;

    fn image(inode: u64, path: &str, build_id: &[u8]) -> ModuleImage {
        ModuleImage {
            file: FileId { major: 8, minor: 1, inode },
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            segments: vec![Segment { file_offset: 0x1000, svma: 0x2000, size: 0x800, executable: true }],
            text: None,
            eh_frame: None,
            eh_frame_hdr: None,
        }
    }

    fn info(tgid: u32, start_time: u64, comm: &str) -> ProcessInfo {
        ProcessInfo { key: ProcessKey { tgid, start_time }, comm: comm.to_owned(), executable: String::new() }
    }

    #[test]
    fn a_module_is_a_file_of_one_content_under_one_path() {
        let mut table = ProcessTable::default();
        let a = table.add_module(image(1, "/lib/a", &[1]));
        assert_eq!(table.add_module(image(1, "/lib/a", &[1])), a);
        let others = [image(1, "/lib/a", &[2]), image(1, "/b", &[1]), image(2, "/lib/a", &[1])];
        let others = others.map(|image| table.add_module(image));
        assert_eq!(others, [ModuleIndex(1), ModuleIndex(2), ModuleIndex(3)]);

        let bare = table.add_module(image(3, "/c", &[]));
        assert_eq!(table.add_module(image(3, "/c", &[])), bare);
        let mut rewritten = image(3, "/c", &[]);
        rewritten.segments[0].size += 1;
        assert_ne!(table.add_module(rewritten), bare, "without a build id the content decides");
        assert_eq!(table.modules().len(), 6);
    }

    #[test]
    fn a_mapping_belongs_to_the_module_last_added_for_its_file_and_path() {
        let mut table = ProcessTable::default();
        let old = table.add_module(image(1, "/a", &[1]));
        let new = table.add_module(image(1, "/a", &[2]));
        let other_path = table.add_module(image(1, "/b", &[1]));
        let owner = |table: &ProcessTable, line: &str| {
            let maps = mappings::parse(line).expect("a mapping");
            match &table.modules.code(&maps).first()?.owner {
                CodeOwner::Module { module, bias } => Some((module.index, *bias)),
                CodeOwner::Java | CodeOwner::Uprobes => None,
            }
        };
        let line = |path: &str| format!("10000-12000 r-xp 00001000 08:01 1 {path}");
        assert_eq!(owner(&table, &line("/a")), Some((new, 0xe000)));
        assert_eq!(owner(&table, &line("/a (deleted)")), Some((new, 0xe000)));
        assert_eq!(owner(&table, &line("/b")), Some((other_path, 0xe000)));
        assert_eq!(owner(&table, &line("/elsewhere")), Some((other_path, 0xe000)));
        assert_eq!(table.add_module(image(1, "/a", &[1])), old);
        assert_eq!(owner(&table, &line("/a")), Some((old, 0xe000)), "the file has its old content again");
        assert_eq!(owner(&table, "10000-12000 r-xp 00004000 08:01 1 /a"), None, "no code at that offset");
    }

    #[test]
    fn processes_stay_in_order_of_appearance() {
        let mut table = ProcessTable::default();
        table.add_process(info(5, 1, "first"));
        table.add_process(info(3, 1, "second"));
        table.add_process(info(5, 1, "after exec"));
        table.exit(3);
        table.add_process(info(3, 2, "another life"));
        let comms: Vec<&str> = table.processes().iter().map(|info| info.comm.as_str()).collect();
        assert_eq!(comms, ["after exec", "second", "another life"]);
        assert_eq!(table.get(3).map(|process| process.info().key.start_time), Some(2));
        table.exit(5);
        assert!(table.get(5).is_none() && table.get_mut(5).is_none());
        assert_eq!(table.processes().len(), 3);
    }

    #[test]
    fn mappings_that_cannot_be_read_change_nothing() {
        let mut table = ProcessTable::default();
        assert_eq!(table.set_mappings(1, ""), Err(TableError::UnknownProcess(1)));
        table.add_process(info(1, 1, "a"));
        assert_eq!(table.set_mappings(1, "1000-2000 r-xp 0 0:0 0 \n"), Ok(()));
        let error = table.set_mappings(1, "what\n").expect_err("no mapping");
        assert!(matches!(error, TableError::Mappings { tgid: 1, .. }));
    }
}
