//! Code addresses. An address in the live process (avma) and one as linked (svma) never mix, and an
//! instruction pointer is told from a return address, which is looked up minus one.

use serde::{Deserialize, Serialize};

/// A virtual address in the live process.
pub type Avma = u64;
/// A virtual address as linked in the module's file.
pub type Svma = u64;

/// How a code address came about, which decides where it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CodeAddressKind {
    /// The address of an instruction about to run.
    InstructionPointer,
    /// The address after a call. The call itself, and so the caller's line, is one byte earlier.
    ReturnAddress,
}

impl CodeAddressKind {
    /// The address at which names and unwind rules for `address` are looked up.
    #[must_use]
    pub fn lookup(self, address: u64) -> u64 {
        match self {
            Self::InstructionPointer => address,
            Self::ReturnAddress => address.saturating_sub(1),
        }
    }
}
