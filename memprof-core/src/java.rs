//! Java methods: what they are called, and how a frame of theirs was run.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Most distinct methods that a session names. Large servers run some hundred thousand.
const MAX_METHODS: usize = 1 << 20;

/// Identity of a method within a session: its position in [`JavaMethods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JavaMethodId(pub u32);

/// A Java method, or a piece of code that the JVM has made for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JavaMethod {
    /// Its class as people write it (`java.util.zip.Deflater`); what names each copy of a generated class is
    /// masked. Empty for the JVM's own code.
    pub class: String,
    /// Its name, or that of the JVM's own code (`call_stub`).
    pub name: String,
    /// Types of its parameters and result as in class files: `(I[BLjava/lang/String;)V`. Empty for the JVM's
    /// own code.
    pub signature: String,
    /// Source file, if the class says so.
    pub file: Option<String>,
}

/// Every method of a session once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JavaMethods {
    methods: IndexSet<JavaMethod, FxBuildHasher>,
}

impl JavaMethods {
    /// The identity of a method; `None` when there is no room for another one.
    pub fn intern(&mut self, method: JavaMethod) -> Option<JavaMethodId> {
        let index = match self.methods.get_index_of(&method) {
            Some(index) => index,
            None if self.methods.len() >= MAX_METHODS => return None,
            None => self.methods.insert_full(method).0,
        };
        u32::try_from(index).ok().map(JavaMethodId)
    }

    /// The method with this identity.
    #[must_use]
    pub fn get(&self, id: JavaMethodId) -> Option<&JavaMethod> {
        self.methods.get_index(id.0 as usize)
    }

    /// Number of distinct methods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.methods.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.methods.is_empty()
    }
}

/// How a Java frame was run. A site's frame can have been run in several ways: the JVM compiles a method again
/// and again, and the allocation stays the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKinds(u8);

impl FrameKinds {
    /// By the interpreter.
    pub const INTERPRETED: Self = Self(1);
    /// As code of the compiler C1.
    pub const C1: Self = Self(1 << 1);
    /// As code of the compiler C2 (or another one in its place).
    pub const C2: Self = Self(1 << 2);
    /// As a part of its caller's compiled code; comes with the compiler's kind.
    pub const INLINED: Self = Self(1 << 3);
    /// As the compiled passage to a native method.
    pub const NATIVE_WRAPPER: Self = Self(1 << 4);
    /// The JVM's own code, no method.
    pub const STUB: Self = Self(1 << 5);

    const NAMES: [(Self, &'static str); 6] = [
        (Self::INTERPRETED, "interpreted"),
        (Self::C1, "C1"),
        (Self::C2, "C2"),
        (Self::INLINED, "inlined"),
        (Self::NATIVE_WRAPPER, "native wrapper"),
        (Self::STUB, "stub"),
    ];

    /// These kinds and those.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `kinds` are among these.
    #[must_use]
    pub const fn contains(self, kinds: Self) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    /// Whether these are none: the frame is not Java's.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(kind, _)| self.contains(*kind)).map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_one_identity() {
        let method = |name: &str, signature: &str| JavaMethod {
            class: "a.B".into(),
            name: name.into(),
            signature: signature.into(),
            file: Some("B.java".into()),
        };
        let mut methods = JavaMethods::default();
        let run = methods.intern(method("run", "()V"));
        let overload = methods.intern(method("run", "(I)V"));
        assert_eq!((run, overload), (Some(JavaMethodId(0)), Some(JavaMethodId(1))));
        assert_eq!(methods.intern(method("run", "()V")), run);
        assert_eq!(methods.get(JavaMethodId(1)), Some(&method("run", "(I)V")));
        assert_eq!((methods.len(), methods.get(JavaMethodId(2))), (2, None));
    }

    #[test]
    fn kinds_add_up() {
        let kinds = FrameKinds::C2.union(FrameKinds::INLINED).union(FrameKinds::INTERPRETED);
        assert_eq!(kinds.names().collect::<Vec<_>>(), ["interpreted", "C2", "inlined"]);
        assert!(kinds.contains(FrameKinds::C2) && !kinds.contains(FrameKinds::C1));
        assert!(FrameKinds::default().is_empty() && FrameKinds::default().names().next().is_none());
    }
}
