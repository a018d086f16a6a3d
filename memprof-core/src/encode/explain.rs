//! The account of a whole RSS, for people and for programs.

mod document;
mod words;

use std::fmt::Write;

use super::units;
use crate::input::ProcessInfo;
use crate::jvm::{JvmSummary, Tracking};
use crate::rss::{Account, Beside, Cgroup, Movement, Owner, Verdict, forecast};

pub use document::{ArenasReport, Document};

/// Width of a line's name.
const NAME: usize = 50;

/// Characters of the longest bar.
const BAR: u64 = 24;

/// The JVM's purposes that take less than this part of the RSS share one line.
const SMALL: f64 = 0.005;

/// An account with what it is about.
#[derive(Clone, Copy, Debug)]
pub struct Explanation<'a> {
    /// The process.
    pub process: &'a ProcessInfo,
    /// Its RSS.
    pub account: &'a Account,
    /// The control group that limits it.
    pub cgroup: Option<&'a Cgroup>,
    /// What several looks tell.
    pub verdict: Option<&'a Verdict>,
    /// What could not be learnt, and why.
    pub gaps: &'a [String],
}

impl Explanation<'_> {
    /// As text; with a bar for each line if asked for.
    #[must_use]
    pub fn text(&self, bars: bool) -> String {
        let mut text = self.heading();
        text.push('\n');
        for (name, bytes) in self.rows() {
            self.row(&mut text, &name, bytes, bars);
        }
        self.row(&mut text, "RSS", self.account.rss_bytes.cast_signed(), false);
        text.push('\n');
        let notes =
            [beside_rss(&self.account.beside), self.limit(), self.cures(), self.heaps(), self.missing()];
        for line in notes.iter().flatten() {
            let _ = writeln!(text, "{line}");
        }
        if let Some(verdict) = self.verdict {
            let _ = writeln!(text, "\nverdict: {}", words::sentence(verdict));
            for movement in &verdict.evidence {
                let _ = writeln!(text, "  {}", evidence(movement));
            }
            if let Some((first, last)) = verdict.blocks_in_use {
                let counts = [first, last].map(|count| units::count(count as f64));
                let _ = writeln!(text, "  {:<NAME$} {} -> {}", "blocks in use", counts[0], counts[1]);
            }
        }
        text
    }

    fn heading(&self) -> String {
        let Account { rss_bytes, allocator, jvm, .. } = self.account;
        let ProcessInfo { key, comm, executable } = self.process;
        let mut text =
            format!("memprof: process {} {comm} ({executable}), RSS {}\n", key.tgid, amount(*rss_bytes));
        if let Some(JvmSummary { version, tracking, .. }) = jvm {
            let version = version.as_deref().unwrap_or("version unknown");
            let _ = writeln!(text, "JVM: {version}, native memory tracking {}", tracking.name());
        }
        let name = match (allocator.name, allocator.version) {
            (Some("glibc"), Some(version)) => format!("glibc {version}"),
            (name, _) => name.unwrap_or("unknown").to_owned(),
        };
        let detail = match &allocator.heaps {
            Ok(walk) => {
                let blocks = walk.total.in_use.chunks + walk.mmapped.chunks;
                format!("arenas: {}, blocks in use: {}", walk.arenas.len(), units::count(blocks as f64))
            }
            Err(reason) => format!("heaps not read: {reason}"),
        };
        let _ = writeln!(text, "allocator: {name}, {detail}");
        text
    }

    /// The lines in order, the JVM's small purposes as one, and at last what is not explained.
    fn rows(&self) -> Vec<(String, i64)> {
        let Account { rss_bytes, lines, unexplained_bytes, .. } = self.account;
        let is_small = |owner: Owner, bytes: u64| {
            owner == Owner::MallocOfJvm && (bytes as f64) < *rss_bytes as f64 * SMALL
        };
        let mut rows = Vec::new();
        let mut small = 0;
        for line in lines {
            if is_small(line.owner, line.bytes) {
                small += line.bytes;
                continue;
            }
            if small > 0 && line.owner != Owner::MallocOfJvm {
                rows.push(("malloc by the JVM, other purposes".to_owned(), small.cast_signed()));
                small = 0;
            }
            rows.push((words::name(line, self.account), line.bytes.cast_signed()));
        }
        if small > 0 {
            rows.push(("malloc by the JVM, other purposes".to_owned(), small.cast_signed()));
        }
        rows.push(("unexplained".to_owned(), *unexplained_bytes));
        rows
    }

    fn row(&self, text: &mut String, name: &str, bytes: i64, bars: bool) {
        let rss = self.account.rss_bytes.max(1);
        let size = bytes.unsigned_abs();
        let sign = if bytes < 0 { "-" } else { "" };
        let (value, share) =
            (format!("{sign}{}", amount(size)), format!("{sign}{}", units::percent(size, rss)));
        let bar =
            if bars { "#".repeat((size.saturating_mul(BAR) / rss).min(BAR) as usize) } else { String::new() };
        let _ = writeln!(text, "{}", format!("  {name:<NAME$} {value:>11} {share:>8}  {bar}").trim_end());
    }

    fn limit(&self) -> Option<String> {
        let cgroup = self.cgroup?;
        let used = format!(
            "cgroup {}: {} in use, of which {} are files that can be dropped",
            cgroup.path,
            amount(cgroup.usage_bytes),
            amount(cgroup.inactive_file_bytes)
        );
        Some(match (cgroup.limit_bytes, cgroup.left_bytes()) {
            (Some(limit), Some(left)) => {
                format!("{used}; limit {}: {} left before the OOM killer", amount(limit), amount(left))
            }
            _ => format!("{used}; no limit"),
        })
    }

    /// What would give memory back.
    fn cures(&self) -> Option<String> {
        let forecast = forecast(self.account)?;
        let mut text = format!("malloc_trim would return {} now", amount(forecast.trim_bytes));
        if self.account.jvm.is_some() {
            let _ = write!(text, " (memprof-agent trim -p {})", self.process.key.tgid);
        }
        let _ = write!(text, "; {} more are free and would stay", amount(forecast.stays_bytes));
        if forecast.spare_arenas > 0 {
            let _ = write!(
                text,
                "\nfewer arenas (MALLOC_ARENA_MAX=2, from the next start on) could save up to {}: what {} of the {} \
                 arenas keep free; threads then wait for each other more",
                amount(forecast.spare_arenas_bytes),
                forecast.spare_arenas,
                forecast.spare_arenas + 2
            );
        }
        Some(text)
    }

    /// How well the heaps could be read.
    fn heaps(&self) -> Option<String> {
        let walk = self.account.allocator.heaps.as_ref().ok()?;
        let losses = walk.losses;
        let mut text = Vec::new();
        if losses.derailments > 0 {
            text.push(format!(
                "{} headers of blocks could not be read while the process went on ({} are not told apart)",
                units::count(losses.derailments as f64),
                amount(walk.total.unknown.resident_bytes)
            ));
        }
        if losses.heaps_vanished > 0 {
            text.push(format!("{} heaps were gone before they were read", losses.heaps_vanished));
        }
        if losses.lists_cut > 0 {
            text.push(format!(
                "{} lists of free blocks were cut: their rest counts as in use",
                losses.lists_cut
            ));
        }
        let mmapped = walk.mmapped;
        if let Some(expected) = mmapped.expected_bytes.filter(|&expected| expected != mmapped.bytes) {
            text.push(format!(
                "glibc counts {} in blocks with mappings of their own, {} were found",
                amount(expected),
                amount(mmapped.bytes)
            ));
        }
        (!text.is_empty()).then(|| format!("lost: {}", text.join("; ")))
    }

    /// What cannot be told, and how it could be.
    fn missing(&self) -> Option<String> {
        let mut gaps = self.gaps.to_vec();
        match self.account.jvm.as_ref().map(|jvm| jvm.tracking) {
            Some(Tracking::Off) => gaps.push(
                "native memory tracking is off: the JVM's own blocks are not told from those of native libraries, and \
                 parts of it are shown as other memory; -XX:NativeMemoryTracking=summary or detail at the next start \
                 tells"
                    .to_owned(),
            ),
            Some(Tracking::Summary) => gaps.push(
                "native memory tracking has no details: parts of the JVM are shown as other memory; \
                 -XX:NativeMemoryTracking=detail at the next start tells"
                    .to_owned(),
            ),
            _ => {}
        }
        (!gaps.is_empty())
            .then(|| gaps.iter().map(|gap| format!("not known: {gap}")).collect::<Vec<_>>().join("\n"))
    }
}

/// Bytes as people read them.
fn amount(bytes: u64) -> String {
    units::bytes(bytes as f64)
}

fn beside_rss(beside: &Beside) -> Option<String> {
    let mut parts = vec![format!("page tables {}", amount(beside.page_table_bytes))];
    let more = [
        ("swapped out", beside.swap_bytes),
        ("huge pages (hugetlbfs), shared", beside.hugetlb_shared_bytes),
        ("huge pages (hugetlbfs)", beside.hugetlb_private_bytes),
    ];
    parts.extend(
        more.iter().filter(|(_, bytes)| *bytes > 0).map(|(name, bytes)| format!("{name} {}", amount(*bytes))),
    );
    let mut text = format!(
        "beside the RSS: {}; shared pages divided (Pss): {}",
        parts.join(", "),
        amount(beside.pss_bytes)
    );
    if beside.transparent_huge_bytes > 0 {
        let _ = write!(text, "; in transparent huge pages: {}", amount(beside.transparent_huge_bytes));
    }
    Some(text)
}

fn evidence(movement: &Movement) -> String {
    let Movement { name, first_bytes, last_bytes, trend, bytes_per_second } = movement;
    let mut text = format!("{name:<NAME$} {} -> {}", amount(*first_bytes), amount(*last_bytes));
    if let Some(trend) = trend {
        let _ = write!(text, ", {trend}");
    }
    if let Some(rate) = bytes_per_second {
        let _ = write!(text, " {}/s", amount(rate.abs() as u64));
    }
    text
}

#[cfg(test)]
mod tests;
