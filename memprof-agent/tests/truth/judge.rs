//! Whether the stacks of a report are the true ones.

use std::ops::AddAssign;

use super::ledger::{Chain, JavaFrame, Ledger, own_frame};
use crate::support::report::{Report, Site};

/// How unwinding ends for virtual threads that have waited.
const FROZEN: &str = "[frozen frames of the virtual thread]";

/// Java frames above [`Chain::frames`] where memory comes from `Unsafe`, innermost first.
const UNSAFE: [&str; 3] = [
    "jdk.internal.misc.Unsafe.allocateMemory0",
    "jdk.internal.misc.Unsafe.allocateMemory",
    "sun.misc.Unsafe.allocateMemory",
];

/// Stacks by how true they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    /// Complete and right in each frame and line.
    pub(crate) right: u64,
    /// Right down to the frames that were not on the stack, and said so.
    pub(crate) frozen: u64,
    /// Right as far as they go, and said to be cut off.
    pub(crate) marked: u64,
    /// Anything else.
    pub(crate) wrong: u64,
    /// Blocks that are in no stack.
    pub(crate) missing: u64,
}

impl AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.right += other.right;
        self.frozen += other.frozen;
        self.marked += other.marked;
        self.wrong += other.wrong;
        self.missing += other.missing;
    }
}

/// The score of a report, and what is wrong with the first few wrong stacks.
pub(crate) fn judge(report: &Report, ledger: &Ledger) -> (Score, Vec<String>) {
    let mut score = Score::default();
    let mut faults = Vec::new();
    let mut seen = 0;
    for site in report.sites() {
        let size = site.sum.alloc_bytes / site.sum.alloc_objects;
        let chain = ledger.chain(size as u64).filter(|_| size.fract() == 0.0);
        if !is_of_program(&site, chain) {
            continue;
        }
        seen += site.samples;
        let is_cut = site.end != "complete";
        if is_cut || is_frozen(&site) {
            match beginning_verdict(&site, chain, ledger) {
                Ok(()) if is_cut => {
                    score.marked += site.samples;
                    faults.push(format!("{} of {}: {}", site.end, site.samples, text(&site)));
                }
                Ok(()) => score.frozen += site.samples,
                Err(why) => {
                    score.wrong += site.samples;
                    faults.push(format!("WRONG: {why}\n{}", text(&site)));
                }
            }
            continue;
        }
        let Some(chain) = chain else {
            score.wrong += site.samples;
            faults.push(format!("blocks of several stacks in one: {}", text(&site)));
            continue;
        };
        let size = size as u64;
        match verdict(&site, size, chain) {
            Ok(()) => score.right += site.samples,
            Err(why) => {
                score.wrong += site.samples;
                faults.push(format!("WRONG: {why}\n{}\nshould be {:#?}", text(&site), chain.frames));
            }
        }
    }
    score.missing = ledger.blocks().saturating_sub(seen);
    (score, faults)
}

/// Whether a site's blocks are the program's: by its native function, or where `Unsafe` was called by the
/// program's own method for that; of a stack that is cut off, by the blocks' size. The JVM and the class library
/// allocate for the program, too: also at the very call of `Unsafe`, where the JVM may compile that method. Such
/// blocks have no size of the program's; taking one of its blocks for them would leave that one missing.
fn is_of_program(site: &Site, chain: Option<&Chain>) -> bool {
    let names = site.names();
    let is_cut = site.end != "complete";
    let of_arena = || names.iter().any(|name| name.starts_with("Arena::") || name.starts_with("Chunk"));
    if is_cut && chain.is_some() && !of_arena() {
        return true;
    }
    let mut java = site.frames.iter().filter(|frame| frame.is_java());
    let is_allocating = java.next().is_some_and(|frame| frame.function.as_deref() == Some(UNSAFE[0]));
    let own = site.frames.iter().find_map(own);
    let through_unsafe = is_allocating
        && names.contains(&UNSAFE[2])
        && (chain.is_some() || is_cut || is_frozen(site))
        && own.is_none_or(|(method, _)| method.starts_with("TruthChain."));
    names.get(1) == Some(&"truth_block") || through_unsafe
}

fn is_frozen(site: &Site) -> bool {
    site.frames.iter().any(|frame| frame.function.as_deref() == Some(FROZEN))
}

/// Of a stack that is cut off, or whose frames are not all on the stack, there may be one for several of the
/// program's: what is there must be the beginning of one of them.
fn beginning_verdict(site: &Site, chain: Option<&Chain>, ledger: &Ledger) -> Result<(), String> {
    let found: Vec<JavaFrame> = site.frames.iter().filter_map(own).collect();
    if found.is_empty() && is_frozen(site) {
        return Err("no frame before the frozen ones".into());
    }
    let begins = |chain: &Chain| chain.frames.starts_with(&found);
    let is_beginning = match chain.filter(|_| site.samples == 1) {
        // One block's size says which one it is.
        Some(chain) => begins(chain),
        None => ledger.chains().any(begins),
    };
    if is_beginning { Ok(()) } else { Err(format!("no stack of the program begins with {found:?}")) }
}

fn own(frame: &crate::support::report::Frame) -> Option<JavaFrame> {
    own_frame(frame.function.as_deref()?, frame.line.unwrap_or(0)).filter(|_| frame.is_java())
}

fn verdict(site: &Site, size: u64, chain: &Chain) -> Result<(), String> {
    let found: Vec<JavaFrame> = site.frames.iter().filter_map(own).collect();
    if (size / 8).is_multiple_of(2) {
        let java = site.frames.iter().filter(|frame| frame.is_java());
        let names: Vec<_> = java.filter_map(|frame| frame.function.as_deref()).take(UNSAFE.len()).collect();
        if names != UNSAFE {
            return Err(format!("the innermost Java frames are {names:?}"));
        }
    }
    if let Some(at) = (0..found.len()).find(|&at| chain.frames.get(at) != Some(&found[at])) {
        let there = &chain.frames.get(at);
        return Err(format!("own frame {at} is {:?} instead of {there:?}", found[at]));
    }
    if found.len() != chain.frames.len() {
        return Err(format!("only {} of {} own frames, and no mark", found.len(), chain.frames.len()));
    }
    Ok(())
}

/// The stack as a person reads it.
fn text(site: &Site) -> String {
    let frames = site.frames.iter().map(|frame| {
        let name = frame.function.as_deref().unwrap_or("?");
        let line = frame.line.map_or(String::new(), |line| format!(":{line}"));
        format!("    {name}{line} {}\n", frame.kinds.join(", "))
    });
    format!(
        "{} blocks of {} bytes, end {}:\n{}",
        site.samples,
        site.sum.alloc_bytes / site.sum.alloc_objects,
        site.end,
        frames.collect::<String>()
    )
}
