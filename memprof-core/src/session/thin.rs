//! Thinning: what to do when the live table is nearly full. The sampling interval is raised, and the
//! blocks that are held are drawn once more, to what the new interval would have sampled.
//!
//! ```text
//! interval 4 KiB → 16 KiB     size   p before        p after          stays with    then stands for
//!                             8 KiB  1               1/2              1/2           16 KiB
//!                             1 KiB  1/4             1/16             1/4           16 KiB
//!                             1 KiB  1/32 (pressure) 1/32, untouched  1             32 KiB
//! ```
//! A block that was recorded with probability p and stays with probability p'/p was recorded with p', so
//! the estimate stays unbiased whatever came before. The draw is a hash of the block's name and a seed
//! that is an input: a replay keeps the same blocks.
//!
//! Frees of blocks that are no longer held may still be on their way. Until everything that was in the
//! ring has been taken in ([`Input::Settled`](crate::input::Input::Settled)), their names are kept, so
//! that such a free is not taken for a loss.

use memprof_common::sampling::{MAX_INTERVAL, probability, slope};
use rustc_hash::FxHashMap;

use super::Session;
use crate::input::BlockName;
use crate::live::{Block, BlockKey};
use crate::run_event::{RunEvent, RunEventKind};

/// Why a block is not held although its free has not been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It was not drawn when the table was thinned.
    Thinned,
    /// The kernel's table no longer held it.
    Repaired,
}

/// The blocks that went without a free since the session last settled.
#[derive(Debug, Default)]
pub(super) struct Departed {
    blocks: FxHashMap<BlockKey, Cause>,
    /// Names of those that were thinned out and that the kernel's table still holds.
    thinned: Vec<BlockName>,
    /// Free events known to be lost when the tables were last compared.
    frees_lost: u64,
}

impl Departed {
    /// Takes out a block whose free has come after all.
    pub(super) fn take(&mut self, key: &BlockKey) -> Option<Cause> {
        self.blocks.remove(key)
    }

    /// Remembers a block that a comparison with the kernel's table has freed.
    pub(super) fn repaired(&mut self, key: BlockKey) {
        self.blocks.insert(key, Cause::Repaired);
    }

    /// Free events lost since the tables were last compared, given those lost in all.
    pub(super) fn newly_lost_frees(&mut self, in_all: u64) -> u64 {
        in_all.saturating_sub(std::mem::replace(&mut self.frees_lost, in_all))
    }
}

impl Session {
    /// Number of blocks in the live table, those that ended processes held included.
    #[must_use]
    pub fn live_len(&self) -> usize {
        self.live.len()
    }

    /// Makes room for this many blocks, so that the live table does not grow by copying itself.
    pub fn reserve_blocks(&mut self, blocks: usize) {
        self.live.reserve(blocks);
    }

    /// The interval that the live table must be thinned to so that about `keep` blocks stay: `interval`
    /// doubled as often as it takes. `None` when it is the largest already, or 0.
    #[must_use]
    pub fn interval_to_keep(&self, keep: usize, interval: u64) -> Option<u64> {
        if interval == 0 || interval >= MAX_INTERVAL {
            return None;
        }
        let mut raised = interval;
        loop {
            raised = (raised * 2).min(MAX_INTERVAL);
            let slope = slope(raised);
            let expected: f64 = self
                .live
                .iter()
                .map(|(_, block)| {
                    (probability(block.size, raised, slope) as f64 / block.probability as f64).min(1.0)
                })
                .sum();
            if expected <= keep as f64 || raised == MAX_INTERVAL {
                return Some(raised);
            }
        }
    }

    /// The blocks that the last thinning took out and that the kernel's live table still holds; once.
    pub fn take_thinned(&mut self) -> Vec<BlockName> {
        std::mem::take(&mut self.past.departed.thinned)
    }

    /// Draws every block once more at the new `interval`.
    pub(super) fn thin(&mut self, time: u64, interval: u64, seed: u64) {
        if self.past.window.is_past(time) {
            return;
        }
        self.advance(time);
        let before = self.live.len() as u64;
        let slope = slope(interval);
        let (watched, departed) = (&self.watched, &mut self.past.departed);
        departed.blocks.clear();
        departed.thinned.clear();
        self.live.retain(|key, block| {
            let thinned = probability(block.size, interval, slope);
            if interval == 0 || block.probability <= thinned {
                return true;
            }
            if stays(seed, key, block, thinned) {
                block.probability = thinned;
                return true;
            }
            departed.blocks.insert(*key, Cause::Thinned);
            let life = watched.life(key.process);
            if life.ended_at.is_none() {
                departed.thinned.push((life.info.key.tgid, key.address, key.allocated_at));
            }
            false
        });
        let after = self.live.len() as u64;
        self.note(&RunEvent { time, kind: RunEventKind::IntervalRaised { interval, before, after } });
    }

    /// Everything that was in the ring at the last thinning or comparison has been taken in. The kernel's
    /// entries of the blocks in `lost` were taken out by mistake: their free will never be seen.
    pub(super) fn settle(&mut self, lost: &[BlockName]) {
        // What was lost behind the window may be alive in it.
        let lost = if self.past.window.is_over() { &[] } else { lost };
        for &(tgid, address, allocated_at) in lost {
            let Some(process) = self.watched.running(tgid) else { continue };
            if self.live.remove(&BlockKey { process, address, allocated_at }).is_some() {
                self.quality.losses.thinned_by_mistake += 1;
            }
        }
        self.past.departed.blocks.clear();
    }
}

/// Whether a block with its probability stays at the lower one: true with probability
/// `thinned / block.probability`, to 64 bits.
fn stays(seed: u64, key: &BlockKey, block: &Block, thinned: u64) -> bool {
    let named = mix(seed ^ mix(key.address) ^ mix(u64::from(key.process.0)).rotate_left(32));
    let drawn = mix(named ^ key.allocated_at);
    u128::from(drawn) * u128::from(block.probability) < u128::from(thinned) << 64
}

/// Spreads every bit of `x` over all 64: one step of the SplitMix64 generator.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests;
