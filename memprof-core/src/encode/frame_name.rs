//! From frames to what a person reads. All encoders name frames here, so that they agree.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::java::{FrameKinds, JavaMethodId};
use crate::profile::{Profile, Site};
use crate::stack::{Frame, Truncation, end_of};
use crate::symbols::{SymbolizedFrame, Symbols};

/// What the frames of a JVM are shown as that cannot be told.
pub const JAVA: &str = "[java]";

/// Frames of a virtual thread that are not on its stack.
const FROZEN_FRAMES: &str = "[frozen frames of the virtual thread]";

/// What stands for the stacks that there was no room for.
const STACK_LOST: &str = "[stack lost]";

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
    /// Whether the function is inlined into the next one. Java's are told by `kinds`.
    pub inlined: bool,
    /// How the JVM ran it; empty when it is not Java's.
    pub kinds: FrameKinds,
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
            kinds: FrameKinds::default(),
        }
    }

    fn unnamed(module: Option<&'a str>, offset: u64) -> Self {
        Self { function: None, module, offset: Some(offset), ..Self::mark("") }
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

    /// The functions of a site's stack, innermost first. A frame with inlined functions becomes several.
    pub fn site(self, site: &'a Site) -> impl Iterator<Item = NamedFrame<'a>> {
        self.frames_of(site).flat_map(|(_, named)| named)
    }

    /// The frames of a site's stack, innermost first, each with its functions.
    pub fn frames_of(self, site: &'a Site) -> impl Iterator<Item = (Frame, Vec<NamedFrame<'a>>)> {
        site.stack.iter().enumerate().map(move |(i, &frame)| {
            let kinds = site.kinds.get(i).copied().unwrap_or_default();
            let mut named = self.frame(frame);
            for name in &mut named {
                name.kinds = kinds;
            }
            (frame, named)
        })
    }

    /// The functions at one frame, innermost first; never none. How they were run is not said.
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
            Frame::JavaMethod { method, line } => vec![self.java(method, line)],
            Frame::Thread(name) => vec![NamedFrame::mark(self.profile.threads.get(name).unwrap_or("?"))],
            Frame::FrozenFrames => vec![NamedFrame::mark(FROZEN_FRAMES)],
            Frame::Truncated(Truncation::JavaCode) => vec![NamedFrame::mark(JAVA)],
            Frame::Truncated(Truncation::StackLost) => vec![NamedFrame::mark(STACK_LOST)],
            Frame::Truncated(reason) => {
                vec![NamedFrame::mark(format!("[truncated: {}]", truncation_words(reason)))]
            }
        }
    }

    fn java(self, method: JavaMethodId, line: u16) -> NamedFrame<'a> {
        let Some(method) = self.profile.methods.get(method) else { return NamedFrame::mark(JAVA) };
        let name = match method.class.as_str() {
            "" => Cow::Borrowed(method.name.as_str()),
            class => Cow::Owned(format!("{class}.{}", method.name)),
        };
        let line = (line != 0).then_some(u32::from(line));
        NamedFrame { file: method.file.as_deref(), line, ..NamedFrame::mark(name) }
    }
}

/// How a stack ends: `complete`, `java`, or `truncated: ` and why.
#[must_use]
pub fn end_words(stack: &[Frame]) -> Cow<'static, str> {
    match end_of(stack) {
        Some(Frame::Java | Frame::Truncated(Truncation::JavaCode)) => "java".into(),
        Some(Frame::Truncated(reason)) => format!("truncated: {}", truncation_words(reason)).into(),
        Some(_) => "complete".into(),
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
        Truncation::StackLost => "stack lost, no room for it",
        Truncation::StaleJavaCode => "Java code has changed meanwhile",
        Truncation::UnknownJavaCode => "unknown code of the JVM",
        Truncation::JavaUnreadable => "memory of the JVM unreadable",
        Truncation::TooLate => "looked at too late to tell Java code",
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
