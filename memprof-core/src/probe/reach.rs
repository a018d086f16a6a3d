//! Where a function goes without coming back: the targets of its jumps out of itself.
//!
//! A compiler ends a function with a *jump* when its last act is a call, and moves unlikely parts of it
//! elsewhere. Code reached like this works for the function, which itself is no longer on the stack.

use iced_x86::{Decoder, DecoderOptions, FlowControl, OpKind};

use crate::address::Svma;

/// The addresses outside of a function to which it jumps, ascending, given its whole `code` and its address
/// `svma`. Jumps through registers and memory are not followed.
#[must_use]
pub fn jumps_out(code: &[u8], svma: Svma) -> Vec<Svma> {
    let mut targets: Vec<Svma> = Decoder::with_ip(64, code, svma, DecoderOptions::NONE)
        .iter()
        .filter(|i| {
            matches!(i.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch)
        })
        .filter(|i| i.op0_kind() == OpKind::NearBranch64)
        .map(|i| i.near_branch_target())
        .filter(|target| target.wrapping_sub(svma) >= code.len() as u64)
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_within_and_calls_do_not_count() {
        // 0x1000: je 0x1004; call 0x2000 (…); jmp 0x900; jne 0x3000; jmp 0x900; jmp rax
        let code = [
            0x74, 0x02, // je 0x1004
            0x90, 0x90, // nop; nop
            0xe8, 0xf7, 0x0f, 0x00, 0x00, // call 0x2000
            0xe9, 0xf2, 0xf8, 0xff, 0xff, // jmp 0x900
            0x0f, 0x85, 0xec, 0x1f, 0x00, 0x00, // jne 0x3000
            0xe9, 0xe7, 0xf8, 0xff, 0xff, // jmp 0x900
            0xff, 0xe0, // jmp rax
        ];
        assert_eq!(jumps_out(&code, 0x1000), [0x900, 0x3000]);
        assert!(jumps_out(&[], 0x1000).is_empty());
    }
}
