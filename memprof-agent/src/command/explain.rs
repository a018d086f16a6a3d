//! `explain`: where the RSS of a process went.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use memprof_core::encode::explain::Explanation;
use memprof_core::encode::units;
use memprof_core::rss::{Look, verdict};

use crate::cli::ExplainArgs;
use crate::host::cgroup;
use crate::host::clock::monotonic_ns;
use crate::look::{self, Looker};
use crate::present::{self, ProgressLine};

/// Looks by which growth is judged.
const LOOKS: u32 = 10;

/// Accounts for the RSS, once or for a while, and prints the result.
pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let target = look::open(args.pid)?;
    let mut looker = Looker::new(&target, !args.no_attach)?;
    let looks = match args.watch {
        None => vec![one(&mut looker)?],
        Some(time) => several(&mut looker, time)?,
    };
    let judged = args.watch.and_then(|_| verdict(&looks));
    let last = &looks.last().expect("there is a look").account;
    let cgroup = cgroup::of(args.pid);
    let explanation = Explanation {
        process: &target.info,
        account: last,
        cgroup: cgroup.as_ref(),
        verdict: judged.as_ref(),
        gaps: looker.gaps(),
    };
    if args.json {
        present::document(&explanation.document())?;
    } else {
        present::text(&explanation.text(io::stdout().is_terminal()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn one(looker: &mut Looker<'_>) -> Result<Look> {
    Ok(Look { time: monotonic_ns(), account: looker.look()? })
}

/// Looks spread evenly over a time.
fn several(looker: &mut Looker<'_>, time: Duration) -> Result<Vec<Look>> {
    let start = Instant::now();
    let mut looks = Vec::new();
    let mut progress = ProgressLine::default();
    for number in 0..LOOKS {
        std::thread::sleep((time * number / (LOOKS - 1)).saturating_sub(start.elapsed()));
        let look = one(looker)?;
        let rss = units::bytes(look.account.rss_bytes as f64);
        progress.show(&format!("look {} of {LOOKS}: RSS {rss}", number + 1));
        looks.push(look);
    }
    Ok(looks)
}
