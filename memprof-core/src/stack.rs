//! Stacks: normalized frames, and the table in which each distinct stack is kept once.

use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::address::{Avma, CodeAddressKind, Svma};
use crate::process::module::ModuleIndex;
use crate::symbols::SymbolKey;

/// Why a stack ends before the thread's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Truncation {
    /// The next frame lies beyond the snapshot's size limit.
    SnapshotLimit,
    /// The next frame lies in a page of the stack that could not be read.
    StackUnreadable,
    /// The next frame lies outside of the snapshot although the snapshot reached the stack's end.
    OutsideStack,
    /// A return address points into no known module.
    UnknownCode,
    /// A frame's module has no unwind information for it.
    NoUnwindInfo,
    /// The unwind information of a frame could not be followed.
    UnwindFailed,
    /// The stack pointer did not move towards the thread's entry.
    NoProgress,
    /// A return address was replaced by a uretprobe and its original is not known.
    HijackedReturn,
    /// More frames than a stack may have.
    TooDeep,
    /// The JVM's compiled or interpreted code: native unwinding ends here.
    JavaCode,
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frame {
    /// Code of a module.
    Code {
        /// The module.
        module: ModuleIndex,
        /// The address as linked.
        svma: Svma,
        /// What kind of address that is.
        kind: CodeAddressKind,
    },
    /// Code in the JVM's code cache: a single mark for all Java frames that follow.
    Java,
    /// The address of code outside of every module.
    Unmapped(Avma),
    /// The stack ends early, for this reason. Always the last frame.
    Truncated(Truncation),
}

impl Frame {
    /// What to ask a symbolizer for, if the frame can have a name.
    #[must_use]
    pub fn symbol_key(self) -> Option<SymbolKey> {
        match self {
            Self::Code { module, svma, kind } => Some(SymbolKey { module, lookup: kind.lookup(svma) }),
            Self::Java | Self::Unmapped(_) | Self::Truncated(_) => None,
        }
    }
}

/// A stack, innermost frame first: the allocator function, its caller, … the thread's entry or a
/// [`Frame::Truncated`].
pub type Stack = Arc<[Frame]>;

/// Identity of an interned stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// Every distinct stack once, by content (equality, never the hash alone).
#[derive(Debug, Default)]
pub struct StackTable {
    stacks: IndexSet<Stack, FxBuildHasher>,
}

impl StackTable {
    /// The identity of the stack with these frames. Allocates only when the stack is new.
    ///
    /// # Panics
    /// With more than 2³² distinct stacks, for which no machine has the memory.
    pub fn intern(&mut self, frames: &[Frame]) -> StackId {
        let index = match self.stacks.get_index_of(frames) {
            Some(index) => index,
            None => self.stacks.insert_full(Stack::from(frames)).0,
        };
        StackId(u32::try_from(index).expect("fewer than 2^32 stacks"))
    }

    /// The stack with this identity, which must come from this table.
    #[must_use]
    pub fn get(&self, id: StackId) -> &Stack {
        &self.stacks[id.0 as usize]
    }

    /// Number of distinct stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether no stack has been interned yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(svma: Svma) -> Frame {
        Frame::Code { module: ModuleIndex(0), svma, kind: CodeAddressKind::ReturnAddress }
    }

    #[test]
    fn equal_stacks_share_an_identity_and_others_do_not() {
        let mut table = StackTable::default();
        let long = [code(1), code(2), Frame::Truncated(Truncation::SnapshotLimit)];
        let a = table.intern(&long);
        let b = table.intern(&long[..2]);
        let empty = table.intern(&[]);
        assert_eq!([a, b, empty], [StackId(0), StackId(1), StackId(2)]);
        assert_eq!(table.intern(&long.clone()), a);
        assert_eq!(table.len(), 3);
        assert_eq!(**table.get(a), long);
        assert_eq!(**table.get(b), long[..2]);
        assert!(table.get(empty).is_empty());
    }
}
