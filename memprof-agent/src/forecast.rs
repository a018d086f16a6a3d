//! What the probes will cost, told (and refused, when it is too much) before they go in.

use anyhow::Result;
use memprof_common::function::FunctionKind;
use memprof_core::encode::units;
use memprof_core::figures::HitCosts;

use crate::bpf::attach::AttachMode;
use crate::bpf::kernel_side::KernelSide;
use crate::bpf::rate::RateProbe;
use crate::bpf::sites::{FilePlan, plan_process};
use crate::cli::{OverheadLimit, ProbeArgs};
use crate::governor::{PER_PERMILLE, Prices, check_expectation, percent};
use crate::host::allocators::AllocatorFiles;
use crate::present;

/// Measures how often the processes allocate, and says what the probes will cost them.
///
/// # Errors
/// When that is more than the limit, or a process has no allocator that can be probed.
pub(crate) fn forecast(
    kernel_side: &KernelSide,
    costs: HitCosts,
    args: &ProbeArgs,
    tgids: &[u32],
) -> Result<()> {
    let OverheadLimit::Permille(limit) = args.max_overhead else { return Ok(()) };
    let mut files = AllocatorFiles::default();
    let plans: Vec<Vec<FilePlan>> =
        tgids.iter().map(|&tgid| plan_process(&mut files, tgid)).collect::<Result<_>>()?;
    let prices = Prices::new(costs, |kind| plans.iter().any(|plans| is_stepped(plans, kind)));
    let sees_returns = matches!(args.attach_mode.forced(), Some(AttachMode::Multi | AttachMode::Perf));
    let expected = |rate| prices.expected(rate, args.sample_interval == 1, sees_returns);
    let limit = limit * PER_PERMILLE;
    let is_clear = |rate| expected(rate) < limit / 2 || expected(rate) > limit * 2;
    let rate = match measure(kernel_side, &plans, tgids, is_clear) {
        Ok(rate) => rate,
        Err(error) => {
            // What stands in the way here stands in the way of the other probes too, and they tell it better.
            log::info!("how often the target allocates cannot be measured: {error:#}");
            return Ok(());
        }
    };
    check_expectation(rate, expected(rate), args.max_overhead)?;
    present::message(&format!(
        "about {} allocations a second: the probes will cost about {} % of a core",
        units::count(rate),
        percent(expected(rate))
    ));
    Ok(())
}

fn measure(
    kernel_side: &KernelSide,
    plans: &[Vec<FilePlan>],
    tgids: &[u32],
    is_clear: impl Fn(f64) -> bool,
) -> Result<f64> {
    let mut probe = RateProbe::new(kernel_side)?;
    for (plans, &tgid) in plans.iter().zip(tgids) {
        for plan in plans {
            probe.add(plan, tgid)?;
        }
    }
    probe.measure(is_clear)
}

/// Whether the main function of this kind, in one of the allocators, has a probe that is single-stepped.
pub(crate) fn is_stepped(plans: &[FilePlan], kind: FunctionKind) -> bool {
    plans.iter().filter_map(|plan| plan.main_site(kind)).any(|site| !site.emulated)
}
