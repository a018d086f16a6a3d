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
///
/// User space changes interval and slope while probes read them, so one may be new and the other old.
/// Estimates stay right all the same: they divide by the probability that was used, and any
/// probability in (0, 1] that does not depend on what is drawn gives the right expectation. Two that
/// do not fit together give at most [`CERTAIN`], or zero where nothing is sampled any more.
#[inline(always)]
#[must_use]
pub const fn probability(size: u64, interval: u64, slope: u64) -> u64 {
    let size = if size == 0 { 1 } else { size };
    if size >= interval {
        return CERTAIN;
    }
    let probability = size * slope;
    if probability > CERTAIN { CERTAIN } else { probability }
}

/// The live table is under pressure from this many of its [`PRESSURE_PARTS`] on (90 %).
const PRESSURE_FROM: u64 = 115;
/// Parts of the live table: each further one that fills up halves the probability.
const PRESSURE_PARTS: u64 = 128;
/// Blocks of this size (1 MiB) are sampled as ever under pressure: few are alive, and each weighs much.
const EXEMPT_FROM_PRESSURE: u64 = 1 << 20;

/// Blocks in a live table of `capacity` from which on it is under pressure, and how many more raise
/// [`pressure_level`] by one.
#[must_use]
pub const fn pressure_marks(capacity: u64) -> (u64, u64) {
    let step = capacity / PRESSURE_PARTS;
    (capacity * PRESSURE_FROM / PRESSURE_PARTS, if step == 0 { 1 } else { step })
}

/// How often the probability is halved with `live` blocks in the live table: 0 below 90 % of its
/// capacity, 13 when it is full. So a full table needs 64 times its capacity in new blocks, which
/// leaves user space the time to thin it.
///
/// It depends on what was sampled before and not on what is drawn next, so estimates stay unbiased.
#[inline(always)]
#[must_use]
pub const fn pressure_level(live: u64, from: u64, step: u64) -> u32 {
    if live < from || step == 0 {
        return 0;
    }
    let level = 1 + (live - from) / step;
    if level > 13 { 13 } else { level as u32 }
}

/// The probability of a block of `size` bytes at a [`pressure_level`]; never zero unless it was.
#[inline(always)]
#[must_use]
pub const fn under_pressure(probability: u64, size: u64, level: u32) -> u64 {
    if size >= EXEMPT_FROM_PRESSURE || probability == 0 {
        return probability;
    }
    let halved = probability >> level;
    if halved == 0 { 1 } else { halved }
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
    assert!(probability(1500, 2000, slope(1000)) == CERTAIN);
    assert!(pressure_level(899, 898, 7) == 1 && pressure_level(897, 898, 7) == 0);
    assert!(pressure_level(1000, 898, 7) == 13);
    assert!(under_pressure(CERTAIN, 100, 3) == CERTAIN / 8 && under_pressure(4, 1, 13) == 1);
    assert!(under_pressure(CERTAIN, 1 << 20, 13) == CERTAIN);
    assert!(weighted_bytes(1024, CERTAIN / 4) == 4096);
    assert!(!is_sampled(0, 0));
    assert!(is_sampled(CERTAIN, u32::MAX));
};
