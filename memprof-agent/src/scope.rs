//! What is recorded besides the blocks of the processes that were asked for, and what that needs.

use anyhow::{Result, bail};
use memprof_common::settings::KernelOffsets;
use memprof_core::input::Scope;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cli::ProbeArgs;
use crate::present;

/// What the command line asks for.
pub(crate) fn of(args: &ProbeArgs) -> Scope {
    Scope { maps: args.mmap, children: args.children }
}

/// Refuses what this kernel does not allow to record, says what will be missing, and makes room for children.
pub(crate) fn prepare(scope: Scope, kernel: &KernelOffsets) -> Result<()> {
    let is_unknown = |offset: u32| offset == KernelOffsets::UNKNOWN;
    if scope.maps && (is_unknown(kernel.mm_brk) || is_unknown(kernel.task_mm)) {
        present::message("the kernel does not say where it keeps the program break: brk will be missing");
    }
    if !scope.children {
        return Ok(());
    }
    if [kernel.task_tgid, kernel.task_start_boottime, kernel.task_mm].into_iter().any(is_unknown) {
        bail!(
            "cannot follow children: the kernel does not say where it keeps process ids and start times \
             (it must be built with CONFIG_DEBUG_INFO_BTF)"
        );
    }
    // A process's probes and its end take a dozen descriptors.
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        log::warn!("raising the number of open files: {error}");
    }
    Ok(())
}
