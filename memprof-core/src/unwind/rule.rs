//! The unwind rule at an address, reduced to what decides how to step over its frame.

use framehop::x86_64::Reg;
use gimli::{
    CfaRule, EhFrame, FrameDescriptionEntry, Register, RegisterRule, UnwindContext, UnwindTableRow, X86_64,
};

use crate::address::Svma;
use crate::process::cfi::{Bytes, Cfi};

/// General registers by DWARF number.
pub(crate) const REGISTERS: [Reg; 16] = [
    Reg::RAX,
    Reg::RDX,
    Reg::RCX,
    Reg::RBX,
    Reg::RSI,
    Reg::RDI,
    Reg::RBP,
    Reg::RSP,
    Reg::R8,
    Reg::R9,
    Reg::R10,
    Reg::R11,
    Reg::R12,
    Reg::R13,
    Reg::R14,
    Reg::R15,
];

/// DWARF numbers of the registers that a function gives back as it found them, except rbp and rsp.
pub(crate) const SAVED_REGISTERS: [u16; 5] = [3, 12, 13, 14, 15];

/// How to step over a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The thread starts here: the return address is undefined, and says so.
    Entry,
    /// The return address is right below the frame's end, and the end is a constant away from rsp or
    /// rbp. framehop follows exactly these, for rsp, rbp and the return address.
    Ordinary {
        /// Whether the frame's end is counted from rbp.
        from_rbp: bool,
        /// Where each of [`SAVED_REGISTERS`] is saved, in words below the frame's end; 0 = it keeps
        /// its value.
        saved: [u16; 5],
    },
    /// Anything else. Evaluated in full at every step.
    General,
    /// No entry covers the address, or what covers it cannot be read.
    Missing,
}

/// A rule in full: its row of the unwind table, and the entry that it belongs to.
pub(crate) struct Row<'a, 'c> {
    pub(crate) section: EhFrame<Bytes<'a>>,
    pub(crate) entry: FrameDescriptionEntry<Bytes<'a>>,
    pub(crate) row: &'c UnwindTableRow<usize>,
}

impl<'a, 'c> Row<'a, 'c> {
    /// The row that holds for the instruction at `svma`.
    pub(crate) fn find(cfi: &'a Cfi, svma: Svma, context: &'c mut UnwindContext<usize>) -> Option<Self> {
        let entry = cfi.entry(svma)?;
        let section = cfi.section();
        let row = entry.unwind_info_for_address(&section, cfi.bases(), context, svma).ok()?;
        Some(Self { section, entry, row })
    }

    /// What kind of rule it is. `framehop` says whether framehop knows the module; if it does not,
    /// ordinary rules are evaluated in full too.
    pub(crate) fn rule(&self, framehop: bool) -> Rule {
        match self.row.register(X86_64::RA) {
            Some(RegisterRule::Undefined) => Rule::Entry,
            Some(RegisterRule::Offset(-8)) if framehop && !self.entry.is_signal_trampoline() => {
                self.ordinary().unwrap_or(Rule::General)
            }
            _ => Rule::General,
        }
    }

    /// Only what framehop translates into a rule of its own: it answers everything else with a walk
    /// along rbp, without saying so.
    fn ordinary(&self) -> Option<Rule> {
        let CfaRule::RegisterAndOffset { register, offset } = *self.row.cfa() else { return None };
        let rbp_at = match self.row.register(X86_64::RBP) {
            None | Some(RegisterRule::SameValue) => None,
            Some(RegisterRule::Offset(offset)) => Some(offset),
            Some(_) => return None,
        };
        let from_rbp = match register {
            X86_64::RSP => {
                u16::try_from(words(offset)?).ok().filter(|words| *words > 0)?;
                if let Some(rbp_at) = rbp_at {
                    i16::try_from(words(offset.checked_add(rbp_at)?)?).ok()?;
                }
                false
            }
            X86_64::RBP if offset == 16 && rbp_at == Some(-16) => true,
            _ => return None,
        };
        if !matches!(self.row.register(X86_64::RSP), None | Some(RegisterRule::SameValue)) {
            return None;
        }
        let mut saved = [0; 5];
        for (saved, number) in saved.iter_mut().zip(SAVED_REGISTERS) {
            *saved = match self.row.register(Register(number)) {
                None | Some(RegisterRule::SameValue) => 0,
                Some(RegisterRule::Offset(offset)) => {
                    u16::try_from(words(offset.checked_neg()?)?).ok().filter(|words| *words > 0)?
                }
                Some(_) => return None,
            };
        }
        Some(Rule::Ordinary { from_rbp, saved })
    }
}

/// Bytes in words of eight, if they are whole ones.
fn words(bytes: i64) -> Option<i64> {
    (bytes % 8 == 0).then_some(bytes / 8)
}
