//! The processes and modules of a session.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

use super::mappings::{self, Mapping, MappingsError};
use super::module::{FileId, Module, ModuleImage, ModuleIndex};
use crate::input::{Jvm, ProcessInfo};
use crate::unwind::Unwinder;
use crate::unwind::code::{CodeMapping, CodeOwner};

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

    /// Adds a process. One with the same id goes, and its mappings are forgotten: it has ended, or executed
    /// another program.
    pub fn add_process(&mut self, info: ProcessInfo) {
        self.running.insert(info.key.tgid, Process { info, unwinder: Unwinder::default() });
    }

    /// Adds the child of a running process, which has its parent's mappings. Without a running parent it has
    /// none.
    pub fn add_child(&mut self, info: ProcessInfo, parent: u32) {
        let tgid = info.key.tgid;
        self.add_process(info);
        let code = self.running.get(&parent).map(|parent| parent.unwinder.code().to_vec());
        if let Some((child, code)) = self.running.get_mut(&tgid).zip(code) {
            child.unwinder.set_code(code);
        }
    }

    /// Says that a file is a JVM. Mappings that are set later heed it.
    pub fn add_jvm(&mut self, file: FileId, path: &str, jvm: Jvm) {
        if let Some(module) = self.find_module(file, path) {
            self.modules.jvms.insert(module, Arc::new(jvm));
        }
    }

    /// The newest module of a file, preferably under this path.
    #[must_use]
    pub fn find_module(&self, file: FileId, path: &str) -> Option<ModuleIndex> {
        self.modules.find(file, path).map(|module| module.index)
    }

    /// Replaces what is known of a process's mappings. Modules added later are seen by the next call.
    ///
    /// # Errors
    /// When the process is not running or the text is not that of `/proc/PID/maps`.
    pub fn set_mappings(&mut self, tgid: u32, text: &str) -> Result<(), TableError> {
        let process = self.running.get_mut(&tgid).ok_or(TableError::UnknownProcess(tgid))?;
        let maps = mappings::parse(text).map_err(|source| TableError::Mappings { tgid, source })?;
        let code = self.modules.code(&maps);
        process.unwinder.set_jvm(self.modules.jvm(&code));
        process.unwinder.set_code(code);
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

    /// A process has ended: what was needed to unwind its stacks is given back.
    pub fn exit(&mut self, tgid: u32) {
        self.running.remove(&tgid);
    }
}

/// A running process.
pub struct Process {
    info: ProcessInfo,
    unwinder: Unwinder,
}

impl Process {
    /// Facts about it.
    #[must_use]
    pub fn info(&self) -> &ProcessInfo {
        &self.info
    }

    /// What unwinds its stacks.
    pub fn unwinder(&mut self) -> &mut Unwinder {
        &mut self.unwinder
    }
}

/// Every module once.
#[derive(Default)]
struct ModuleTable {
    modules: Vec<Arc<Module>>,
    /// A file can have been rewritten in place, or be mapped under several paths.
    by_file: FxHashMap<FileId, Vec<ModuleIndex>>,
    /// Those that are JVMs.
    jvms: FxHashMap<ModuleIndex, Arc<Jvm>>,
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

    /// The JVM among this code, and what to add to its addresses as linked.
    fn jvm(&self, code: &[CodeMapping]) -> Option<(Arc<Jvm>, u64)> {
        code.iter().find_map(|mapping| match &mapping.owner {
            CodeOwner::Module { module, bias } => {
                self.jvms.get(&module.index).map(|jvm| (Arc::clone(jvm), *bias))
            }
            CodeOwner::Java | CodeOwner::Uprobes => None,
        })
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
    use crate::input::ProcessKey;
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
    fn an_id_stands_for_the_process_that_has_it_now() {
        let mut table = ProcessTable::default();
        table.add_process(info(5, 1, "first"));
        table.add_process(info(3, 1, "second"));
        table.exit(3);
        assert!(table.get(3).is_none());
        table.add_process(info(3, 2, "another life"));
        assert_eq!(table.get(3).map(|process| process.info().key.start_time), Some(2));
        table.exit(5);
        assert!(table.get(5).is_none() && table.get_mut(5).is_none());
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
