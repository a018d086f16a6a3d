//! The kernel side as seen from user space: loading the probes, attaching them, reading their maps.

pub(crate) mod attach;
pub(crate) mod calibrate;
pub(crate) mod counters;
pub(crate) mod kernel_side;
pub(crate) mod live_table;
pub(crate) mod own_code;
pub(crate) mod programs;
pub(crate) mod rate;
pub(crate) mod raw;
pub(crate) mod settings;
pub(crate) mod sites;
