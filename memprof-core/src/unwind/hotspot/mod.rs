//! HotSpot: frames of interpreted and compiled Java code, told from outside of the JVM.
//!
//! ```text
//! vm_structs ─► layout           where the JVM keeps what, as it says itself
//! code_cache ─► blob ─► blobs    whose code an address is; what was known of it before, and the proof
//! steps, leaf_call               where the caller's registers are
//! scopes ─► method ─► loaders    which methods a frame stands for, what they are called, and the proof
//! frames                         one step, of all of this
//! ```

mod blob;
mod blobs;
mod code_cache;
mod frames;
#[cfg(test)]
mod image;
mod layout;
mod leaf_call;
mod line_table;
mod loaders;
mod mask;
mod method;
mod pc_desc;
mod scopes;
mod steps;
mod symbol;
mod unsigned5;
mod vm_structs;
mod witness;

use self::blobs::Blobs;
use self::code_cache::CodeCache;
use self::frames::{At, Inner};
use self::layout::Layout;
use self::method::Methods;
use self::witness::Proof;
use super::general::FrameRegisters;
use super::jvm::JavaContext;
use super::snapshot::Snapshot;
use crate::address::Avma;
use crate::memory::ProcessMemory;
use crate::stack::{StackBuffer, Truncation};

/// Why a JVM cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// It is still starting.
    NotReady,
    /// Its frames cannot be told, for this reason.
    Unsupported(String),
}

/// A running JVM.
pub(crate) struct HotSpot {
    layout: Layout,
    cache: CodeCache,
    /// Where Java that the JVM has called returns to.
    call_stub_return: Avma,
    /// Where the code of a virtual thread returns to, once that is known.
    continuation_return: Option<Avma>,
    blobs: Blobs,
    methods: Methods,
    proof: Proof,
    /// What the last step of the walk at hand was over.
    last: Inner,
    /// When the stack at hand was copied.
    time: u64,
}

impl HotSpot {
    /// Opens the JVM whose exported variables are at these live addresses.
    pub(crate) fn open(symbols: &[(&str, Avma)], memory: &mut ProcessMemory<'_>) -> Result<Self, OpenError> {
        let layout = Layout::read(symbols, memory)?;
        // The stubs are made when the code cache is whole.
        let call_stub_return = memory.u64(layout.call_stub_return).filter(|&pc| pc != 0);
        let call_stub_return = call_stub_return.ok_or(OpenError::NotReady)?;
        let cache = CodeCache::read(&layout.cache, memory)?;
        Ok(Self {
            layout,
            cache,
            call_stub_return,
            continuation_return: None,
            blobs: Blobs::default(),
            methods: Methods::default(),
            proof: Proof::default(),
            last: Inner::Native,
            time: 0,
        })
    }

    /// Whether an address lies in the code cache.
    pub(crate) fn holds(&self, pc: Avma) -> bool {
        self.cache.holds(pc)
    }

    /// A stack is about to be walked: [`HotSpot::verify`] will ask about what the walk relied on.
    pub(crate) fn begin(&mut self) {
        self.blobs.begin();
        self.methods.begin();
        self.last = Inner::Native;
    }

    /// Steps over the frame that the return address `pc` leads into, and adds what it stands for to `stack`:
    /// several frames where methods are inlined. The registers are those at that place; those returned are the
    /// caller's, whose instruction pointer is again a return address. `is_module` tells whether an address is code
    /// of a module.
    pub(crate) fn step(
        &mut self,
        pc: Avma,
        registers: &FrameRegisters,
        snapshot: &Snapshot<'_>,
        is_module: &mut dyn FnMut(Avma) -> bool,
        context: &mut JavaContext<'_>,
        stack: &mut StackBuffer,
    ) -> Result<FrameRegisters, Truncation> {
        if self.time != context.time {
            self.time = context.time;
            self.blobs.forget_replaced();
        }
        self.step_over(&At { pc, registers, snapshot }, is_module, context, stack)
    }

    /// Whether all that the walk has relied on held at the time of the sample. What did not is forgotten: the
    /// stack should be walked again.
    pub(crate) fn verify(&mut self, context: &mut JavaContext<'_>) -> bool {
        self.proof.clear();
        self.blobs.want(&mut self.proof);
        self.methods.want(&mut self.proof);
        // A moment before the reads: what is the same then was the same until then.
        let now = if self.proof.is_empty() { 0 } else { context.memory.now() };
        let mut read = self.proof.read(&mut context.memory).unwrap_or_default();
        let blobs_hold = self.blobs.settle(&mut read, now);
        let methods_hold = self.methods.settle(&mut read, now);
        let all_hold = blobs_hold && methods_hold && self.methods.are_alive(&self.layout.method, context);
        if all_hold {
            self.blobs.keep_told();
        }
        all_hold
    }
}
