//! Stacks: normalized frames, and the table in which each distinct stack is kept once.

use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::address::{Avma, CodeAddressKind, Svma};
use crate::java::{FrameKinds, JavaMethodId};
use crate::process::module::ModuleIndex;
use crate::symbols::SymbolKey;
use crate::threads::ThreadNameId;

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
    /// There was no room for another stack: stands for the stacks of many blocks.
    StackLost,
    /// The JVM's code changed between the sample and its unwinding, or was not to be trusted.
    StaleJavaCode,
    /// A return address points into the JVM's code cache, but to no code that is known to unwind there.
    UnknownJavaCode,
    /// What the JVM knows about a frame could not be read.
    JavaUnreadable,
    /// The sample was looked at so late that the JVM's code may have changed.
    TooLate,
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
    /// Code in the JVM's code cache: a single mark for all frames that follow, of a JVM whose frames cannot be
    /// told.
    Java,
    /// The address of code outside of every module.
    Unmapped(Avma),
    /// The stack ends early, for this reason. Only a [`Frame::Thread`] follows.
    Truncated(Truncation),
    /// A Java method (or code of the JVM's own).
    JavaMethod {
        /// Which one.
        method: JavaMethodId,
        /// Line in its source file; 0 when it is not known.
        line: u16,
    },
    /// Frames of a virtual thread that has waited: the JVM keeps them in its heap until it returns to them.
    FrozenFrames,
    /// The name of the thread, where stacks are told apart by it. Always the last frame, even behind a
    /// [`Frame::Truncated`].
    Thread(ThreadNameId),
}

impl Frame {
    /// What to ask a symbolizer for, if the frame can have a name.
    #[must_use]
    pub fn symbol_key(self) -> Option<SymbolKey> {
        match self {
            Self::Code { module, svma, kind } => Some(SymbolKey { module, lookup: kind.lookup(svma) }),
            Self::Java
            | Self::Unmapped(_)
            | Self::Truncated(_)
            | Self::JavaMethod { .. }
            | Self::FrozenFrames
            | Self::Thread(_) => None,
        }
    }
}

/// A stack being unwound: its frames, innermost first, and how each was run.
#[derive(Clone, Debug, Default)]
pub struct StackBuffer {
    frames: Vec<Frame>,
    kinds: Vec<FrameKinds>,
}

impl StackBuffer {
    /// Adds a frame that is not Java's.
    pub fn push(&mut self, frame: Frame) {
        self.push_java(frame, FrameKinds::default());
    }

    /// Adds a Java frame.
    pub fn push_java(&mut self, frame: Frame, kinds: FrameKinds) {
        self.frames.push(frame);
        self.kinds.push(kinds);
    }

    /// Takes all frames out.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Takes all frames but the first ones out.
    pub fn truncate(&mut self, len: usize) {
        self.frames.truncate(len);
        self.kinds.truncate(len);
    }

    /// The frames.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// How each frame was run.
    #[must_use]
    pub fn kinds(&self) -> &[FrameKinds] {
        &self.kinds
    }
}

/// The last frame of a stack that is not its thread's name.
#[must_use]
pub fn end_of(stack: &[Frame]) -> Option<Frame> {
    stack.iter().rev().find(|frame| !matches!(frame, Frame::Thread(_))).copied()
}

/// The name of a stack's thread, where stacks are told apart by it.
#[must_use]
pub fn thread_of(stack: &[Frame]) -> Option<ThreadNameId> {
    match stack.last() {
        Some(&Frame::Thread(name)) => Some(name),
        _ => None,
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
    stacks: IndexMap<Stack, Box<[FrameKinds]>, FxBuildHasher>,
}

impl StackTable {
    /// The identity of the stack with these frames. Allocates only when the stack is new. How Java frames were
    /// run does not make another stack of it: the kinds add up.
    ///
    /// # Panics
    /// With more than 2³² distinct stacks, for which no machine has the memory.
    pub fn intern(&mut self, frames: &[Frame], kinds: &[FrameKinds]) -> StackId {
        let index = match self.stacks.get_full_mut(frames) {
            Some((index, _, known)) => {
                for (known, kinds) in known.iter_mut().zip(kinds) {
                    *known = known.union(*kinds);
                }
                index
            }
            None => {
                let is_java = kinds.iter().any(|kinds| !kinds.is_empty());
                let kinds = if is_java { kinds.into() } else { Box::default() };
                self.stacks.insert_full(Stack::from(frames), kinds).0
            }
        };
        StackId(u32::try_from(index).expect("fewer than 2^32 stacks"))
    }

    /// The identity of the stack with these frames, when it has one.
    #[must_use]
    pub fn find(&self, frames: &[Frame]) -> Option<StackId> {
        let index = self.stacks.get_index_of(frames)?;
        Some(StackId(u32::try_from(index).expect("fewer than 2^32 stacks")))
    }

    /// The stack with this identity, which must come from this table.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn get(&self, id: StackId) -> &Stack {
        self.stacks.get_index(id.0 as usize).expect("an identity of this table").0
    }

    /// How each frame of the stack with this identity was run; empty when no frame is Java's.
    #[must_use]
    pub fn kinds(&self, id: StackId) -> &[FrameKinds] {
        self.stacks.get_index(id.0 as usize).map_or(&[], |(_, kinds)| kinds)
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
        let native = [FrameKinds::default(); 3];
        let a = table.intern(&long, &native);
        let b = table.intern(&long[..2], &native[..2]);
        let empty = table.intern(&[], &[]);
        assert_eq!([a, b, empty], [StackId(0), StackId(1), StackId(2)]);
        assert_eq!(table.intern(&long.clone(), &native), a);
        assert_eq!(table.len(), 3);
        assert_eq!(**table.get(a), long);
        assert_eq!(**table.get(b), long[..2]);
        assert!(table.get(empty).is_empty());
        assert_eq!(table.kinds(a), []);
    }

    #[test]
    fn how_a_method_is_run_does_not_make_another_stack() {
        let mut table = StackTable::default();
        let stack = [code(1), Frame::JavaMethod { method: JavaMethodId(0), line: 7 }];
        let run = |kinds| [FrameKinds::default(), kinds];
        let first = table.intern(&stack, &run(FrameKinds::INTERPRETED));
        assert_eq!(table.intern(&stack, &run(FrameKinds::C2)), first);
        assert_eq!(table.kinds(first), run(FrameKinds::INTERPRETED.union(FrameKinds::C2)));
    }
}
