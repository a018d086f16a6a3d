//! What the program says about its blocks: how many of each size, and the Java frames that led to them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A Java frame: class and method with what differs between copies of a class left out, and the line.
pub(crate) type JavaFrame = (String, u32);

/// Truth about all blocks, by their size.
pub(crate) struct Ledger(HashMap<u64, Chain>);

/// Truth about the blocks of one size.
pub(crate) struct Chain {
    /// How many there were.
    pub(crate) blocks: u64,
    /// The program's own frames, innermost first.
    pub(crate) frames: Vec<JavaFrame>,
}

impl Ledger {
    /// Reads `truth.tsv`.
    pub(crate) fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("cannot read {file:?}: {error}"));
        Self(
            text.lines()
                .map(|line| chain(line).unwrap_or_else(|| panic!("a strange line {line:?}")))
                .collect(),
        )
    }

    /// What is true of blocks with this many bytes.
    pub(crate) fn chain(&self, size: u64) -> Option<&Chain> {
        self.0.get(&size)
    }

    /// What is true of the blocks of each size.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.0.values()
    }

    /// Sum over all sizes.
    pub(crate) fn blocks(&self) -> u64 {
        self.0.values().map(|chain| chain.blocks).sum()
    }
}

/// `SIZE BLOCKS FRAME…`, separated by tabs; a frame is `class.method:line`.
fn chain(line: &str) -> Option<(u64, Chain)> {
    let mut fields = line.split('\t');
    let size: u64 = fields.next()?.parse().ok()?;
    let blocks = fields.next()?.parse().ok()?;
    let mut frames = Vec::new();
    // The program measures its path where it could allocate as well; what it calls to allocate comes on top.
    if size / 8 % 2 == 1 {
        frames.push(("Truth.block".to_owned(), 0));
    }
    for field in fields {
        let (method, line) = field.rsplit_once(':')?;
        // Generated code has no lines: -1.
        frames.extend(own_frame(method, line.parse().unwrap_or(0)));
    }
    Some((size, Chain { blocks, frames }))
}

/// A frame of the program's own classes; others depend on the version of Java.
///
/// Copies of generated classes are named `Truth$$Lambda/0x1234`, `Truth$$Lambda$5/0x1234`, or with a plus sign:
/// their frames, which have no lines, are compared by what is before.
pub(crate) fn own_frame(method: &str, line: u32) -> Option<JavaFrame> {
    if !method.starts_with("Truth") {
        return None;
    }
    let (class, name) = method.rsplit_once('.')?;
    if let Some((outer, _)) = class.split_once("$$Lambda") {
        return Some((format!("{outer}$$Lambda.{name}"), 0));
    }
    let class = class.split(['/', '+']).next()?;
    // The program measures its path and allocates on different lines of these two.
    let line = if class == "TruthChain" && (name == "use" || name == "finish") { 0 } else { line };
    Some((format!("{class}.{name}"), line))
}
