//! Builds and runs `programs/stacks.c`, and reads the snapshots that it leaves of its own stacks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use memprof_common::event::{
    AllocEvent, COMM_LEN, EventHeader, EventKind, HOLE_WORDS, HijackedReturn, Registers, StackSnapshot,
};
use memprof_common::function::FunctionKind;
use memprof_common::sampling::CERTAIN;
use memprof_core::address::Avma;
use memprof_core::input::{ProcessInfo, ProcessKey};
use memprof_core::java::JavaMethods;
use memprof_core::memory::{ProcessMemory, RecordedMemory};
use memprof_core::process::mappings::{self, code_files};
use memprof_core::process::module::{Module, ModuleImage, parse_elf};
use memprof_core::process::table::{Process, ProcessTable};
use memprof_core::stack::{Frame, StackBuffer};
use memprof_core::unwind::{JavaContext, StackEnd};
use object::{Object as _, ObjectSymbol as _};

pub(crate) const TGID: u32 = 77;

/// Where the program has left its snapshots.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        // Tests may run in several processes at once: each has its own.
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stacks-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("creating the directory for snapshots");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/stacks.c");
        let program = directory.join("stacks");
        let flags = ["-O2", "-fomit-frame-pointer", "-fasynchronous-unwind-tables", "-pthread", "-g1"];
        let built = Command::new("cc").args(flags).arg(source).arg("-o").arg(&program).status();
        assert!(built.expect("running cc: install a C compiler").success(), "cc failed");
        let ran = Command::new(&program).arg(&directory).status();
        assert!(ran.expect("running the program").success(), "the program failed");
        directory
    })
}

/// One scenario of the program.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) event: AllocEvent,
    pub(crate) stack: Vec<u8>,
    /// The callers' addresses as libgcc's unwinder saw them.
    pub(crate) callers: Vec<Avma>,
    pub(crate) maps: String,
}

impl Scenario {
    pub(crate) fn load(name: &str) -> Self {
        let bytes = std::fs::read(directory().join(format!("{name}.snap"))).expect("a snapshot");
        let maps = std::fs::read_to_string(directory().join(format!("{name}.maps"))).expect("its maps");
        let word = |i: usize| u64::from_ne_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        let registers = Registers {
            ip: word(0),
            sp: word(1),
            bp: word(2),
            bx: word(3),
            r12: word(4),
            r13: word(5),
            r14: word(6),
            r15: word(7),
        };
        let count = usize::try_from(word(9)).expect("a count");
        let callers: Vec<Avma> = (10..10 + count).map(word).collect();
        assert_eq!(callers.first(), Some(&registers.ip), "libgcc saw the caller too");
        let stack = bytes[(10 + count) * 8..].to_vec();
        Self { event: event(registers, word(8), stack.len()), stack, callers, maps }
    }

    /// The table of a session that has learnt about this process, each image passed through `change`.
    pub(crate) fn table(&self, change: impl Fn(ModuleImage) -> ModuleImage) -> ProcessTable {
        let mut table = ProcessTable::default();
        let key = ProcessKey { tgid: TGID, start_time: 1 };
        table.add_process(ProcessInfo { key, comm: "stacks".into(), executable: "/stacks".into() });
        for file in code_files(&self.maps) {
            // Mappings that a test has made up have no file.
            let Ok(bytes) = std::fs::read(&file.path) else { continue };
            let image = parse_elf(file.file, file.path, &bytes).expect("mapped code is ELF");
            table.add_module(change(image));
        }
        table.set_mappings(TGID, &self.maps).expect("the maps are readable");
        table
    }

    pub(crate) fn unwind(&self) -> Unwound {
        self.unwind_with(self.table(|image| image))
    }

    pub(crate) fn unwind_with(&self, mut table: ProcessTable) -> Unwound {
        let process = table.get_mut(TGID).expect("the process runs");
        let mut buffer = StackBuffer::default();
        (0..3).for_each(|_| buffer.push(Frame::Java));
        let end = self.unwind_in(process, self.stack.len(), &mut buffer);
        let mut again = StackBuffer::default();
        assert_eq!(self.unwind_in(process, self.stack.len(), &mut again), end);
        assert_eq!(again.frames(), buffer.frames(), "the same with warm caches");
        let frames = buffer.frames().to_vec();
        Unwound { frames, end, modules: table.modules().to_vec(), maps: self.maps.clone() }
    }

    /// Unwinds the first `len` bytes of the stack.
    pub(crate) fn unwind_in(&self, process: &mut Process, len: usize, out: &mut StackBuffer) -> StackEnd {
        let mut methods = JavaMethods::default();
        let mut no_memory = RecordedMemory::default();
        let mut context = JavaContext {
            memory: ProcessMemory::new(&mut no_memory, TGID),
            methods: &mut methods,
            time: self.event.header.time,
        };
        let function = Some(self.event.function);
        process.unwinder().unwind(function, &self.event.stack, &self.stack[..len], &mut context, out)
    }

    /// Where in the stack the return address of the frame at `depth` (0 = the allocator's caller) stands.
    pub(crate) fn slot_of_return(&self, depth: usize) -> usize {
        let wanted = self.callers[depth].to_ne_bytes();
        let slot = self.stack.chunks_exact(8).position(|word| word == wanted).expect("it is on the stack");
        slot * 8
    }

    pub(crate) fn set_word(&mut self, offset: usize, word: u64) {
        self.stack[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
    }

    pub(crate) fn hijack(&mut self, offset: usize, original: u64) {
        let used = self.event.stack.hijacked_len as usize;
        let slot = self.event.stack.registers.sp + offset as u64;
        self.event.stack.hijacked[used] = HijackedReturn { slot, original };
        self.event.stack.hijacked_len += 1;
    }
}

fn event(registers: Registers, function: Avma, stack_len: usize) -> AllocEvent {
    AllocEvent {
        header: EventHeader { kind: EventKind::Alloc as u32, tgid: TGID, tid: TGID, reserved: 0, time: 1 },
        address: 0x1000,
        size: 1,
        probability: CERTAIN,
        function,
        replaces: 0,
        stack: StackSnapshot {
            kind: FunctionKind::Malloc as u32,
            flags: 0,
            len: u32::try_from(stack_len).expect("a small stack"),
            hijacked_len: 0,
            start: registers.sp,
            holes: [0; HOLE_WORDS],
            comm: [0; COMM_LEN],
            registers,
            hijacked: [HijackedReturn::default(); 8],
        },
    }
}

/// An unwound stack, and what is needed to look at it.
pub(crate) struct Unwound {
    pub(crate) frames: Vec<Frame>,
    pub(crate) end: StackEnd,
    modules: Vec<Arc<Module>>,
    maps: String,
}

impl Unwound {
    /// The live addresses of the frames behind the allocator function, by the mappings' own account.
    pub(crate) fn callers(&self) -> Vec<Avma> {
        let maps = mappings::parse(&self.maps).expect("the maps are readable");
        let live = |frame: &Frame| match *frame {
            Frame::Code { module, svma, .. } => {
                let image = &self.modules[module.0 as usize].image;
                let segment = image.segments.iter().find(|s| (s.svma..s.svma + s.size).contains(&svma));
                let offset =
                    svma - segment.expect("in a segment").svma + segment.expect("checked").file_offset;
                let in_mapping = |m: &&mappings::Mapping<'_>| {
                    m.file == Some(image.file) && (m.offset..m.offset + (m.end - m.start)).contains(&offset)
                };
                let mapping = maps.iter().filter(|m| m.executable).find(in_mapping).expect("mapped");
                Some(mapping.start + (offset - mapping.offset))
            }
            Frame::Unmapped(address) => Some(address),
            Frame::Java
            | Frame::Truncated(_)
            | Frame::JavaMethod { .. }
            | Frame::FrozenFrames
            | Frame::Thread(_) => None,
        };
        self.frames[1..].iter().filter_map(live).collect()
    }

    /// Names of the frames of the program itself, by its symbol table; `?` elsewhere.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut symbols = BTreeMap::new();
        let bytes = std::fs::read(directory().join("stacks")).expect("the program");
        let program = object::File::parse(&*bytes).expect("the program is ELF");
        for symbol in program.symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text)
        {
            symbols.insert(symbol.address(), (symbol.size(), symbol.name().expect("a name").to_owned()));
        }
        let name = |frame: &Frame| {
            let key = frame.symbol_key()?;
            let path = &self.modules[key.module.0 as usize].image.path;
            let (start, (size, name)) = symbols.range(..=key.lookup).next_back()?;
            (path.ends_with("/stacks") && key.lookup < start + size).then(|| name.clone())
        };
        self.frames.iter().map(|frame| name(frame).unwrap_or_else(|| "?".to_owned())).collect()
    }
}
