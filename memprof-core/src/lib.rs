//! The pure core of memprof: bytes, registers and texts in, profiles out.
//!
//! Nothing here opens a file, reads a clock or draws a random number. Everything the core knows
//! arrives as an [`input::Input`], so a live run and the replay of a recording take the same path and
//! give the same output.
//!
//! ```text
//! Input ─► session ─┬─ process (mappings, modules)
//!                   ├─ decode ─► unwind ─► stack (interned) ─► live table
//!                   └─ snapshot ─► profile ─┬─ symbols (asked for, supplied) ─► encode
//! ```
//!
//! Beside it stands the account of a whole RSS, which needs no probes:
//!
//! ```text
//! pages ─► glibc (heap walk) ─┐
//! jvm (NMT, areas) ───────────┼─► rss (owner of each page, waterfall) ─► encode::explain
//! process (mappings, smaps) ──┘
//! ```
#![forbid(unsafe_code)]

pub mod address;
pub mod decode;
pub mod encode;
pub mod estimate;
pub mod figures;
pub mod glibc;
pub mod input;
pub mod java;
pub mod jvm;
pub mod live;
pub mod mapped;
pub mod memory;
pub mod pages;
pub mod probe;
pub mod process;
pub mod profile;
pub mod recording;
pub mod rss;
pub mod run_event;
pub mod session;
pub mod stack;
pub mod symbols;
pub mod threads;
pub mod trend;
pub mod unwind;
pub mod value_kind;
