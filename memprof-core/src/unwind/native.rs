//! Whose code an address of one process is, and steps over frames of modules' code.
//!
//! A step is taken only when everything that it relies on has been checked:
//!
//! ```text
//! pc ─► place ─► its rule ─┬─ none ─► truncated
//!                          ├─ thread entry ─► complete
//!                          └─ step ─► new pc, stack pointer checked
//! ```

use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Error, FrameAddress, Unwinder as _};
use gimli::UnwindContext;
use memprof_common::event::Registers;
use rustc_hash::FxHashMap;

use super::code::{CodeMapping, CodeOwner, framehop_knows, framehop_module};
use super::general::{self, FrameRegisters};
use super::rule::{REGISTERS, Row, Rule, SAVED_REGISTERS};
use super::snapshot::Snapshot;
use crate::address::{Avma, CodeAddressKind};
use crate::process::module::ModuleIndex;
use crate::stack::{Frame, Truncation};

/// Addresses whose place is remembered, after which all are forgotten. A large program has some ten
/// thousand places from which allocations are reached; garbage has any number.
const MAX_PLACES: usize = 1 << 16;

/// framehop's rule caches per process. One holds 509 addresses, each in the one place that its remainder
/// names: two frames of one stack often collide, and then both rules are read anew for every stack.
const RULE_CACHES: u64 = 8;

/// Entries of one rule cache.
const RULE_CACHE_LEN: u64 = 509;

/// What is known of a code address.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Module(ModulePlace),
    Java,
    Uprobes,
    Unknown,
}

/// Code of a module, and how to step over a frame there.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModulePlace {
    module: ModuleIndex,
    mapping: usize,
    bias: u64,
    rule: Rule,
}

impl ModulePlace {
    /// The frame of a live address here.
    pub(super) fn frame(&self, address: FrameAddress) -> Frame {
        let kind = match address {
            FrameAddress::InstructionPointer(_) => CodeAddressKind::InstructionPointer,
            FrameAddress::ReturnAddress(_) => CodeAddressKind::ReturnAddress,
        };
        Frame::Code { module: self.module, svma: address.address().wrapping_sub(self.bias), kind }
    }
}

/// Where unwinding is: a code address and the registers of its frame.
pub(super) struct Cursor {
    pub(super) address: FrameAddress,
    pub(super) registers: FrameRegisters,
}

/// What a step leads to.
pub(super) enum Step {
    Caller(Cursor),
    Entry,
}

/// The modules' code of one process.
#[derive(Default)]
pub(super) struct NativeUnwinder {
    /// Ascending, without overlaps.
    code: Vec<CodeMapping>,
    framehop: UnwinderX86_64<Arc<[u8]>>,
    /// framehop's rules by address; together they act as one cache of the product of both sizes.
    rules: [CacheX86_64; RULE_CACHES as usize],
    /// Places by lookup address (a return address minus one).
    places: FxHashMap<Avma, Place>,
    context: UnwindContext<usize>,
}

impl NativeUnwinder {
    /// Replaces what is known of the process's code: executable mappings by ascending address.
    pub(super) fn set_code(&mut self, code: Vec<CodeMapping>) {
        if code == self.code {
            return;
        }
        let mut framehop = UnwinderX86_64::new();
        for mapping in &code {
            if let Some(module) = framehop_module(mapping) {
                framehop.add_module(module);
            }
        }
        self.framehop = framehop;
        // framehop tells old rules from new ones by a 16-bit number that wraps around: start afresh.
        self.rules = Default::default();
        self.places.clear();
        self.code = code;
    }

    /// What is known of the process's code.
    pub(super) fn code(&self) -> &[CodeMapping] {
        &self.code
    }

    /// Steps over a frame of a module's code.
    pub(super) fn step(
        &mut self,
        cursor: Cursor,
        place: ModulePlace,
        snapshot: &Snapshot<'_>,
    ) -> Result<Step, Truncation> {
        match place.rule {
            Rule::Entry => Ok(Step::Entry),
            Rule::Missing => Err(Truncation::NoUnwindInfo),
            Rule::Ordinary { from_rbp, saved } => self.ordinary_step(cursor, from_rbp, saved, snapshot),
            Rule::General => self.general_step(&cursor, place, snapshot),
        }
    }

    /// A step by a rule that framehop is known to follow.
    fn ordinary_step(
        &mut self,
        cursor: Cursor,
        from_rbp: bool,
        saved: [u16; 5],
        snapshot: &Snapshot<'_>,
    ) -> Result<Step, Truncation> {
        let Cursor { address, mut registers } = cursor;
        let sp = registers.values.sp();
        // framehop takes rbp = 0 for the end of the stack. By this rule it is nothing but damage.
        if from_rbp && (registers.known & (1 << 6) == 0 || registers.values.bp() == 0) {
            return Err(Truncation::UnwindFailed);
        }
        let mut read = |address| snapshot.read(address).map_err(|_| ());
        let rules = &mut self.rules[(address.address_for_lookup() / RULE_CACHE_LEN % RULE_CACHES) as usize];
        let caller = self.framehop.unwind_frame(address, &mut registers.values, rules, &mut read);
        let return_address = match caller {
            Ok(Some(address)) => address,
            Ok(None) => return Ok(Step::Entry),
            Err(error) => return Err(step_error(error, snapshot)),
        };
        let cfa = registers.values.sp();
        for (number, words) in SAVED_REGISTERS.into_iter().zip(saved) {
            if words != 0 {
                let slot = cfa.wrapping_sub(u64::from(words) * 8);
                registers.set(number, snapshot.read(slot).ok());
            }
        }
        registers.known &= FrameRegisters::SURVIVE_CALL;
        check_progress(sp, cfa, snapshot)?;
        let address = FrameAddress::from_return_address(return_address).ok_or(Truncation::UnwindFailed)?;
        Ok(Step::Caller(Cursor { address, registers }))
    }

    /// A step by any other rule.
    fn general_step(
        &mut self,
        cursor: &Cursor,
        place: ModulePlace,
        snapshot: &Snapshot<'_>,
    ) -> Result<Step, Truncation> {
        let CodeOwner::Module { module, .. } = &self.code[place.mapping].owner else {
            return Err(Truncation::NoUnwindInfo);
        };
        let svma = cursor.address.address_for_lookup().wrapping_sub(place.bias);
        let row = module
            .cfi()
            .and_then(|cfi| Row::find(cfi, svma, &mut self.context))
            .ok_or(Truncation::NoUnwindInfo)?;
        let registers =
            general::step(&row, &cursor.registers, snapshot).map_err(|error| error.truncation(snapshot))?;
        let (ip, sp) = (registers.values.ip(), registers.values.sp());
        if row.entry.is_signal_trampoline() {
            // The interrupted code may have run on another stack than the handler.
            if !snapshot.holds(sp) {
                return Err(snapshot.outside(sp));
            }
            check_progress(cursor.registers.values.sp(), sp, snapshot)?;
            return Ok(Step::Caller(Cursor {
                address: FrameAddress::from_instruction_pointer(ip),
                registers,
            }));
        }
        let Some(address) = FrameAddress::from_return_address(ip) else { return Ok(Step::Entry) };
        check_progress(cursor.registers.values.sp(), sp, snapshot)?;
        Ok(Step::Caller(Cursor { address, registers }))
    }

    /// What is known of the code at a lookup address.
    #[inline]
    pub(super) fn place(&mut self, lookup: Avma) -> Place {
        if let Some(place) = self.places.get(&lookup) {
            return *place;
        }
        let place = self.find_place(lookup);
        if self.places.len() >= MAX_PLACES {
            self.places.clear();
        }
        self.places.insert(lookup, place);
        place
    }

    fn find_place(&mut self, lookup: Avma) -> Place {
        let after = self.code.partition_point(|mapping| mapping.start <= lookup);
        let here = self.code[..after].iter().enumerate().next_back();
        let Some((index, mapping)) = here.filter(|(_, mapping)| lookup < mapping.end) else {
            return self.before_mapping(lookup, after);
        };
        let (module, bias) = match &mapping.owner {
            CodeOwner::Module { module, bias } => (module, *bias),
            CodeOwner::Java => return Place::Java,
            CodeOwner::Uprobes => return Place::Uprobes,
        };
        let svma = lookup.wrapping_sub(bias);
        if !module.is_code(svma) {
            return Place::Unknown;
        }
        let framehop = framehop_knows(module, bias, lookup);
        let row = module.cfi().and_then(|cfi| Row::find(cfi, svma, &mut self.context));
        let rule = row.map_or(Rule::Missing, |row| row.rule(framehop));
        Place::Module(ModulePlace { module: module.index, mapping: index, bias, rule })
    }

    /// A lookup address in no mapping, with the mapping `next` the first one above it. The trampoline
    /// is the first instruction of its mapping: as a return address it is looked up before it.
    fn before_mapping(&self, lookup: Avma, next: usize) -> Place {
        match self.code.get(next) {
            Some(CodeMapping { start, owner: CodeOwner::Uprobes, .. })
                if lookup.checked_add(1) == Some(*start) =>
            {
                Place::Uprobes
            }
            _ => Place::Unknown,
        }
    }
}

/// The registers that a snapshot begins with.
pub(super) fn first_registers(registers: &Registers) -> FrameRegisters {
    let mut values = UnwindRegsX86_64::new(registers.ip, registers.sp, registers.bp);
    let saved = [registers.bx, registers.r12, registers.r13, registers.r14, registers.r15];
    for (number, value) in SAVED_REGISTERS.into_iter().zip(saved) {
        values.set(REGISTERS[usize::from(number)], value);
    }
    FrameRegisters { values, known: FrameRegisters::SURVIVE_CALL }
}

/// A caller's frame lies above the callee's, and its start in the snapshot.
pub(super) fn check_progress(sp: Avma, caller_sp: Avma, snapshot: &Snapshot<'_>) -> Result<(), Truncation> {
    if caller_sp <= sp {
        Err(Truncation::NoProgress)
    } else if snapshot.holds(caller_sp) {
        Ok(())
    } else {
        Err(snapshot.outside(caller_sp))
    }
}

fn step_error(error: Error, snapshot: &Snapshot<'_>) -> Truncation {
    match error {
        Error::CouldNotReadStack(address) => snapshot.outside(address),
        Error::FramepointerUnwindingMovedBackwards | Error::DidNotAdvance => Truncation::NoProgress,
        Error::IntegerOverflow | Error::ReturnAddressIsNull => Truncation::UnwindFailed,
    }
}
