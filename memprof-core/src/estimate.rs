//! Estimates of blocks and bytes from size-proportional samples.
//!
//! A block of S bytes is recorded with probability p and then stands for S/p bytes and 1/p blocks
//! (Horvitz–Thompson). Blocks are drawn independently, so sums and variances of sums simply add up.
//! Worked example, interval 4096: a sampled block of 1024 bytes has p = 1/4 and counts as 4096 bytes
//! in 4 blocks with a bytes variance of (1 - 1/4)·4096²; one of 4096 bytes or more is exact.

use std::ops::AddAssign;

use memprof_common::sampling::CERTAIN;

/// Standard deviations on either side of an estimate that hold the truth 95 times out of 100.
const CONFIDENCE_95: f64 = 1.96;

/// An estimate of blocks and bytes, unbiased per sample and then summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Sampled blocks behind the estimate.
    pub samples: u64,
    /// Estimated blocks: the sum of 1/p.
    pub objects: f64,
    /// Estimated bytes: the sum of S/p.
    pub bytes: f64,
    /// Estimated variance of `bytes`: the sum of (1-p)·(S/p)² (Horvitz–Thompson, Poisson sampling).
    pub bytes_variance: f64,
    /// Estimated variance of `objects`: the sum of (1-p)/p².
    pub objects_variance: f64,
}

impl Estimate {
    /// What one sampled block stands for: `size` in requested bytes, `probability` in 2⁻³² units
    /// (see [`memprof_common::sampling`]), which must not be zero.
    #[must_use]
    pub fn of_block(size: u64, probability: u64) -> Self {
        debug_assert!(probability > 0, "a block that cannot be sampled was sampled");
        let p = probability.min(CERTAIN) as f64 / CERTAIN as f64;
        let objects = 1.0 / p;
        let bytes = size as f64 / p;
        Self {
            samples: 1,
            objects,
            bytes,
            bytes_variance: (1.0 - p) * bytes * bytes,
            objects_variance: (1.0 - p) * objects * objects,
        }
    }

    /// Half-width of the 95 % confidence interval of `bytes`; 0 when the bytes are exact.
    #[must_use]
    pub fn bytes_error(&self) -> f64 {
        CONFIDENCE_95 * self.bytes_variance.sqrt()
    }

    /// Half-width of the 95 % confidence interval of `objects`; 0 when their number is exact.
    #[must_use]
    pub fn objects_error(&self) -> f64 {
        CONFIDENCE_95 * self.objects_variance.sqrt()
    }
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.bytes_variance += other.bytes_variance;
        self.objects_variance += other.objects_variance;
    }
}

#[cfg(test)]
mod tests {
    use memprof_common::sampling::{is_sampled, probability, slope};

    use super::*;

    #[test]
    fn a_certain_block_is_exact() {
        let mut sum = Estimate::default();
        for size in [0, 1, 100, 1 << 40] {
            sum += Estimate::of_block(size, CERTAIN);
        }
        assert_eq!(sum.samples, 4);
        assert_eq!(sum.objects, 4.0);
        assert_eq!(sum.bytes, 101.0 + (1u64 << 40) as f64);
        assert_eq!((sum.bytes_error(), sum.objects_error()), (0.0, 0.0));
    }

    #[test]
    fn expectation_is_the_truth_and_the_variance_estimate_is_unbiased() {
        for interval in [1u64, 100, 4096, 512 << 10] {
            for size in [1u64, 8, 1000, 4095, 4096, 1 << 20] {
                let fixed = probability(size, interval, slope(interval));
                let p = fixed as f64 / CERTAIN as f64;
                let sample = Estimate::of_block(size, fixed);
                let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-9);
                // Sampled with probability p, absent otherwise: E = p·value, Var = p·value² - E².
                assert!(close(p * sample.bytes, size as f64));
                assert!(close(p * sample.objects, 1.0));
                let truth = p * sample.bytes * sample.bytes - (size * size) as f64;
                assert!((p * sample.bytes_variance - truth).abs() <= 1e-6 * (sample.bytes * sample.bytes));
                let truth = p * sample.objects * sample.objects - 1.0;
                assert!(
                    (p * sample.objects_variance - truth).abs() <= 1e-6 * (sample.objects * sample.objects)
                );
            }
        }
    }

    #[test]
    fn the_interval_holds_the_truth_about_95_times_out_of_100() {
        // 2000 blocks of mixed sizes, interval 64 KiB, 400 runs of a linear congruential generator.
        let interval = 64 << 10;
        let sizes: Vec<u64> = (0..2000u64).map(|i| 16 + (i * 7919) % 9000).collect();
        let truth: u64 = sizes.iter().sum();
        let mut state = 0x1234_5678_9abc_def1u64;
        let (mut held, mut mean) = (0, 0.0);
        for _ in 0..400 {
            let mut sum = Estimate::default();
            for &size in &sizes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let p = probability(size, interval, slope(interval));
                if is_sampled(p, (state >> 32) as u32) {
                    sum += Estimate::of_block(size, p);
                }
            }
            held += usize::from((sum.bytes - truth as f64).abs() <= sum.bytes_error());
            mean += sum.bytes / 400.0;
        }
        assert!((370..=392).contains(&held), "{held} of 400 intervals hold the truth");
        assert!((mean / truth as f64 - 1.0).abs() < 0.02, "mean {mean}, truth {truth}");
    }
}
