//! What unwinding a stack costs, without any of the rest: `cargo xtask bench java` makes a recording of a JVM
//! and runs this on it. The stacks are unwound once as they come, which fills all caches, then again and again.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a benchmark reads a clock and a file, and prints"
)]

use std::collections::HashSet;
use std::env;
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::BufReader;
use std::time::Instant;

use memprof_core::decode::{Event, decode};
use memprof_core::input::Input;
use memprof_core::java::JavaMethods;
use memprof_core::memory::{ProcessMemory, RecordedMemory};
use memprof_core::process::table::ProcessTable;
use memprof_core::recording::RecordingReader;
use memprof_core::stack::{Frame, StackBuffer};
use memprof_core::unwind::JavaContext;

/// Times that the stacks are unwound with warm caches.
const ROUNDS: u32 = 20;
/// Most stacks that are unwound again: the last ones of the recording.
const STACKS: usize = 2000;

/// What a stack is unwound with.
#[derive(Default)]
struct State {
    table: ProcessTable,
    methods: JavaMethods,
    memory: RecordedMemory,
    stack: StackBuffer,
}

impl State {
    /// Takes in what is known of processes and modules, and unwinds the stacks of samples. Whether `input` was a
    /// sample that has been unwound.
    fn take(&mut self, input: &Input<'_>) -> bool {
        match input {
            Input::Process(info) => self.table.add_process(info.clone()),
            Input::Module(image) => {
                self.table.add_module(image.clone());
            }
            Input::Jvm { file, path, jvm } => self.table.add_jvm(*file, path, jvm.clone()),
            // Text that was recorded once is good.
            Input::Mappings { tgid, text } => _ = self.table.set_mappings(*tgid, text),
            Input::Memory(reads) => self.memory.set(reads),
            Input::Event(bytes) => return self.unwind(bytes),
            _ => {}
        }
        false
    }

    fn unwind(&mut self, bytes: &[u8]) -> bool {
        let Ok(Event::Alloc { event, stack }) = decode(bytes) else { return false };
        let Some(process) = self.table.get_mut(event.header.tgid) else { return false };
        let mut context = JavaContext {
            memory: ProcessMemory::new(&mut self.memory, event.header.tgid),
            methods: &mut self.methods,
            time: event.header.time,
        };
        let function = Some(event.function);
        black_box(process.unwinder().unwind(function, &event.stack, stack, &mut context, &mut self.stack));
        self.memory.clear();
        true
    }

    fn is_java(&self) -> bool {
        self.stack.frames().iter().any(|frame| matches!(frame, Frame::JavaMethod { .. }))
    }
}

/// Stacks of one kind.
#[derive(Default)]
struct Stacks {
    events: Vec<Vec<u8>>,
    frames: usize,
    distinct: HashSet<Vec<Frame>>,
}

impl Stacks {
    fn add(&mut self, event: &[u8], frames: &[Frame]) {
        self.events.push(event.to_vec());
        self.frames += frames.len();
        self.distinct.insert(frames.to_vec());
    }

    fn measure(&self, words: &str, state: &mut State) {
        if self.events.is_empty() {
            println!("{words}: none in this recording");
            return;
        }
        let last = &self.events[self.events.len().saturating_sub(STACKS)..];
        let rounds = (0..ROUNDS).map(|_| {
            let started = Instant::now();
            for event in last {
                state.unwind(event);
            }
            started.elapsed().as_secs_f64() * 1e6 / last.len() as f64
        });
        let fastest = rounds.fold(f64::INFINITY, f64::min);
        let mean = self.frames as f64 / self.events.len() as f64;
        println!(
            "{words}: {fastest:.2} µs each with warm caches, {mean:.0} frames, {} distinct of {}",
            self.distinct.len(),
            self.events.len()
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds options of its own.
    let Some(path) = env::args().skip(1).find(|argument| !argument.starts_with('-')) else {
        println!("give a recording (.mprec) as argument");
        return Ok(());
    };
    let mut state = State::default();
    let (mut java, mut native) = (Stacks::default(), Stacks::default());
    for input in RecordingReader::new(BufReader::new(File::open(path)?))? {
        let input = input?;
        if let (true, Input::Event(event)) = (state.take(&input), &input) {
            let stacks = if state.is_java() { &mut java } else { &mut native };
            stacks.add(event, state.stack.frames());
        }
    }
    java.measure("stacks with Java frames", &mut state);
    native.measure("other stacks", &mut state);
    Ok(())
}
