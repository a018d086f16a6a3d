//! One step: which rule holds for the code at hand, what it stands for, and whether the return address that it
//! leads to can be one.

use super::HotSpot;
use super::blob::{Blob, BlobKind, Nmethod};
use super::blobs::{Found, Frames};
use super::leaf_call::{LOOKED_AT, ends_with_call, pushed};
use super::scopes::{self, Scope, ScopeData};
pub(super) use super::steps::At;
use super::steps::caller;
use crate::address::Avma;
use crate::java::{FrameKinds, JavaMethod};
use crate::stack::{Frame, StackBuffer, Truncation};
use crate::unwind::general::FrameRegisters;
use crate::unwind::{JavaContext, MAX_FRAMES};

/// Bytes of a call's instruction.
const CALL: usize = 5;

/// Words in which the return address of a virtual thread's first frame is looked for, beyond the parameters.
const MAX_PARAMETERS: u64 = 16;

/// The class whose method runs a virtual thread's code.
const CONTINUATION: &str = "jdk.internal.vm.Continuation";

/// What a frame has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    /// Code of a module.
    Native,
    /// Java.
    Java,
    /// A stub with a frame of its own size: it is called as Java is.
    Stub,
    /// A stub that saves all registers: it may be called at any place, of which nothing is known.
    SlowPath,
    /// What replaces compiled frames by interpreted ones.
    Deoptimization,
    /// A virtual thread's frames that are not on the stack.
    Frozen,
}

impl HotSpot {
    pub(super) fn step_over(
        &mut self,
        at: &At<'_>,
        is_module: &mut dyn FnMut(Avma) -> bool,
        context: &mut JavaContext<'_>,
        stack: &mut StackBuffer,
    ) -> Result<FrameRegisters, Truncation> {
        let is_native = matches!(stack.frames().last(), None | Some(Frame::Code { .. }));
        let inner = if is_native { Inner::Native } else { self.last };
        if at.pc == self.call_stub_return {
            let registers = at.call_stub()?;
            stack.push_java(stub("call_stub", context)?, FrameKinds::STUB);
            self.last = Inner::Stub;
            return Ok(registers);
        }
        let found = self.blobs.find(at.pc, &self.cache, &self.layout, context)?;
        let first = stack.frames().len();
        let registers = match &found.blob.kind {
            BlobKind::Interpreter => self.interpreted(at, inner, context, stack),
            BlobKind::Method(method) => self.method(at, inner, (&found, method), context, stack),
            BlobKind::Stub(name) if name.contains("continuation") => {
                return self.frozen(at, inner, is_module, context, stack);
            }
            BlobKind::Stub(name) => self.stub(at, (&found.blob, name), is_module, context, stack),
        }?;
        if inner == Inner::Frozen && !tells_continuation(&stack.frames()[first..], context) {
            stack.truncate(first);
            return Err(Truncation::StaleJavaCode);
        }
        Ok(registers)
    }

    fn interpreted(
        &mut self,
        at: &At<'_>,
        inner: Inner,
        context: &mut JavaContext<'_>,
        stack: &mut StackBuffer,
    ) -> Result<FrameRegisters, Truncation> {
        if inner == Inner::Deoptimization {
            // Its frames are being built: their methods may not have been written yet.
            return Err(Truncation::StaleJavaCode);
        }
        let interpreted = at.interpreted(self.layout.version)?;
        if !self.cache.holds(interpreted.caller.values.ip()) {
            return Err(Truncation::UnwindFailed);
        }
        let (method, bytecode) = (interpreted.method, interpreted.bytecode);
        let frame = self.methods.interpreted(method, bytecode, &self.layout, context)?;
        stack.push_java(frame, FrameKinds::INTERPRETED);
        self.last = Inner::Java;
        Ok(interpreted.caller)
    }

    fn method(
        &mut self,
        at: &At<'_>,
        inner: Inner,
        (found, method): (&Found, &Nmethod),
        context: &mut JavaContext<'_>,
        stack: &mut StackBuffer,
    ) -> Result<FrameRegisters, Truncation> {
        let blob = &*found.blob;
        let mut pc = at.pc;
        if method.deopt_handlers.contains(&pc) {
            pc = at.load(at.sp().checked_add(method.orig_pc_offset).ok_or(Truncation::UnwindFailed)?)?;
            if !blob.range.contains(&pc) {
                return Err(Truncation::StaleJavaCode);
            }
        }
        let scope = if method.is_wrapper() { Some(0) } else { method.scope(pc) };
        let registers = if scope.is_none() {
            self.leaf_caller(at, (found, method), inner, context)?
        } else {
            let registers = at.by_size(blob.frame_size, 0)?;
            if !self.cache.holds(registers.values.ip()) {
                return Err(Truncation::StaleJavaCode);
            }
            registers
        };
        let frames = match self.blobs.frames(blob, pc) {
            Some(frames) => frames,
            None => {
                let frames = self.tell(method, scope.unwrap_or(0), context)?;
                self.blobs.tell(blob, pc, Frames::clone(&frames));
                frames
            }
        };
        for (frame, kinds) in frames.iter() {
            if stack.frames().len() >= MAX_FRAMES {
                return Err(Truncation::TooDeep);
            }
            stack.push_java(*frame, *kinds);
        }
        self.last = Inner::Java;
        Ok(registers)
    }

    /// The frames of a compiled method at a scope.
    fn tell(
        &mut self,
        method: &Nmethod,
        scope: u32,
        context: &mut JavaContext<'_>,
    ) -> Result<Frames, Truncation> {
        let (scopes, metadata) = (&method.scopes, &method.metadata);
        let data = ScopeData { scopes, metadata, bias: self.layout.unsigned5_bias() };
        let scopes = match scope {
            0 => vec![Scope { method: method.method, bci: None }],
            place => scopes::read(place, data, &mut context.memory).ok_or(Truncation::StaleJavaCode)?,
        };
        let mut frames = Vec::with_capacity(scopes.len());
        for (i, scope) in scopes.iter().enumerate() {
            let is_outermost = i + 1 == scopes.len();
            let kind = if is_outermost { method.kind } else { method.kind.union(FrameKinds::INLINED) };
            frames.push((self.methods.frame(scope.method, scope.bci, &self.layout, context)?, kind));
        }
        Ok(frames.into())
    }

    /// The caller of compiled code that has called something of which it keeps no record.
    fn leaf_caller(
        &mut self,
        at: &At<'_>,
        (found, method): (&Found, &Nmethod),
        inner: Inner,
        context: &mut JavaContext<'_>,
    ) -> Result<FrameRegisters, Truncation> {
        let blob = &*found.blob;
        let call = at.pc.wrapping_sub(CALL as u64);
        let whole = usize::try_from(blob.range.end - at.pc).unwrap_or(usize::MAX).min(LOOKED_AT);
        let code = context.memory.bytes(call, CALL + whole).ok_or(Truncation::JavaUnreadable)?;
        let (call, rest) = code.split_at(CALL);
        // A method that was not known before the stack was copied may have taken another one's place.
        match inner {
            Inner::SlowPath => {}
            Inner::Native if found.is_old || ends_with_call(call) => {}
            _ => return Err(Truncation::StaleJavaCode),
        }
        let pushed = match method.kind {
            // C1 reserves room in the frame instead.
            FrameKinds::C1 => 0,
            _ => pushed(at.pc, rest).ok_or(Truncation::UnwindFailed)?,
        };
        // What is moved at the method's very end is the frame itself.
        let pushed = if pushed + 8 == blob.frame_size { 0 } else { pushed };
        let registers = at.by_size(blob.frame_size, pushed)?;
        if !self.is_return_address(registers.values.ip(), context) {
            return Err(Truncation::UnwindFailed);
        }
        Ok(registers)
    }

    /// Whether code of the cache returns there, by all that is known.
    fn is_return_address(&mut self, pc: Avma, context: &mut JavaContext<'_>) -> bool {
        if pc == self.call_stub_return {
            return true;
        }
        if !self.cache.holds(pc) {
            return false;
        }
        let Ok(found) = self.blobs.find(pc, &self.cache, &self.layout, context) else { return false };
        match &found.blob.kind {
            BlobKind::Interpreter => true,
            BlobKind::Method(method) => method.is_return_address(pc),
            BlobKind::Stub(name) => name.contains("continuation"),
        }
    }

    fn stub(
        &mut self,
        at: &At<'_>,
        (blob, name): (&Blob, &str),
        is_module: &mut dyn FnMut(Avma) -> bool,
        context: &mut JavaContext<'_>,
        stack: &mut StackBuffer,
    ) -> Result<FrameRegisters, Truncation> {
        let (registers, last) = if blob.frame_size > 0 {
            let is_deoptimization = matches!(name, "DeoptimizationBlob" | "UncommonTrapBlob");
            let last = if is_deoptimization { Inner::Deoptimization } else { Inner::Stub };
            let registers = at.by_size(blob.frame_size, 0)?;
            if !self.cache.holds(registers.values.ip()) {
                return Err(Truncation::UnwindFailed);
            }
            (registers, last)
        } else {
            let registers = at.by_frame_pointer()?;
            let pc = registers.values.ip();
            // rbp may not point to this code's frame: a stub need not have one. Then this is not where it was
            // called.
            let is_caller = match self.cache.holds(pc) {
                true => calls(pc, blob, at.pc, context),
                false => name.to_ascii_lowercase().contains("upcall") && is_module(pc),
            };
            if !is_caller {
                return Err(Truncation::UnknownJavaCode);
            }
            (registers, Inner::SlowPath)
        };
        stack.push_java(stub(name, context)?, FrameKinds::STUB);
        self.last = last;
        Ok(registers)
    }

    /// Frames of a virtual thread that has waited: what returns from those on the stack comes to a stub that
    /// fetches some more. The stack pointer is then at the `ContinuationEntry`, or at parameters before it;
    /// behind it are rbp and the return address of what has entered the continuation.
    fn frozen(
        &mut self,
        at: &At<'_>,
        inner: Inner,
        is_module: &mut dyn FnMut(Avma) -> bool,
        context: &mut JavaContext<'_>,
        stack: &mut StackBuffer,
    ) -> Result<FrameRegisters, Truncation> {
        if inner != Inner::Java {
            // The stub is at work: where it keeps its return address is not known.
            return Err(Truncation::UnknownJavaCode);
        }
        let end = at.sp().checked_add(self.layout.continuation_entry).ok_or(Truncation::UnwindFailed)?;
        let entered = self.continuation_return(context);
        if let Some(entered) = entered.filter(|_| at.load(end + 8).is_ok_and(|pc| self.cache.holds(pc))) {
            stack.push(Frame::FrozenFrames);
            self.last = Inner::Frozen;
            // Those frames are none of this stack: what has entered them is at the same stack pointer.
            let registers = caller(entered, at.sp(), None);
            return self.step_over(
                &At { pc: entered, registers: &registers, ..*at },
                is_module,
                context,
                stack,
            );
        }
        for slot in (end..).step_by(8).take(MAX_PARAMETERS as usize) {
            let pc = at.load(slot + 8)?;
            if self.cache.holds(pc) {
                stack.push(Frame::FrozenFrames);
                self.last = Inner::Frozen;
                return Ok(caller(pc, slot + 16, Some(at.load(slot)?)));
            }
        }
        Err(Truncation::UnwindFailed)
    }

    /// Where a continuation's code returns to in what has entered it, if the JVM says so.
    fn continuation_return(&mut self, context: &mut JavaContext<'_>) -> Option<Avma> {
        if self.continuation_return.is_none() {
            let pc = context.memory.u64(self.layout.continuation_return?);
            self.continuation_return = pc.filter(|&pc| self.cache.holds(pc));
        }
        self.continuation_return
    }
}

/// Whether the instruction before `pc` calls code of a blob not behind `inside`.
fn calls(pc: Avma, blob: &Blob, inside: Avma, context: &mut JavaContext<'_>) -> bool {
    let call = pc.wrapping_sub(5);
    let Some(&[0xe8, a, b, c, d]) = context.memory.bytes(call, 5).as_deref() else { return false };
    let target = pc.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into());
    (blob.range.start..inside).contains(&target)
}

/// Whether one of the frames is a method of the class that runs virtual threads.
fn tells_continuation(frames: &[Frame], context: &JavaContext<'_>) -> bool {
    frames.iter().any(|frame| match frame {
        Frame::JavaMethod { method, .. } => {
            context.methods.get(*method).is_some_and(|method| method.class == CONTINUATION)
        }
        _ => false,
    })
}

/// The frame of the JVM's own code.
fn stub(name: &str, context: &mut JavaContext<'_>) -> Result<Frame, Truncation> {
    let method = JavaMethod { class: String::new(), name: name.into(), signature: String::new(), file: None };
    let method = context.methods.intern(method).ok_or(Truncation::StackLost)?;
    Ok(Frame::JavaMethod { method, line: 0 })
}
