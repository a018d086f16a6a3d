//! The table: the largest sites in use as text for a terminal.

use std::fmt::Write;

use super::frame_name::{NamedFrame, Names, end_words, file_name};
use super::{summary, units};
use crate::profile::{AGE_BANDS, Profile, Site, ValueKind};
use crate::symbols::Symbols;

/// Most functions shown of one stack.
const FRAMES: usize = 6;

/// Functions that hand out memory on behalf of their caller; naming them helps nobody.
const ALLOCATORS: [&str; 17] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "os::malloc",
];

/// The profile's totals, coverage and losses, then its `top` largest sites in use.
#[must_use]
pub fn encode(profile: &Profile, symbols: &Symbols, top: usize) -> String {
    let mut text = format!(
        "memprof: {}, {}, {}\n",
        summary::processes(profile),
        units::duration(profile.duration()),
        summary::sampling(profile)
    );
    for line in summary::lines(profile) {
        text.push_str(&line);
        text.push('\n');
    }
    if let Some(reason) = summary::why_empty(profile, ValueKind::InuseSpace) {
        text.push_str(&format!("\nNothing to show: {reason}.\n"));
        return text;
    }
    let names = Names::new(profile, symbols);
    let in_use: Vec<&Site> = profile.sites.iter().filter(|site| site.in_use.samples > 0).collect();
    for (rank, site) in (1..).zip(in_use.iter().take(top)) {
        write_site(&mut text, profile, names, rank, site);
    }
    if in_use.len() > top {
        let rest: f64 = in_use[top..].iter().map(|site| site.in_use.bytes).sum();
        let sites = in_use.len() - top;
        text.push_str(&format!(
            "\n{} in {sites} more {}\n",
            units::bytes(rest),
            if sites == 1 { "site" } else { "sites" }
        ));
    }
    text
}

fn write_site(text: &mut String, profile: &Profile, names: Names<'_>, rank: usize, site: &Site) {
    let oldest = units::duration(site.ages.map_or(0, |ages| ages.oldest));
    let movement = movement(site);
    let head = format!("\n#{rank:<3} {}, oldest {oldest}{movement}", summary::estimate(&site.in_use));
    text.push_str(&head);
    if profile.processes.len() > 1 {
        text.push_str(&format!(", {}", summary::process(profile.process(site))));
    }
    text.push('\n');
    if let Some(ages) = ages_by_band(site) {
        writeln!(text, "     by age: {ages}").expect("a string takes all text");
    }
    let all: Vec<NamedFrame<'_>> = names.site(site).collect();
    let callers = all.iter().position(|frame| !is_allocator(frame)).unwrap_or(0);
    let shown = &all[callers..];
    for (i, frame) in shown.iter().take(FRAMES).enumerate() {
        let arrow = if i == 0 { "" } else { "← " };
        writeln!(text, "     {arrow}{frame}{}", place(frame)).expect("a string takes all text");
    }
    if shown.len() > FRAMES {
        let more = shown.len() - FRAMES;
        writeln!(text, "     ← {more} more, {}", end_words(&site.stack)).expect("a string takes all text");
    }
}

/// How the bytes in use move, where that is known: `, growing 1.5 MiB/s`.
fn movement(site: &Site) -> String {
    let mut text = String::new();
    if let Some(trend) = site.trend {
        text += &format!(", {}", trend.name());
        if let Some(rate) = trend.bytes_per_second() {
            text += &format!(" {}/s", units::bytes(rate.abs()));
        }
    }
    if let Some(growth) = site.growth {
        let sign = if growth < 0.0 { "-" } else { "+" };
        text += &format!(", {sign}{} since the moment asked for", units::bytes(growth.abs()));
    }
    text
}

/// The bytes in use by age, where they are of several: `1.0 MiB <10 s, 3.0 MiB older`.
fn ages_by_band(site: &Site) -> Option<String> {
    const NAMES: [&str; AGE_BANDS] = ["under 10 s", "under 1 min", "under 10 min", "older"];
    let bands: Vec<String> = NAMES
        .iter()
        .zip(site.ages?.bands)
        .filter(|(_, band)| band.samples > 0)
        .map(|(name, band)| format!("{} {name}", units::bytes(band.bytes)))
        .collect();
    (bands.len() > 1).then(|| bands.join(", "))
}

fn is_allocator(frame: &NamedFrame<'_>) -> bool {
    frame
        .function
        .as_deref()
        .is_some_and(|name| ALLOCATORS.contains(&name) || name.starts_with("operator new"))
}

/// Where a named function is: its source line, or its module.
fn place(frame: &NamedFrame<'_>) -> String {
    match (&frame.function, frame.file, frame.line, frame.module) {
        (None, ..) => String::new(),
        (_, Some(file), Some(line), _) => format!(" ({}:{line})", file_name(file)),
        (_, Some(file), None, _) => format!(" ({})", file_name(file)),
        (_, None, _, Some(module)) => format!(" ({})", file_name(module)),
        (_, None, _, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::sample;
    use crate::estimate::Estimate;

    #[test]
    fn shows_the_largest_sites() {
        let (mut profile, symbols) = sample::profile();
        let text = encode(&profile, &symbols, 10);
        let sites = text.split_once("not included.\n").unwrap().1;
        assert_eq!(
            sites,
            "\n\
             #1   4.1 KiB ± 6.8 KiB in 5 ± 7 blocks, oldest 2.5 s, leak (pid 12)\n     \
             push (vec.rs:10)\n     \
             ← grow;[u8; 4] (leak.rs:20)\n     \
             ← main (leak.rs:40)\n\
             \n\
             #2   1000 B in 1 block, oldest 2.5 s, other (pid 13)\n     \
             lib one.so+0x2ff\n     \
             ← [truncated: snapshot limit]\n"
        );
        assert!(!text.contains("lost:"));
        assert!(encode(&profile, &symbols, 1).ends_with("\n1000 B in 1 more site\n"));
        profile.losses.foreign_events = 2;
        assert!(encode(&profile, &symbols, 1).contains("\nlost: 2 events came from processes"));
    }

    #[test]
    fn java_frames_look_like_native_ones() {
        let (profile, symbols) = sample::java();
        let text = encode(&profile, &symbols, 10);
        let sites = text.split_once("not included.\n").unwrap().1;
        assert_eq!(
            sites,
            "\n\
             #1   4.0 KiB in 1 block, oldest 2.5 s, leak (pid 12)\n     \
             deflateInit_ (lib one.so)\n     \
             ← a.Leak.<init> (Leak.java:7)\n     \
             ← a.Leak.grow (Leak.java:30)\n     \
             ← call_stub\n     \
             ← main (leak.rs:40)\n\
             \n\
             #2   64 B in 1 block, oldest 2.5 s, leak (pid 12)\n     \
             deflateInit_ (lib one.so)\n     \
             ← a.Leak.grow (Leak.java)\n     \
             ← call_stub\n     \
             ← main (leak.rs:40)\n"
        );
    }

    #[test]
    fn an_empty_table_says_why() {
        let (mut profile, symbols) = sample::profile();
        for site in &mut profile.sites {
            site.in_use = Estimate::default();
        }
        assert!(encode(&profile, &symbols, 10).contains("\nNothing to show: none of the 4 sampled"));
    }
}
