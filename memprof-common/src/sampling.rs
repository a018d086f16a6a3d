//! Size-proportional (Horvitz–Thompson) sampling in fixed point.
//!
//! With interval R a block of S bytes is recorded with probability p = min(1, S/R); it then stands
//! for S/p bytes and 1/p blocks. The probability travels with the sample in units of 2⁻³², so the
//! weights are exact whatever rounding made p, and the interval may change at run time.

/// The fixed-point probability that means "always": 2³².
pub const CERTAIN: u64 = 1 << 32;

/// The largest sampling interval in bytes (1 GiB). Beyond it the fixed-point slope gets too coarse.
pub const MAX_INTERVAL: u64 = 1 << 30;

/// Rise of the probability per byte, in 2⁻³² units, for a sampling `interval` in bytes.
/// Zero for interval 0, which means "sample nothing".
#[must_use]
pub const fn slope(interval: u64) -> u64 {
    match CERTAIN.checked_div(interval) {
        Some(slope) => slope,
        None => 0,
    }
}

/// Probability, in 2⁻³² units, with which a block of `size` requested bytes is recorded.
///
/// `malloc(0)` hands out a block too and is treated as one byte.
#[inline(always)]
#[must_use]
pub const fn probability(size: u64, interval: u64, slope: u64) -> u64 {
    let size = if size == 0 { 1 } else { size };
    if size >= interval { CERTAIN } else { size * slope }
}

/// Whether a block with this `probability` is recorded, given 32 uniformly random bits.
#[inline(always)]
#[must_use]
pub const fn is_sampled(probability: u64, random: u32) -> bool {
    (random as u64) < probability
}

/// `size` divided by `probability`: the bytes that a sample stands for, rounded down. Used for loss
/// counters in the kernel, where there is no floating point.
#[inline(always)]
#[must_use]
pub const fn weighted_bytes(size: u64, probability: u64) -> u64 {
    if probability >= CERTAIN || probability == 0 || size >= CERTAIN {
        size
    } else {
        (size << 32) / probability
    }
}

const _: () = {
    assert!(slope(1) == CERTAIN);
    assert!(probability(0, 1, slope(1)) == CERTAIN);
    assert!(probability(4096, 4096, slope(4096)) == CERTAIN);
    assert!(probability(1024, 4096, slope(4096)) == CERTAIN / 4);
    assert!(weighted_bytes(1024, CERTAIN / 4) == 4096);
    assert!(!is_sampled(0, 0));
    assert!(is_sampled(CERTAIN, u32::MAX));
};
