//! One step by a rule in full: call frame information as DWARF 5 (section 6.4) and the x86-64 psABI
//! define it, with expressions. Signal frames, realigned stacks and hand-written code need it.

use gimli::{
    CfaRule, EvaluationResult, Expression, Location, Register, RegisterRule, UnwindExpression, Value, X86_64,
};

use super::rule::{REGISTERS, Row};
use super::snapshot::{Snapshot, Unreadable};
use crate::process::cfi::Bytes;
use crate::stack::Truncation;
use framehop::x86_64::UnwindRegsX86_64;

/// Operations after which an expression is given up: the watched process chose it, and it may loop.
const MAX_OPERATIONS: u32 = 1000;

/// Registers of a frame, as far as they are known.
#[derive(Clone, Copy)]
pub(crate) struct FrameRegisters {
    /// Their values. The instruction pointer and rsp are always known.
    pub(crate) values: UnwindRegsX86_64,
    /// Bit n: the register with DWARF number n is known.
    pub(crate) known: u16,
}

impl FrameRegisters {
    /// Registers that survive a call: rbx, rbp, rsp and r12 to r15.
    pub(crate) const SURVIVE_CALL: u16 = 1 << 3 | 1 << 6 | 1 << 7 | 0b1111 << 12;

    fn get(&self, register: Register) -> Option<u64> {
        match register {
            X86_64::RA => Some(self.values.ip()),
            Register(number) => {
                let is_known = number < 16 && self.known & (1 << number) != 0;
                is_known.then(|| self.values.get(REGISTERS[usize::from(number)]))
            }
        }
    }

    /// Sets a general register, or marks it as unknown.
    pub(crate) fn set(&mut self, number: u16, value: Option<u64>) {
        match value {
            Some(value) => {
                self.values.set(REGISTERS[usize::from(number)], value);
                self.known |= 1 << number;
            }
            None => self.known &= !(1 << number),
        }
    }
}

/// Why a rule could not be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfollowable {
    /// It needs memory outside of the snapshot.
    Memory(Unreadable),
    /// It needs what is not known, or is not valid.
    Rule,
}

impl Unfollowable {
    pub(crate) fn truncation(self, snapshot: &Snapshot<'_>) -> Truncation {
        match self {
            Self::Memory(Unreadable(address)) => snapshot.outside(address),
            Self::Rule => Truncation::UnwindFailed,
        }
    }
}

/// The registers of the caller, or of the code that a signal interrupted.
pub(crate) fn step(
    row: &Row<'_, '_>,
    registers: &FrameRegisters,
    snapshot: &Snapshot<'_>,
) -> Result<FrameRegisters, Unfollowable> {
    let machine = Machine { row, registers, snapshot };
    let cfa = machine.cfa()?;
    let mut caller = *registers;
    if !row.entry.is_signal_trampoline() {
        caller.known &= FrameRegisters::SURVIVE_CALL;
    }
    for &(register, ref rule) in row.row.registers() {
        if register.0 >= 16 || register == X86_64::RSP {
            continue;
        }
        // A register that cannot be had only matters when a later rule asks for it.
        caller.set(register.0, machine.register(rule, register, cfa).unwrap_or(None));
    }
    let stack_pointer = match row.row.register(X86_64::RSP) {
        // The psABI: the frame's end is the stack pointer before the call.
        None => cfa,
        Some(rule) => machine.register(&rule, X86_64::RSP, cfa)?.ok_or(Unfollowable::Rule)?,
    };
    let return_rule = row.row.register(X86_64::RA).ok_or(Unfollowable::Rule)?;
    let return_address = machine.register(&return_rule, X86_64::RA, cfa)?.ok_or(Unfollowable::Rule)?;
    caller.set(X86_64::RSP.0, Some(stack_pointer));
    caller.values.set_ip(return_address);
    Ok(caller)
}

/// What rules are evaluated over.
struct Machine<'m, 'a, 'c> {
    row: &'m Row<'a, 'c>,
    registers: &'m FrameRegisters,
    snapshot: &'m Snapshot<'m>,
}

impl Machine<'_, '_, '_> {
    /// The canonical frame address: the frame's end.
    fn cfa(&self) -> Result<u64, Unfollowable> {
        match self.row.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let base = self.registers.get(*register).ok_or(Unfollowable::Rule)?;
                base.checked_add_signed(*offset).ok_or(Unfollowable::Rule)
            }
            CfaRule::Expression(expression) => self.expression(expression, None),
        }
    }

    /// The caller's value of a register; `None` when the rule says that it is lost.
    fn register(
        &self,
        rule: &RegisterRule<usize>,
        register: Register,
        cfa: u64,
    ) -> Result<Option<u64>, Unfollowable> {
        let at = |offset: i64| cfa.checked_add_signed(offset).ok_or(Unfollowable::Rule);
        match rule {
            RegisterRule::Undefined => Ok(None),
            RegisterRule::SameValue => Ok(self.registers.get(register)),
            RegisterRule::Offset(offset) => self.read(at(*offset)?).map(Some),
            RegisterRule::ValOffset(offset) => at(*offset).map(Some),
            RegisterRule::Register(other) => Ok(self.registers.get(*other)),
            RegisterRule::Expression(expression) => {
                self.read(self.expression(expression, Some(cfa))?).map(Some)
            }
            RegisterRule::ValExpression(expression) => self.expression(expression, Some(cfa)).map(Some),
            _ => Err(Unfollowable::Rule),
        }
    }

    fn expression(
        &self,
        expression: &UnwindExpression<usize>,
        initial: Option<u64>,
    ) -> Result<u64, Unfollowable> {
        let expression = expression.get(&self.row.section).map_err(|_| Unfollowable::Rule)?;
        self.evaluate(expression, initial)
    }

    fn evaluate(&self, expression: Expression<Bytes<'_>>, initial: Option<u64>) -> Result<u64, Unfollowable> {
        let mut evaluation = expression.evaluation(self.row.entry.cie().encoding());
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut state = evaluation.evaluate();
        loop {
            state = match state.map_err(|_| Unfollowable::Rule)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.registers.get(register).ok_or(Unfollowable::Rule)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                    evaluation.resume_with_memory(Value::Generic(self.read(address)?))
                }
                _ => return Err(Unfollowable::Rule),
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address),
                _ => Err(Unfollowable::Rule),
            },
            _ => Err(Unfollowable::Rule),
        }
    }

    fn read(&self, address: u64) -> Result<u64, Unfollowable> {
        self.snapshot.read(address).map_err(Unfollowable::Memory)
    }
}
