//! Encoders: a profile and its names in, a file's bytes out. All output is deterministic.

pub mod coverage;
pub mod explain;
pub mod figures;
pub mod flamegraph;
pub mod folded;
pub mod frame_name;
pub mod losses;
pub mod pprof;
pub mod report;
pub mod summary;
pub mod table;
pub mod units;

#[cfg(test)]
mod sample;
