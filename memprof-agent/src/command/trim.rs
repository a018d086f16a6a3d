//! `trim`: lets a JVM give back what its glibc keeps, and shows what was forecast beside what came of it.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use memprof_core::encode::units;
use memprof_core::rss::{Owner, forecast};
use serde::Serialize;

use crate::cli::TrimArgs;
use crate::look::{self, Looker};
use crate::present;

/// Forecast and result. Amounts are in bytes.
#[derive(Debug, Serialize)]
struct Trim {
    pid: u32,
    forecast_bytes: u64,
    rss_before_bytes: u64,
    rss_after_bytes: u64,
    /// What of glibc's free memory can still be returned: the process may have freed more meanwhile.
    trimmable_after_bytes: u64,
    /// What the JVM said.
    answer: String,
}

/// Trims.
pub(crate) fn run(args: &TrimArgs) -> Result<ExitCode> {
    let target = look::open(args.pid)?;
    let mut looker = Looker::new(&target, true)?;
    if looker.jvm().is_none() {
        match looker.gaps().first() {
            Some(gap) => bail!("cannot ask process {} to trim: {gap}", args.pid),
            None => bail!(
                "process {} is no JVM, and nobody else can be asked to trim: only the program itself can call malloc_trim",
                args.pid
            ),
        }
    }
    let before = looker.look()?;
    let Some(expected) = forecast(&before) else {
        bail!("process {} does not use glibc's malloc: there is nothing to trim", args.pid);
    };
    present::message(&format!("letting the JVM of process {} call malloc_trim", args.pid));
    let jvm = looker.jvm().expect("checked above");
    let answer = jvm
        .ask("System.trim_native_heap")
        .context("trimming (JVMs have System.trim_native_heap from JDK 17.0.9 on)")?;
    let after = looker.look()?;
    let trim = Trim {
        pid: target.tgid(),
        forecast_bytes: expected.trim_bytes,
        rss_before_bytes: before.rss_bytes,
        rss_after_bytes: after.rss_bytes,
        trimmable_after_bytes: after.bytes(Owner::Trimmable),
        answer: answer.trim().to_owned(),
    };
    if args.json {
        present::document(&trim)?;
    } else {
        present::text(&trim.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Trim {
    fn text(&self) -> String {
        let bytes = |bytes: u64| units::bytes(bytes as f64);
        let (before, after) = (self.rss_before_bytes, self.rss_after_bytes);
        let change = if after > before {
            format!("grew by {}", bytes(after - before))
        } else {
            format!("fell by {}", bytes(before - after))
        };
        format!(
            "memprof: process {}\n  forecast   {}\n  RSS        {} -> {}, {change}\n  still kept {} that could be \
             returned\n  the JVM    {}\n",
            self.pid,
            bytes(self.forecast_bytes),
            bytes(before),
            bytes(after),
            bytes(self.trimmable_after_bytes),
            self.answer.lines().collect::<Vec<_>>().join("; "),
        )
    }
}
