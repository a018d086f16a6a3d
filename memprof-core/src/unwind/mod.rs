//! Unwinding: registers and a copy of the stack's top in, frames out.
//!
//! ```text
//! walk ─┬─ native ─┬─ rule      which rule holds at an address, read from call frame information once
//!       │          ├─ code      whose code is where
//!       │          ├─ framehop  steps over frames with an ordinary rule
//!       │          └─ general   steps over the others: signal frames, realigned stacks, hand-written code
//!       ├─ jvm ──── hotspot     steps over Java frames and names them, from the JVM's memory
//!       └─ snapshot             the copied stack
//! ```
//! Nothing is guessed. A frame whose rule is missing, unknown or unfollowable ends the stack, with the
//! reason as its last frame.

pub mod code;
mod general;
mod hotspot;
mod jvm;
mod native;
mod rule;
mod snapshot;
mod walk;

pub use jvm::JavaContext;
pub use walk::Unwinder;

use crate::stack::Truncation;

/// Most frames of a stack, the mark of its end not counted.
pub const MAX_FRAMES: usize = 512;

/// How a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackEnd {
    /// At the thread's entry: the call frame information says that there is no caller.
    Complete,
    /// At the first Java frame, of a JVM whose frames cannot be told.
    Java,
    /// Before that, for this reason.
    Truncated(Truncation),
}
