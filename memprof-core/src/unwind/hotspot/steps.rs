//! Rules by which frames of the JVM's code are stepped over on x86-64: where the caller's registers are.
//!
//! Only return addresses lead here: the code at hand has called something. That spares the rules for functions
//! that have not yet built their frame, or have already given it up.

use framehop::x86_64::UnwindRegsX86_64;

use super::super::general::FrameRegisters;
use super::super::snapshot::Snapshot;
use crate::address::Avma;
use crate::stack::Truncation;

/// DWARF numbers of the registers.
const RBX: u16 = 3;
const RBP: u16 = 6;
const RSP: u16 = 7;
const R12: u16 = 12;

/// Most bytes from the stack pointer to the frame pointer of one frame (64 KiB).
const MAX_FRAME: u64 = 64 << 10;

/// What the method entry barrier pushes before its frame, where else the return address is.
const COOKIE: u64 = u64::MAX;

/// A frame to step over.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    /// A return address.
    pub(super) pc: Avma,
    /// The registers there.
    pub(super) registers: &'a FrameRegisters,
    pub(super) snapshot: &'a Snapshot<'a>,
}

/// What an interpreted frame says.
pub(super) struct Interpreted {
    /// Its `Method`.
    pub(super) method: Avma,
    /// Where its bytecode is that runs; 0 in a native method.
    pub(super) bytecode: Avma,
    pub(super) caller: FrameRegisters,
}

impl At<'_> {
    /// The stack pointer after the call has returned.
    pub(super) fn sp(&self) -> Avma {
        self.registers.values.sp()
    }

    /// A word of the stack.
    pub(super) fn load(&self, address: Avma) -> Result<u64, Truncation> {
        self.snapshot.read(address).map_err(|_| self.snapshot.outside(address))
    }

    /// A frame of fixed size, which ends with rbp and the return address as all compiled code's do; its caller's
    /// code keeps nothing else in registers. The code may have pushed some more bytes for the call.
    pub(super) fn by_size(&self, frame_size: u64, pushed: u64) -> Result<FrameRegisters, Truncation> {
        let size = frame_size.checked_add(pushed).filter(|_| frame_size >= 16);
        let end = size.and_then(|size| self.sp().checked_add(size)).ok_or(Truncation::UnwindFailed)?;
        Ok(caller(self.load(end - 8)?, end, Some(self.load(end - 16)?)))
    }

    /// A frame that rbp points to, as functions written in assembler make it.
    pub(super) fn by_frame_pointer(&self) -> Result<FrameRegisters, Truncation> {
        let fp = self.frame_pointer()?;
        let (rbp, pc) = (self.load(fp)?, self.load(fp + 8)?);
        if pc == COOKIE {
            return Ok(caller(self.load(fp + 16)?, fp + 24, Some(rbp)));
        }
        Ok(caller(pc, fp + 16, Some(rbp)))
    }

    /// A frame of the interpreter (`src/hotspot/cpu/x86/frame_x86.hpp`). Its end is what it says itself:
    /// when it was called from compiled code, its parameters have been copied below its caller's frame.
    pub(super) fn interpreted(&self, version: u32) -> Result<Interpreted, Truncation> {
        let fp = self.frame_pointer()?;
        // JDK 9 has put the class's mirror before it.
        let bytecode = if version >= 9 { fp.wrapping_sub(64) } else { fp.wrapping_sub(56) };
        let sender_sp = self.load(fp.wrapping_sub(8))?;
        // Linkers of method handles take their last parameter off the stack after that has been noted.
        if sender_sp < fp + 8 || sender_sp - fp > MAX_FRAME || !sender_sp.is_multiple_of(8) {
            return Err(Truncation::UnwindFailed);
        }
        Ok(Interpreted {
            method: self.load(fp.wrapping_sub(24))?,
            bytecode: self.load(bytecode)?,
            caller: caller(self.load(fp + 8)?, sender_sp, Some(self.load(fp)?)),
        })
    }

    /// The frame by which the JVM has called Java: it keeps all registers that native code wants kept
    /// (`src/hotspot/cpu/x86/stubGenerator_x86_64.cpp`, `generate_call_stub`).
    pub(super) fn call_stub(&self) -> Result<FrameRegisters, Truncation> {
        let fp = self.frame_pointer()?;
        let mut caller = caller(self.load(fp + 8)?, fp + 16, Some(self.load(fp)?));
        caller.set(RBX, self.load(fp.wrapping_sub(56)).ok());
        for (number, offset) in (R12..).zip([64, 72, 80, 88]) {
            caller.set(number, self.load(fp.wrapping_sub(offset)).ok());
        }
        Ok(caller)
    }

    /// rbp, where it points to the frame at hand.
    fn frame_pointer(&self) -> Result<Avma, Truncation> {
        let fp = self.registers.values.bp();
        let is_known = self.registers.known & (1 << RBP) != 0;
        let is_here = fp.checked_sub(self.sp()).is_some_and(|distance| distance < MAX_FRAME);
        if is_known && is_here && fp.is_multiple_of(8) && fp <= u64::MAX - 32 {
            Ok(fp)
        } else {
            Err(Truncation::UnwindFailed)
        }
    }
}

/// Registers of a caller of which nothing else is known.
pub(super) fn caller(pc: Avma, sp: Avma, rbp: Option<u64>) -> FrameRegisters {
    let mut registers = FrameRegisters { values: UnwindRegsX86_64::new(pc, sp, 0), known: 1 << RSP };
    registers.set(RBP, rbp);
    registers
}

#[cfg(test)]
mod tests {
    use memprof_common::event::{COMM_LEN, HOLE_WORDS, HijackedReturn, MAX_HIJACKED_RETURNS, StackSnapshot};

    use super::super::super::native::first_registers;
    use super::*;

    const SP: u64 = 0x7000_0000;

    /// What a step at `sp` with this rbp finds in a stack of these words from [`SP`] on.
    fn at<T>(words: &[u64], sp: Avma, rbp: u64, step: impl Fn(&At<'_>) -> T) -> T {
        let registers = memprof_common::event::Registers { ip: 1, sp, bp: rbp, ..Default::default() };
        let copied = StackSnapshot {
            kind: 0,
            flags: 0,
            len: words.len() as u32 * 8,
            hijacked_len: 0,
            start: SP,
            holes: [0; HOLE_WORDS],
            comm: [0; COMM_LEN],
            registers,
            hijacked: [HijackedReturn::default(); MAX_HIJACKED_RETURNS],
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let registers = first_registers(&registers);
        step(&At { pc: 1, registers: &registers, snapshot: &Snapshot::new(&copied, &bytes) })
    }

    fn main_registers(registers: &FrameRegisters) -> (u64, u64, u64) {
        (registers.values.ip(), registers.values.sp(), registers.values.bp())
    }

    #[test]
    fn compiled_frames_end_with_rbp_and_the_return_address() {
        let words = [9, 9, 0xb0, 0xa0, 0xb1, 0xa1];
        let step = |size, pushed| at(&words, SP, 5, |at| at.by_size(size, pushed));
        let caller = step(32, 0).expect("it is in the stack");
        assert_eq!(main_registers(&caller), (0xa0, SP + 32, 0xb0));
        assert_eq!(caller.known, 1 << RBP | 1 << RSP, "compiled code keeps nothing else");
        assert_eq!(main_registers(&step(32, 16).expect("it is there, too")), (0xa1, SP + 48, 0xb1));
        assert_eq!(step(64, 0).map(|_| ()), Err(Truncation::OutsideStack));
        assert_eq!(step(8, 0).map(|_| ()), Err(Truncation::UnwindFailed), "no room for rbp");
        assert_eq!(step(u64::MAX - 7, 16).map(|_| ()), Err(Truncation::UnwindFailed));
    }

    #[test]
    fn an_interpreted_frame_says_where_it_ends() {
        // From fp - 64 on: bytecode, 4 others, Method, another, the caller's stack pointer, rbp, return address.
        let mut words = [0xbc, 0xbd, 9, 9, 9, 0x3e, 9, SP + 96, 0xb0, 0xa0, 9, 9];
        let step = |words: &[u64], version, fp| at(words, SP, fp, |at| at.interpreted(version));
        let frame = step(&words, 17, SP + 64).expect("it is a frame");
        assert_eq!((frame.method, frame.bytecode), (0x3e, 0xbc));
        assert_eq!(main_registers(&frame.caller), (0xa0, SP + 96, 0xb0));
        assert_eq!(step(&words, 8, SP + 64).expect("it is a frame").bytecode, 0xbd);
        for fp in [SP - 8, SP + 65, SP + (1 << 20)] {
            assert_eq!(step(&words, 17, fp).err(), Some(Truncation::UnwindFailed), "rbp is something else");
        }
        words[7] = SP + 64 + 8;
        assert!(step(&words, 17, SP + 64).is_ok(), "a method handle's linker took a parameter off");
        words[7] = SP + 64;
        assert_eq!(step(&words, 17, SP + 64).err(), Some(Truncation::UnwindFailed));
    }

    #[test]
    fn the_call_stub_keeps_all_registers_of_its_caller() {
        let words = [0xf, 0xe, 0xd, 0xc, 0xb, 9, 9, 9, 9, 9, 9, 0xb0, 0xa0, 9];
        let caller = at(&words, SP, SP + 88, |at| at.call_stub()).expect("it is a frame");
        assert_eq!(main_registers(&caller), (0xa0, SP + 104, 0xb0));
        let kept =
            [3, 12, 13, 14, 15].map(|number| caller.values.get(super::super::super::rule::REGISTERS[number]));
        assert_eq!(kept, [0xb, 0xc, 0xd, 0xe, 0xf]);
        assert_eq!(caller.known, FrameRegisters::SURVIVE_CALL);
    }

    #[test]
    fn the_entry_barrier_has_a_cookie_where_others_have_the_return_address() {
        let words = [9, 0xb0, COOKIE, 0xa0];
        let caller = at(&words, SP, SP + 8, |at| at.by_frame_pointer()).expect("it is a frame");
        assert_eq!(main_registers(&caller), (0xa0, SP + 32, 0xb0));
        let caller = at(&[9, 0xb0, 0xa0], SP, SP + 8, |at| at.by_frame_pointer()).expect("it is a frame");
        assert_eq!(main_registers(&caller), (0xa0, SP + 24, 0xb0));
    }
}
