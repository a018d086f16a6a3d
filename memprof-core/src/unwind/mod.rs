//! Unwinding: registers and a copy of the stack's top in, frames out.
//!
//! ```text
//! native ─┬─ rule      which rule holds at an address, read from call frame information once
//!         ├─ code      whose code is where
//!         ├─ framehop  steps over frames with an ordinary rule
//!         ├─ general   steps over the others: signal frames, realigned stacks, hand-written code
//!         └─ snapshot  the copied stack, the only memory there is
//! ```
//! Nothing is guessed. A frame whose rule is missing, unknown or unfollowable ends the stack, with the
//! reason as its last frame.

pub mod code;
mod general;
pub mod native;
mod rule;
mod snapshot;

use crate::stack::Truncation;

/// Most frames of a stack, the mark of its end not counted.
pub const MAX_FRAMES: usize = 512;

/// How a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackEnd {
    /// At the thread's entry: the call frame information says that there is no caller.
    Complete,
    /// At the first Java frame.
    Java,
    /// Before that, for this reason.
    Truncated(Truncation),
}
