//! From frames to what a person reads. All encoders name frames here, so that they agree.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::profile::Profile;
use crate::stack::{Frame, Truncation};
use crate::symbols::{SymbolizedFrame, Symbols};

/// What the Java frames of a stack are shown as.
pub const JAVA: &str = "[java]";

/// One function of a stack as people read it. Code that has no name has an `offset`, and a `module`
/// unless it lies outside of all modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFrame<'a> {
    /// The function, or a mark in brackets.
    pub function: Option<Cow<'a, str>>,
    /// Path of the module.
    pub module: Option<&'a str>,
    /// The address looked up: as linked within the module, else absolute.
    pub offset: Option<u64>,
    /// Source file.
    pub file: Option<&'a str>,
    /// Line in it.
    pub line: Option<u32>,
    /// Whether the function is inlined into the next one.
    pub inlined: bool,
}

impl<'a> NamedFrame<'a> {
    fn mark(mark: impl Into<Cow<'a, str>>) -> Self {
        Self {
            function: Some(mark.into()),
            module: None,
            offset: None,
            file: None,
            line: None,
            inlined: false,
        }
    }

    fn unnamed(module: Option<&'a str>, offset: u64) -> Self {
        Self { function: None, module, offset: Some(offset), file: None, line: None, inlined: false }
    }

    fn symbolized(frame: &'a SymbolizedFrame, module: &'a str, offset: u64) -> Self {
        Self {
            function: Some(Cow::Borrowed(&frame.function)),
            file: frame.file.as_deref(),
            line: frame.line,
            inlined: frame.inlined,
            ..Self::unnamed(Some(module), offset)
        }
    }
}

/// The function's name, or `libfoo.so+0x1234`, or the address.
impl fmt::Display for NamedFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(function) = &self.function {
            return write_printable(f, function);
        }
        if let Some(module) = self.module {
            write_printable(f, file_name(module))?;
            f.write_str("+")?;
        }
        write!(f, "{:#x}", self.offset.unwrap_or(0))
    }
}

/// Names come from the watched programs and may hold what terminals, XML and folded lines may not.
fn write_printable(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    name.chars().try_for_each(|c| f.write_char(if c.is_control() { '?' } else { c }))
}

/// Names frames of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
}

impl<'a> Names<'a> {
    /// Names frames of `profile` by `symbols`.
    #[must_use]
    pub fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        Self { profile, symbols }
    }

    /// The functions of a stack, innermost first. A frame with inlined functions becomes several.
    pub fn stack(self, stack: &[Frame]) -> impl Iterator<Item = NamedFrame<'a>> {
        stack.iter().flat_map(move |&frame| self.frame(frame))
    }

    /// The functions at one frame, innermost first; never none.
    #[must_use]
    pub fn frame(self, frame: Frame) -> Vec<NamedFrame<'a>> {
        match frame {
            Frame::Code { module, svma, kind } => {
                let path = self.profile.module(module).path.as_str();
                let lookup = kind.lookup(svma);
                let named = frame.symbol_key().map_or(&[][..], |key| self.symbols.get(key));
                match named {
                    [] => vec![NamedFrame::unnamed(Some(path), lookup)],
                    named => named.iter().map(|f| NamedFrame::symbolized(f, path, lookup)).collect(),
                }
            }
            Frame::Java => vec![NamedFrame::mark(JAVA)],
            Frame::Unmapped(address) => vec![NamedFrame::unnamed(None, address)],
            Frame::Truncated(Truncation::JavaCode) => vec![NamedFrame::mark(JAVA)],
            Frame::Truncated(reason) => {
                vec![NamedFrame::mark(format!("[truncated: {}]", truncation_words(reason)))]
            }
        }
    }
}

/// How a stack ends: `complete`, `java`, or `truncated: ` and why.
#[must_use]
pub fn end_words(stack: &[Frame]) -> Cow<'static, str> {
    match stack.last() {
        Some(Frame::Java | Frame::Truncated(Truncation::JavaCode)) => "java".into(),
        Some(&Frame::Truncated(reason)) => format!("truncated: {}", truncation_words(reason)).into(),
        Some(Frame::Code { .. } | Frame::Unmapped(_)) => "complete".into(),
        None => "truncated: no frames".into(),
    }
}

/// Why a stack ends early, in a few words.
#[must_use]
pub fn truncation_words(reason: Truncation) -> &'static str {
    match reason {
        Truncation::SnapshotLimit => "snapshot limit",
        Truncation::StackUnreadable => "stack page unreadable",
        Truncation::OutsideStack => "frame outside the stack",
        Truncation::UnknownCode => "code of no known module",
        Truncation::NoUnwindInfo => "no unwind information",
        Truncation::UnwindFailed => "unwinding failed",
        Truncation::NoProgress => "stack pointer stuck",
        Truncation::HijackedReturn => "return address hijacked by a probe",
        Truncation::TooDeep => "too many frames",
        Truncation::JavaCode => "Java code",
    }
}

/// The last part of a path.
#[must_use]
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::CodeAddressKind::{InstructionPointer, ReturnAddress};
    use crate::encode::sample;
    use crate::process::module::ModuleIndex;

    #[test]
    fn every_frame_has_a_name() {
        let (profile, symbols) = sample::profile();
        let names = Names::new(&profile, &symbols);
        let name = |frame| names.frame(frame).iter().map(ToString::to_string).collect::<Vec<_>>();
        let code = |module, svma, kind| Frame::Code { module: ModuleIndex(module), svma, kind };
        assert_eq!(name(code(0, 0x1234, ReturnAddress)), ["libc.so.6+0x1233"]);
        assert_eq!(name(code(0, 0x1234, InstructionPointer)), ["libc.so.6+0x1234"]);
        assert_eq!(name(code(1, 0x101, ReturnAddress)), ["push", "grow;[u8; 4]"]);
        assert_eq!(name(Frame::Java), ["[java]"]);
        assert_eq!(name(Frame::Unmapped(0xffff)), ["0xffff"]);
        assert_eq!(name(Frame::Truncated(Truncation::SnapshotLimit)), ["[truncated: snapshot limit]"]);
        assert_eq!(end_words(&[Frame::Truncated(Truncation::TooDeep)]), "truncated: too many frames");
        assert_eq!(end_words(&[Frame::Java]), "java");
        assert_eq!(end_words(&[Frame::Unmapped(1)]), "complete");
        assert_eq!(file_name("/usr/lib/libz.so.1"), "libz.so.1");
        assert_eq!(file_name("[vdso]"), "[vdso]");
    }
}
