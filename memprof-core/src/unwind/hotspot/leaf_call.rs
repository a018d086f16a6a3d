//! Calls of which compiled code keeps no record, because the JVM never looks at a stack that has one: those of
//! barriers and other short helpers. Around such a call, the code may have moved the stack pointer. What it does
//! after the call tells how far: it moves it back before it goes on elsewhere.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::address::Avma;

/// Bytes of code looked at. To restore all registers of the largest processors takes some 500.
pub(super) const LOOKED_AT: usize = 1024;

/// Most bytes that may have been pushed: registers, of the largest processors.
const MAX_PUSHED: u64 = 4096;

/// By how many bytes the code at `pc` moves the stack pointer back before it jumps elsewhere or calls something
/// else. `None` when that cannot be told.
pub(super) fn pushed(pc: Avma, code: &[u8]) -> Option<u64> {
    let mut pushed: u64 = 0;
    for instruction in &mut Decoder::with_ip(64, code, pc, DecoderOptions::NONE) {
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            FlowControl::UnconditionalBranch | FlowControl::Call | FlowControl::IndirectCall => {
                return Some(pushed);
            }
            // What is moved before a return is the frame itself.
            FlowControl::Return => return Some(0),
            _ => return None,
        }
        pushed = pushed.checked_add(popped(&instruction)?).filter(|&pushed| pushed <= MAX_PUSHED)?;
    }
    // That far away there is no way back: the call was made without.
    (pushed == 0).then_some(0)
}

/// Whether a call ends where this code ends.
pub(super) fn ends_with_call(code: &[u8]) -> bool {
    match code {
        // A relative one, and one through a register without and with a prefix.
        [.., 0xe8, _, _, _, _] => true,
        [.., 0xff, 0xd0..=0xd7] => true,
        _ => false,
    }
}

/// By how many bytes an instruction moves the stack pointer towards the frame's end.
fn popped(instruction: &Instruction) -> Option<u64> {
    let is_rsp = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Pop | Mnemonic::Popfq => Some(8),
        Mnemonic::Push | Mnemonic::Pushfq => None,
        Mnemonic::Add if is_rsp => instruction.try_immediate(1).ok(),
        Mnemonic::Lea if is_rsp => {
            let is_own =
                instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None;
            is_own.then(|| instruction.memory_displacement64())
        }
        Mnemonic::Cmp | Mnemonic::Test => Some(0),
        _ if is_rsp => None,
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_is_seen_where_it_is_taken_off() {
        for (what, code, expected) in [
            ("add rsp, 8; jmp", &[0x48, 0x83, 0xc4, 0x08, 0xeb, 0x10][..], Some(8)),
            (
                "mov rax, [rsp+8]; add rsp, 0x110; jmp",
                &[0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x81, 0xc4, 0x10, 1, 0, 0, 0xe9, 0, 1, 0, 0],
                Some(0x110),
            ),
            (
                "pop rcx; pop r8; lea rsp, [rsp+16]; jmp",
                &[0x59, 0x41, 0x58, 0x48, 0x8d, 0x64, 0x24, 16, 0xeb, 0],
                Some(32),
            ),
            ("test eax, eax; je; call", &[0x85, 0xc0, 0x74, 0x05, 0xe8, 1, 2, 3, 4], Some(0)),
            (
                "add rsp, 0x20; pop rbp; cmp rsp, [r15+0x28]; ret",
                &[0x48, 0x83, 0xc4, 0x20, 0x5d, 0x49, 0x3b, 0x67, 0x28, 0xc3],
                Some(0),
            ),
            ("mov rsp, rbp; jmp", &[0x48, 0x89, 0xec, 0xeb, 0], None),
            ("push rax; jmp", &[0x50, 0xeb, 0], None),
            ("add rsp, -8; jmp", &[0x48, 0x83, 0xc4, 0xf8, 0xeb, 0], None),
            ("add rsp, 8; nothing more", &[0x48, 0x83, 0xc4, 0x08], None),
            ("no code", &[0x06], None),
        ] {
            assert_eq!(pushed(0x1000, code), expected, "{what}");
        }
    }

    #[test]
    fn calls_are_known_by_their_end() {
        assert!(ends_with_call(&[0xe8, 1, 2, 3, 4]));
        assert!(ends_with_call(&[0x90, 0x90, 0x41, 0xff, 0xd2]));
        assert!(!ends_with_call(&[0x90, 0x48, 0x89, 0xec, 0x90]));
    }
}
