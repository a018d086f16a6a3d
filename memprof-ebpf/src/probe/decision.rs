//! Whether a call is sampled.

use aya_ebpf::helpers::bpf_get_prandom_u32;
use memprof_common::sampling::{is_sampled, pressure_level, probability, under_pressure};
use memprof_common::settings::Settings;

use crate::live;

/// The probability with which a block of `size` bytes was drawn, in 2⁻³² units; 0 when it was not.
///
/// One random number serves both steps, so that most calls never look at the live table and the
/// probability is exactly the one that is returned.
#[inline(always)]
pub(crate) fn draw(settings: &Settings, size: u64) -> u64 {
    // SAFETY: both are aligned and initialised. Volatile, because user space writes to them: each is
    // read once, so that the probability drawn with is the one recorded.
    let (interval, slope) = unsafe {
        (
            (&raw const settings.sample_interval).read_volatile(),
            (&raw const settings.sample_slope).read_volatile(),
        )
    };
    if interval == 0 {
        return 0;
    }
    let plain = probability(size, interval, slope);
    // SAFETY: the helper has no preconditions.
    let random = unsafe { bpf_get_prandom_u32() };
    if !is_sampled(plain, random) {
        return 0;
    }
    let level = pressure_level(live::occupancy(), settings.pressure_from, settings.pressure_step);
    let drawn = under_pressure(plain, size, level);
    if is_sampled(drawn, random) { drawn } else { 0 }
}
