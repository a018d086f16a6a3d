//! At which instruction of a function a probe is cheap, and safe.
//!
//! The kernel emulates a few instructions (`arch/x86/kernel/uprobes.c`: `push` of a register, `nop`, near
//! relative `jmp`, `jcc` and `call`). Every other probed instruction is copied elsewhere and
//! single-stepped, which costs a second trap: ten times the price on a virtual machine. So the probe goes
//! to the first instruction of the kind that can be emulated, as long as every call passes it with its
//! arguments still in their registers.
//!
//! ```text
//! free+0   test rdi,rdi      would be single-stepped
//! free+3   je   free+0xc8    emulated, but taken by free(NULL) too
//! free+9   push rbp          emulated, args intact, free(NULL) has left: here
//! free+10  lea  rsi,[rdi-16]
//! ```
//! The probe of an allocating function also sees the return: the kernel swaps the return address at `[rsp]`
//! when the probe is hit. There rsp must still be the one at entry, so such a probe cannot sit behind a
//! `push` or a `sub rsp`; `free` can.

use iced_x86::{
    Decoder, DecoderOptions, FastFormatter, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use memprof_common::function::FunctionKind;

/// Bytes of a function in which a place is sought. Beyond, no call's arguments are intact.
const SEARCHED: usize = 256;

/// Where in a function the probe goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes after the function's first.
    pub offset: u32,
    /// Whether the kernel emulates the instruction there. When it does not, every hit is single-stepped.
    pub emulated: bool,
    /// The instruction there, disassembled; empty when there is no code.
    pub instruction: String,
}

/// Chooses the place of a probe for a function of this `kind`, given its whole `code` and its address
/// `svma`. When no place is better, it is the entry.
///
/// Branches from outside of `code` to behind the entry (a cold part that jumps back) are not seen; compilers
/// do not emit them into a prologue.
#[must_use]
pub fn choose(kind: FunctionKind, code: &[u8], svma: u64) -> Placement {
    let mut prologue = Prologue::new(kind);
    let mut entry = Placement { offset: 0, emulated: false, instruction: String::new() };
    let mut candidates = Vec::new();
    let start = &code[..code.len().min(SEARCHED)];
    for instruction in &mut Decoder::with_ip(64, start, svma, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            break;
        }
        let here = placement(&instruction, svma);
        if here.offset == 0 {
            entry = here.clone();
        }
        let step = prologue.step(&instruction);
        let found = here.emulated;
        if found {
            candidates.push(here);
        }
        // The branch by which free(NULL) leaves will do, but what follows it is hit less often.
        if step == Step::Stop || (found && step == Step::Next) {
            break;
        }
    }
    candidates.into_iter().rev().find(|c| !is_jumped_into(code, svma, c.offset)).unwrap_or(entry)
}

/// Whether a call may reach `offset` twice or without the entry: some branch of the function goes to an
/// address behind its first instruction and up to `offset`.
fn is_jumped_into(code: &[u8], svma: u64, offset: u32) -> bool {
    let inner = 1..=u64::from(offset);
    Decoder::with_ip(64, code, svma, DecoderOptions::NONE)
        .iter()
        .any(|i| is_near_branch(&i) && inner.contains(&i.near_branch_target().wrapping_sub(svma)))
}

fn is_near_branch(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

fn placement(instruction: &Instruction, svma: u64) -> Placement {
    Placement {
        offset: u32::try_from(instruction.ip().wrapping_sub(svma)).expect("only SEARCHED bytes are decoded"),
        emulated: is_emulated(instruction),
        instruction: disassemble(instruction),
    }
}

/// Whether every kernel that can probe at all emulates this instruction on x86-64.
fn is_emulated(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        // `push r64` with no prefix but REX.B: 0x50+r, or 0x41 0x50+r. `ff /6` is not emulated.
        Mnemonic::Push => {
            let is_opcode_form =
                instruction.len() == if is_extended(instruction.op0_register()) { 2 } else { 1 };
            instruction.op0_kind() == OpKind::Register && is_opcode_form
        }
        // Only newer kernels emulate the longer forms.
        Mnemonic::Nop => instruction.len() == 1,
        Mnemonic::Jmp | Mnemonic::Call => is_unprefixed_branch(instruction),
        // Not loop, jrcxz and the like.
        _ => instruction.is_jcc_short_or_near() && is_unprefixed_branch(instruction),
    }
}

/// A near relative branch in its plain length: the kernel refuses some prefixes, so none is trusted.
fn is_unprefixed_branch(instruction: &Instruction) -> bool {
    let plain = match instruction.mnemonic() {
        Mnemonic::Call => 5,
        Mnemonic::Jmp if instruction.is_jmp_short() => 2,
        Mnemonic::Jmp => 5,
        _ if instruction.is_jcc_short() => 2,
        _ => 6,
    };
    instruction.op0_kind() == OpKind::NearBranch64 && instruction.len() == plain
}

fn is_extended(register: Register) -> bool {
    matches!(register.number(), 8..=15)
}

/// How the walk over the prologue goes on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next instruction may carry the probe.
    Next,
    /// So it may, and calls that free a null pointer do not reach it.
    PastNullCheck,
    /// The next instruction is not reached by every call, or no longer as the call was made.
    Stop,
}

/// What is true of every call that reaches the next instruction.
struct Prologue {
    info: InstructionInfoFactory,
    arguments: &'static [Register],
    needs_entry_rsp: bool,
    /// The flags say whether the first argument is null, and only free may leave then.
    flags_of_null_check: bool,
}

impl Prologue {
    fn new(kind: FunctionKind) -> Self {
        Self {
            info: InstructionInfoFactory::new(),
            arguments: arguments(kind),
            needs_entry_rsp: kind.allocates(),
            flags_of_null_check: false,
        }
    }

    fn step(&mut self, instruction: &Instruction) -> Step {
        if instruction.flow_control() != FlowControl::Next {
            let leaves_on_null = self.flags_of_null_check
                && instruction.mnemonic() == Mnemonic::Je
                && instruction.is_jcc_short_or_near();
            return if leaves_on_null { Step::PastNullCheck } else { Step::Stop };
        }
        if self.writes_what_the_probe_reads(instruction) {
            return Step::Stop;
        }
        if is_null_check(instruction) {
            self.flags_of_null_check = !self.needs_entry_rsp;
        } else if instruction.rflags_modified() != 0 {
            self.flags_of_null_check = false;
        }
        Step::Next
    }

    fn writes_what_the_probe_reads(&mut self, instruction: &Instruction) -> bool {
        self.info.info(instruction).used_registers().iter().any(|used| {
            let register = used.register().full_register();
            let writes = matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            writes
                && (self.arguments.contains(&register) || (self.needs_entry_rsp && register == Register::RSP))
        })
    }
}

/// The registers in which a function of this kind gets its arguments (System V x86-64).
fn arguments(kind: FunctionKind) -> &'static [Register] {
    match kind {
        FunctionKind::Malloc | FunctionKind::New | FunctionKind::Free => &[Register::RDI],
        FunctionKind::Calloc
        | FunctionKind::NewArray
        | FunctionKind::Realloc
        | FunctionKind::ReallocOrFree
        | FunctionKind::AlignedAlloc => &[Register::RDI, Register::RSI],
        FunctionKind::ReallocArray | FunctionKind::ResizeInPlace | FunctionKind::PosixMemalign => {
            &[Register::RDI, Register::RSI, Register::RDX]
        }
    }
}

/// `test rdi,rdi` or `cmp rdi,0`.
fn is_null_check(instruction: &Instruction) -> bool {
    let is_rdi = |operand| {
        instruction.op_kind(operand) == OpKind::Register && instruction.op_register(operand) == Register::RDI
    };
    match instruction.mnemonic() {
        Mnemonic::Test => is_rdi(0) && is_rdi(1),
        Mnemonic::Cmp => is_rdi(0) && instruction.try_immediate(1).is_ok_and(|value| value == 0),
        _ => false,
    }
}

fn disassemble(instruction: &Instruction) -> String {
    let mut formatter = FastFormatter::new();
    formatter.options_mut().set_use_hex_prefix(true);
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    text
}

#[cfg(test)]
mod tests;
