//! The live table: every sampled block that has not been freed.
//!
//! ```text
//!   key: which block                              value: what it stands for
//!   ┌─────────┬────────────────┬──────────────┐   ┌──────┬──────┬─────────────┐
//!   │ process │ address        │ allocated_at │ → │ site │ size │ probability │
//!   ├─────────┼────────────────┼──────────────┤   ├──────┼──────┼─────────────┤
//!   │ 0       │ 0x7f00_0000_10 │ 1000         │   │ 4    │  100 │ 2³²         │
//!   │ 0       │ 0x7f00_0000_10 │ 3000         │   │ 7    │   64 │ 2³¹         │
//!   │ 1       │ 0x7f00_0000_10 │ 2000         │   │ 9    │  100 │ 2³²         │
//!   └─────────┴────────────────┴──────────────┘   └──────┴──────┴─────────────┘
//! ```
//! `process` is one life of one process id, so a reused id meets an empty table. `allocated_at` tells
//! a block from its successor at the same address. Worked example, in the order of the event ring:
//!
//! ```text
//!   alloc A @1000              {A@1000}           thread 1
//!   alloc A @3000              {A@1000, A@3000}   thread 2 got the address before the event of the
//!                                                 free reached the ring (a moving realloc may do this)
//!   free  A allocated_at 1000  {A@3000}           the late free takes its own block, not the new one
//!   alloc A @5000 replaces 3000 {A@5000}          the kernel noticed that the free of A@3000 was missed
//!   free  A allocated_at 3000  {A@5000}           not held: counted as unknown, changes nothing
//! ```
//! Iteration order depends on the operations alone, never on a seed, so sums of floats repeat exactly.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// One life of one process: its position in [`crate::profile::Profile::processes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessIndex(pub u32);

/// An allocation site: its position among the session's sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u32);

/// Names exactly one block in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The process that allocated it.
    pub process: ProcessIndex,
    /// Address that the allocator returned.
    pub address: u64,
    /// `CLOCK_MONOTONIC` nanoseconds at which it was handed out.
    pub allocated_at: u64,
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it was allocated.
    pub site: SiteId,
    /// Requested bytes.
    pub size: u64,
    /// Probability with which it was sampled, in 2⁻³² units.
    pub probability: u64,
}

/// All sampled blocks that have not been freed.
#[derive(Debug, Default)]
pub struct LiveTable {
    blocks: IndexMap<BlockKey, Block, FxBuildHasher>,
}

impl LiveTable {
    /// Adds a block. Returns what was held under the same key, which it replaces.
    pub fn insert(&mut self, key: BlockKey, block: Block) -> Option<Block> {
        self.blocks.insert(key, block)
    }

    /// Takes out a block; `None` when it is not held.
    pub fn remove(&mut self, key: &BlockKey) -> Option<Block> {
        self.blocks.swap_remove(key)
    }

    /// Takes out all blocks of a process. Returns how many.
    pub fn remove_process(&mut self, process: ProcessIndex) -> usize {
        let before = self.blocks.len();
        self.blocks.retain(|key, _| key.process != process);
        before - self.blocks.len()
    }

    /// Takes out the blocks for which `stays` says no; it may change those that stay.
    pub fn retain(&mut self, mut stays: impl FnMut(&BlockKey, &mut Block) -> bool) {
        self.blocks.retain(|key, block| stays(key, block));
    }

    /// Makes room for `blocks` blocks in all, so that the table does not grow by copying itself.
    pub fn reserve(&mut self, blocks: usize) {
        self.blocks.reserve_exact(blocks.saturating_sub(self.blocks.len()));
    }

    /// All blocks, in an order that the operations so far determine.
    pub fn iter(&self) -> impl Iterator<Item = (&BlockKey, &Block)> {
        self.blocks.iter()
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;

    use super::*;

    fn key(process: u32, address: u64, allocated_at: u64) -> BlockKey {
        BlockKey { process: ProcessIndex(process), address, allocated_at }
    }

    fn block(size: u64) -> Block {
        Block { site: SiteId(0), size, probability: 1 << 32 }
    }

    #[test]
    fn a_late_free_takes_its_own_block() {
        let mut live = LiveTable::default();
        live.insert(key(0, 16, 1000), block(100));
        live.insert(key(0, 16, 3000), block(64));
        live.insert(key(1, 16, 1000), block(7));
        assert_eq!(live.remove(&key(0, 16, 1000)), Some(block(100)));
        assert_eq!(live.remove(&key(0, 16, 1000)), None);
        assert_eq!(live.iter().map(|(_, b)| b.size).sum::<u64>(), 71);
        assert_eq!(live.remove_process(ProcessIndex(0)), 1);
        assert_eq!(live.len(), 1);
    }

    /// Random operations against a plain list.
    #[test]
    fn agrees_with_a_naive_model() {
        let mut state = 7u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut live = LiveTable::default();
        let mut model: Vec<(BlockKey, Block)> = Vec::new();
        for step in 0..20_000 {
            let some_key = key(random(3) as u32, random(20), random(5));
            match random(100) {
                0..55 => {
                    let new = block(step);
                    let old = model.iter().position(|(k, _)| *k == some_key).map(|i| model.swap_remove(i).1);
                    model.push((some_key, new));
                    assert_eq!(live.insert(some_key, new), old);
                }
                55..97 => {
                    let old = model.iter().position(|(k, _)| *k == some_key).map(|i| model.swap_remove(i).1);
                    assert_eq!(live.remove(&some_key), old);
                }
                97 => {
                    let before = model.len();
                    model.retain(|(k, _)| k.process != some_key.process);
                    assert_eq!(live.remove_process(some_key.process), before - model.len());
                }
                _ => {
                    let held: FxHashSet<BlockKey> =
                        model.iter().map(|(k, _)| *k).filter(|k| k.address % 3 != 0).collect();
                    let before = model.len();
                    model.retain(|(k, _)| k.process == some_key.process || held.contains(k));
                    let len = live.len();
                    live.retain(|k, _| k.process == some_key.process || held.contains(k));
                    assert_eq!(len - live.len(), before - model.len());
                }
            }
            if step % 100 == 0 {
                let mut ours: Vec<_> = live.iter().map(|(k, b)| (*k, b.size)).collect();
                let mut theirs: Vec<_> = model.iter().map(|(k, b)| (*k, b.size)).collect();
                ours.sort_unstable();
                theirs.sort_unstable();
                assert_eq!(ours, theirs);
            }
        }
    }
}
