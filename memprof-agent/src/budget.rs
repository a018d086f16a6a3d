//! How the memory budget is split between ring and tables, the kernel's and the agent's.
//!
//! ```text
//! 1/2   event ring, rounded down to a power of two
//! 3/8   live blocks: an entry in the kernel's table and one in the agent's
//! 1/16  stacks and sites in the agent
//! 1/16  calls in flight in the kernel
//! ```
//! With 128 MiB: a ring of 64 MiB, 240 000 live blocks, 8 MiB for stacks (a stack of 20 frames takes about
//! 750 bytes), 16 384 calls. What is not in the budget: programs and libraries, unwind information and
//! symbols of the targets' modules, and the queue of a recording.

use bytesize::ByteSize;
use memprof_core::live::{Block, BlockKey};

/// The smallest budget, in bytes (1 MiB): a ring of 512 KiB and 1800 live blocks.
pub(crate) const MINIMUM: u64 = 1 << 20;

/// Bytes of an entry of the kernel's live table: its element (48 bytes of the kernel's own, key 16, value
/// 8) and up to two buckets of 16. Measured: 88 to 104 bytes, depending on how the number of buckets is
/// rounded up.
const KERNEL_BLOCK_BYTES: u64 = 104;
/// Bytes of a block in the agent: an entry of an indexed hash table (hash, key, value, up to two slots of 9
/// bytes in the index), and while the table is thinned the names of the half that goes, at most 32 bytes
/// each in two places.
const AGENT_BLOCK_BYTES: u64 = (8 + size_of::<BlockKey>() + size_of::<Block>() + 2 * 9 + 2 * 32 / 2) as u64;
/// Bytes of a call in flight in the kernel, in two tables.
const CALL_BYTES: u64 = 256;
/// Calls in flight: one for each thread that is inside the allocator at the same time.
const CALLS: std::ops::RangeInclusive<u64> = 256..=16_384;
/// The largest ring that a 32-bit size can name as a power of two, in bytes.
const MAX_RING: u64 = 1 << 31;

/// Sizes of everything that grows with what a target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The whole, in bytes.
    pub(crate) total: u64,
    /// The event ring, in bytes.
    pub(crate) ring_bytes: u32,
    /// Live blocks.
    pub(crate) max_live_blocks: u32,
    /// Calls in flight.
    pub(crate) max_calls: u32,
    /// Stacks and sites, in bytes.
    pub(crate) stack_bytes: u64,
}

impl Budget {
    /// Splits `total` bytes. Ring and number of live blocks can be given apart.
    pub(crate) fn split(total: u64, ring_bytes: Option<u32>, max_live_blocks: Option<u32>) -> Self {
        let ring = 1 << (total / 2).clamp(1, MAX_RING).ilog2();
        let blocks = total * 3 / 8 / (KERNEL_BLOCK_BYTES + AGENT_BLOCK_BYTES);
        let calls = (total / 16 / CALL_BYTES).clamp(*CALLS.start(), *CALLS.end());
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Self {
            total,
            ring_bytes: ring_bytes.unwrap_or(narrow(ring)),
            max_live_blocks: max_live_blocks.unwrap_or(narrow(blocks)),
            max_calls: narrow(calls),
            stack_bytes: total / 16,
        }
    }
}

/// A budget on the command line.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let size = text.parse::<ByteSize>().map_err(|error| format!("{error} (for example 128MiB)"))?.as_u64();
    if size < MINIMUM {
        return Err(format!("at least {} is needed", ByteSize(MINIMUM)));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: u64 = 128 << 20;

    /// Bytes that a budget's parts take at most.
    fn needed(budget: &Budget) -> u64 {
        u64::from(budget.ring_bytes)
            + u64::from(budget.max_live_blocks) * (KERNEL_BLOCK_BYTES + AGENT_BLOCK_BYTES)
            + u64::from(budget.max_calls) * CALL_BYTES
            + budget.stack_bytes
    }

    #[test]
    fn the_parts_fit_into_the_whole() {
        for total in [MINIMUM, 3 << 20, 100 << 20, DEFAULT, 1 << 30, 1 << 36] {
            let budget = Budget::split(total, None, None);
            assert!(needed(&budget) <= total, "{budget:?} needs {}", needed(&budget));
            assert!(needed(&budget) > total / 2 || total > 1 << 32, "{budget:?} uses {}", needed(&budget));
            assert!(budget.ring_bytes.is_power_of_two());
        }
    }

    #[test]
    fn the_documented_numbers_are_right() {
        let budget = Budget::split(DEFAULT, None, None);
        assert_eq!((budget.ring_bytes, budget.max_calls, budget.stack_bytes), (64 << 20, 16_384, 8 << 20));
        assert!((235_000..245_000).contains(&budget.max_live_blocks), "{}", budget.max_live_blocks);
        let smallest = Budget::split(MINIMUM, None, None);
        assert_eq!(smallest.ring_bytes, 512 << 10);
        assert!((1_800..1_900).contains(&smallest.max_live_blocks), "{}", smallest.max_live_blocks);
        let given = Budget::split(DEFAULT, Some(1 << 17), Some(1000));
        assert_eq!((given.ring_bytes, given.max_live_blocks), (1 << 17, 1000));
    }

    #[test]
    fn too_small_a_budget_names_the_minimum() {
        assert_eq!(parse("1MiB"), Ok(1 << 20));
        assert!(parse("100KiB").unwrap_err().contains("1.0 MiB"), "{:?}", parse("100KiB"));
        assert!(parse("much").is_err());
    }
}
