//! The unwinder of one process: from the registers of a snapshot to its frames, native and Java.
//!
//! ```text
//! pc ─► whose code? ─┬─ nobody's / [uprobes] ─► truncated
//!                    ├─ a module's ─► frame ─► native step ─┬─► thread entry: complete
//!                    │                                      └─► next pc …
//!                    └─ the JVM's ─► frames ─► HotSpot step ──► next pc …
//! ```
//! What the JVM knows about its code is read after the sample was taken. A walk relies on what was read before
//! as well; when it is done, everything is compared with the process once more, and a walk that relied on
//! something that has changed is done again.

use std::sync::Arc;

use framehop::FrameAddress;
use memprof_common::event::StackSnapshot;

use super::code::CodeMapping;
use super::jvm::{JavaContext, JvmImage, ProcessJvm};
use super::native::{Cursor, NativeUnwinder, Place, Step, check_progress, first_registers};
use super::snapshot::Snapshot;
use super::{MAX_FRAMES, StackEnd};
use crate::address::Avma;
use crate::input::Jvm;
use crate::stack::{Frame, StackBuffer, Truncation};

/// Most walks of one stack, when what the first ones relied on had changed.
const MAX_WALKS: usize = 3;

/// Unwinds the stacks of one process.
#[derive(Default)]
pub struct Unwinder {
    native: NativeUnwinder,
    jvm: ProcessJvm,
}

impl Unwinder {
    /// Replaces what is known of the process's code: executable mappings by ascending address.
    pub fn set_code(&mut self, code: Vec<CodeMapping>) {
        self.native.set_code(code);
    }

    /// What is known of the process's code.
    #[must_use]
    pub fn code(&self) -> &[CodeMapping] {
        self.native.code()
    }

    /// Says which JVM the process maps, and what to add to its addresses as linked.
    pub fn set_jvm(&mut self, jvm: Option<(Arc<Jvm>, u64)>) {
        self.jvm.set_image(jvm.map(|(jvm, bias)| JvmImage { jvm, bias }));
    }

    /// Why the JVM's frames cannot be told, once after that has been found out.
    pub fn take_news(&mut self) -> Option<String> {
        self.jvm.take_news()
    }

    /// Unwinds a stack into `out` (emptied first), innermost frame first. The first frame is `function`, which
    /// has returned to where the snapshot was taken, or else the code that runs there. How the stack ends is
    /// returned; an end before the thread's entry is also the last frame.
    pub fn unwind(
        &mut self,
        function: Option<Avma>,
        snapshot: &StackSnapshot,
        stack: &[u8],
        context: &mut JavaContext<'_>,
        out: &mut StackBuffer,
    ) -> StackEnd {
        let mut walk =
            Walk { function, first: snapshot, snapshot: Snapshot::new(snapshot, stack), tells_java: true };
        for _ in 0..MAX_WALKS {
            let end = self.walk(&walk, context, out);
            if self.jvm.hotspot().is_none_or(|hotspot| hotspot.verify(context)) {
                return end;
            }
        }
        walk.tells_java = false;
        self.walk(&walk, context, out)
    }

    fn walk(&mut self, walk: &Walk<'_>, context: &mut JavaContext<'_>, out: &mut StackBuffer) -> StackEnd {
        out.clear();
        if let Some(hotspot) = self.jvm.hotspot() {
            hotspot.begin();
        }
        let end = self.frames(walk, context, out);
        match end {
            StackEnd::Complete => {}
            StackEnd::Java => out.push(Frame::Java),
            StackEnd::Truncated(reason) => out.push(Frame::Truncated(reason)),
        }
        end
    }

    fn frames(&mut self, walk: &Walk<'_>, context: &mut JavaContext<'_>, out: &mut StackBuffer) -> StackEnd {
        let ip = walk.first.registers.ip;
        let start = match walk.function {
            Some(function) => {
                out.push(self.function_frame(function));
                FrameAddress::from_return_address(ip)
            }
            None => Some(FrameAddress::from_instruction_pointer(ip)),
        };
        let Some(address) = start else { return StackEnd::Truncated(Truncation::UnwindFailed) };
        let mut cursor = Cursor { address, registers: first_registers(&walk.first.registers) };
        loop {
            cursor = match self.step(cursor, walk, context, out) {
                Ok(Step::Caller(caller)) => caller,
                Ok(Step::Entry) => return StackEnd::Complete,
                Err(end) => return end,
            };
        }
    }

    fn step(
        &mut self,
        cursor: Cursor,
        walk: &Walk<'_>,
        context: &mut JavaContext<'_>,
        out: &mut StackBuffer,
    ) -> Result<Step, StackEnd> {
        if out.frames().len() >= MAX_FRAMES {
            return Err(StackEnd::Truncated(Truncation::TooDeep));
        }
        if self.jvm.hotspot().is_some_and(|hotspot| hotspot.holds(cursor.address.address())) {
            return self.java_step(&cursor, walk, context, out).map_err(StackEnd::Truncated);
        }
        match self.native.place(cursor.address.address_for_lookup()) {
            Place::Module(place) => {
                out.push(place.frame(cursor.address));
                self.native.step(cursor, place, &walk.snapshot).map_err(StackEnd::Truncated)
            }
            Place::Uprobes => Err(StackEnd::Truncated(Truncation::HijackedReturn)),
            Place::Java if self.jvm.hotspot().is_none() => {
                self.jvm.open(context);
                // Now it may be known whose code this is.
                if self.jvm.hotspot().is_some() { Ok(Step::Caller(cursor)) } else { Err(StackEnd::Java) }
            }
            Place::Java | Place::Unknown => {
                out.push(Frame::Unmapped(cursor.address.address()));
                Err(StackEnd::Truncated(Truncation::UnknownCode))
            }
        }
    }

    fn java_step(
        &mut self,
        cursor: &Cursor,
        walk: &Walk<'_>,
        context: &mut JavaContext<'_>,
        out: &mut StackBuffer,
    ) -> Result<Step, Truncation> {
        let Self { native, jvm } = self;
        let Some(hotspot) = jvm.hotspot().filter(|_| walk.tells_java) else {
            return Err(Truncation::StaleJavaCode);
        };
        let mut is_module = |address: Avma| matches!(native.place(address.wrapping_sub(1)), Place::Module(_));
        let (pc, snapshot) = (cursor.address.address(), &walk.snapshot);
        let registers = hotspot.step(pc, &cursor.registers, snapshot, &mut is_module, context, out)?;
        check_progress(cursor.registers.values.sp(), registers.values.sp(), snapshot)?;
        let address =
            FrameAddress::from_return_address(registers.values.ip()).ok_or(Truncation::UnwindFailed)?;
        Ok(Step::Caller(Cursor { address, registers }))
    }

    /// The allocator function: it has returned, so it is no part of the stack any more.
    fn function_frame(&mut self, function: Avma) -> Frame {
        match self.native.place(function) {
            Place::Module(place) => place.frame(FrameAddress::from_instruction_pointer(function)),
            Place::Java | Place::Uprobes | Place::Unknown => Frame::Unmapped(function),
        }
    }
}

/// What one stack is walked by.
struct Walk<'a> {
    function: Option<Avma>,
    first: &'a StackSnapshot,
    snapshot: Snapshot<'a>,
    /// Whether Java frames are told; else the stack ends at the first one.
    tells_java: bool,
}
