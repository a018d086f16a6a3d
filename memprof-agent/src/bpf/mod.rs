//! The kernel side as seen from user space: loading the probes, attaching them, reading their maps.

pub(crate) mod attach;
pub(crate) mod kernel_side;
pub(crate) mod raw;
pub(crate) mod sites;
