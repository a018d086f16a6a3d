//! Native unwinding of real stacks, against what libgcc's unwinder saw and what the program knows of itself.
#![expect(clippy::disallowed_methods, reason = "tests run a program and read the files that it leaves")]

mod stacks;

use memprof_common::event::{STACK_FAULTED, STACK_LIMITED};
use memprof_core::address::CodeAddressKind;
use memprof_core::process::mappings::code_files;
use memprof_core::process::module::{Module, ModuleIndex, parse_elf};
use memprof_core::stack::{Frame, StackBuffer, Truncation};
use memprof_core::unwind::{MAX_FRAMES, StackEnd};
use stacks::{Scenario, Unwound};

/// Scenarios whose stacks reach the thread's entry.
const COMPLETE: [&str; 8] =
    ["plain", "deep", "realigned", "signal", "thread", "signalled_thread", "rbx_frame", "qsort"];

fn assert_truncated(unwound: &Unwound, reason: Truncation) {
    assert_eq!(unwound.end, StackEnd::Truncated(reason));
    assert_eq!(unwound.frames.last(), Some(&Frame::Truncated(reason)));
    let marks = unwound.frames.iter().filter(|frame| matches!(frame, Frame::Truncated(_))).count();
    assert_eq!(marks, 1, "the reason stands once, at the end");
}

#[test]
fn complete_stacks_are_those_that_libgcc_sees() {
    for name in COMPLETE {
        let scenario = Scenario::load(name);
        let unwound = scenario.unwind();
        assert_eq!(unwound.end, StackEnd::Complete, "{name}: {:?}", unwound.names());
        assert_eq!(unwound.callers(), scenario.callers, "{name}");
    }
}

#[test]
fn frames_have_the_names_that_the_program_gave_them() {
    let names = |name: &str| Scenario::load(name).unwind().names();
    let chain = ["capture", "innermost", "middle", "outer"];

    let plain = names("plain");
    assert_eq!(plain[..5], [&chain[..], &["main"]].concat());
    assert_eq!(plain.last().map(String::as_str), Some("_start"));
    assert_eq!(names("realigned")[..6], [&chain[..], &["realigned", "main"]].concat());
    assert_eq!(names("thread")[..5], [&chain[..], &["thread"]].concat());
    assert_eq!(names("rbx_frame")[..7], [&chain[..], &["callback", "calls_with_rbx_frame", "main"]].concat());
    let signal = names("signal");
    assert_eq!(signal[..9], [&chain[..], &["handler", "?", "interrupted", "signals", "main"]].concat());
}

#[test]
fn interrupted_code_is_no_return_address() {
    let unwound = Scenario::load("signal").unwind();
    let at = unwound.names().iter().position(|name| name == "interrupted").expect("the interrupted frame");
    let kinds: Vec<CodeAddressKind> = unwound
        .frames
        .iter()
        .filter_map(|frame| if let Frame::Code { kind, .. } = frame { Some(*kind) } else { None })
        .collect();
    for (i, kind) in kinds.into_iter().enumerate() {
        let is_pointer = kind == CodeAddressKind::InstructionPointer;
        assert_eq!(is_pointer, i == 0 || i == at, "frame {i}");
    }
}

#[test]
fn framehop_and_the_general_rules_agree() {
    for name in COMPLETE {
        let scenario = Scenario::load(name);
        // Without the search table framehop is not asked at all.
        let general = scenario.unwind_with(scenario.table(|mut image| {
            image.eh_frame_hdr = None;
            image
        }));
        assert_eq!((general.end, general.frames), (StackEnd::Complete, scenario.unwind().frames), "{name}");
    }
}

#[test]
fn section_headers_are_not_needed() {
    for name in COMPLETE {
        let scenario = Scenario::load(name);
        let stripped = scenario.unwind_with(scenario.table(|image| {
            let mut bytes = std::fs::read(&image.path).expect("the module's file");
            // e_shoff, then e_shnum and e_shstrndx of the ELF header.
            bytes[40..48].fill(0);
            bytes[60..64].fill(0);
            let stripped = parse_elf(image.file, image.path.clone(), &bytes).expect("still ELF");
            assert!(stripped.text.is_none() && stripped.eh_frame_hdr.is_some());
            assert_eq!((&stripped.build_id, &stripped.segments), (&image.build_id, &image.segments));
            stripped
        }));
        assert_eq!((stripped.end, stripped.frames), (StackEnd::Complete, scenario.unwind().frames), "{name}");
    }
}

#[test]
fn too_deep() {
    let scenario = Scenario::load("too_deep");
    let unwound = scenario.unwind();
    assert_truncated(&unwound, Truncation::TooDeep);
    assert_eq!(unwound.frames.len(), MAX_FRAMES + 1);
    assert_eq!(unwound.callers(), scenario.callers[..MAX_FRAMES - 1]);
}

#[test]
fn a_handler_on_its_own_stack_ends_at_the_signal() {
    let scenario = Scenario::load("other_stack");
    let unwound = scenario.unwind();
    assert_truncated(&unwound, Truncation::OutsideStack);
    let callers = unwound.callers();
    assert_eq!(callers, scenario.callers[..callers.len()]);
    assert_eq!(
        unwound.names()[4..],
        ["handler", "?", "?"],
        "the handler, its return to the kernel, the mark"
    );
}

#[test]
fn code_without_unwind_information() {
    let scenario = Scenario::load("no_cfi");
    let unwound = scenario.unwind();
    assert_truncated(&unwound, Truncation::NoUnwindInfo);
    assert_eq!(unwound.names()[4..6], ["callback", "calls_without_cfi"]);
    assert_eq!(unwound.frames.len(), 7);
}

#[test]
fn code_without_a_module() {
    let mut scenario = Scenario::load("generated");
    let unwound = scenario.unwind();
    assert_truncated(&unwound, Truncation::UnknownCode);
    let generated = unwound.callers().pop().expect("callers");
    assert_eq!(unwound.frames[5], Frame::Unmapped(generated));
    assert_eq!(unwound.callers(), scenario.callers[..5], "the address is right even if nobody's");

    scenario.maps.push_str("7ffff0000000-7ffff0001000 r-xp 00000000 00:1f 99   /lib/server/libjvm.so\n");
    let java = scenario.unwind();
    assert_eq!((java.end, java.frames.last()), (StackEnd::Java, Some(&Frame::Java)));
    assert_eq!(java.frames[..5], unwound.frames[..5]);
    assert_eq!(java.frames.len(), 6);
}

#[test]
fn a_cut_snapshot_gives_a_prefix_and_says_why_it_ends() {
    for name in COMPLETE {
        let mut scenario = Scenario::load(name);
        let whole = scenario.unwind().frames;
        let mut table = scenario.table(|image| image);
        let process = table.get_mut(stacks::TGID).expect("the process runs");
        let mut buffer = StackBuffer::default();
        for len in (0..scenario.stack.len().min(4096)).step_by(4) {
            let cuts = [
                (STACK_LIMITED, Truncation::SnapshotLimit),
                (STACK_FAULTED, Truncation::StackUnreadable),
                (0, Truncation::OutsideStack),
            ];
            for (flags, reason) in cuts {
                scenario.event.stack.flags = flags;
                let end = scenario.unwind_in(process, len, &mut buffer);
                let frames = buffer.frames();
                if end == StackEnd::Complete {
                    assert_eq!(frames, whole, "{name}: {len} bytes were enough");
                    continue;
                }
                assert_eq!(end, StackEnd::Truncated(reason), "{name}: {len} bytes");
                let callers = frames.len() - 1;
                assert_eq!(frames[..callers], whole[..callers], "{name}: {len} bytes");
                assert!(callers >= 2, "the allocator function and its caller need no stack");
            }
        }
    }
}

#[test]
fn hijacked_returns() {
    let trampoline = 0x7fff_ffff_e000;
    let mut scenario = Scenario::load("plain");
    let whole = scenario.unwind();
    let slots = [1, 3].map(|depth| (scenario.slot_of_return(depth), scenario.callers[depth]));
    for (slot, _) in slots {
        scenario.set_word(slot, trampoline);
    }
    assert_truncated(&scenario.unwind(), Truncation::UnknownCode);

    scenario.maps.push_str("7fffffffe000-7ffffffff000 --xp 00000000 00:00 0     [uprobes]\n");
    let hijacked = scenario.unwind();
    assert_truncated(&hijacked, Truncation::HijackedReturn);
    assert_eq!(hijacked.frames[..2], whole.frames[..2]);
    assert_eq!(hijacked.frames.len(), 3, "the trampoline is no frame");

    scenario.hijack(slots[0].0, slots[0].1);
    let half = scenario.unwind();
    assert_truncated(&half, Truncation::HijackedReturn);
    assert_eq!(half.frames[..4], whole.frames[..4]);

    scenario.hijack(slots[1].0, slots[1].1);
    let restored = scenario.unwind();
    assert_eq!((restored.end, &restored.frames), (StackEnd::Complete, &whole.frames));
}

#[test]
fn damage_ends_a_stack_and_never_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for name in COMPLETE {
        let scenario = Scenario::load(name);
        let mut table = scenario.table(|image| image);
        let process = table.get_mut(stacks::TGID).expect("the process runs");
        let mut buffer = StackBuffer::default();
        for _ in 0..2000 {
            let mut damaged = scenario.clone();
            for _ in 0..4 {
                let offset = (random() as usize % (damaged.stack.len().min(2048) / 8)) * 8;
                let sp = damaged.event.stack.registers.sp;
                // Anything, an address on the stack, one right at the end of the address space.
                let word =
                    [random(), sp + random() % 4096, u64::MAX - random() % 64, 0][random() as usize % 4];
                damaged.set_word(offset, word);
            }
            if random().is_multiple_of(4) {
                damaged.event.stack.registers.bp = random();
                damaged.event.stack.registers.sp = [random(), u64::MAX - 4][random() as usize % 2];
            }
            damaged.unwind_in(process, damaged.stack.len(), &mut buffer);
            assert!((2..=MAX_FRAMES + 1).contains(&buffer.frames().len()));
        }
    }
}

#[test]
fn the_test_itself_and_its_libraries_are_modules() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's maps");
    let modules: Vec<Module> = (0..)
        .zip(code_files(&maps))
        .map(|(index, file)| {
            let bytes = std::fs::read(&file.path).expect("a mapped file");
            let image = parse_elf(file.file, file.path, &bytes).expect("mapped code is ELF");
            Module::new(ModuleIndex(index), image)
        })
        .collect();
    assert!(modules.iter().any(|module| module.image.path.contains("libc.so")));
    for module in &modules {
        let cfi = module.cfi().expect("unwind information");
        assert!(cfi.eh_frame_hdr().is_some(), "{}: the search table can be used", module.image.path);
        let code = module.image.segments.iter().find(|segment| segment.executable).expect("code");
        let (start, end) = (code.svma, code.svma + code.size);
        assert!(!module.covers(end) && !module.covers(u64::MAX) && !module.covers(0));
        let covered = (start..end).step_by(16).filter(|svma| module.covers(*svma)).count() as u64;
        assert!(covered * 16 > (end - start) / 2, "{}: most code is covered", module.image.path);
        assert_eq!(module.svma(code.file_offset + 5), Some(start + 5));
        assert!(module.is_code(start) && !module.is_code(end));
    }
}
