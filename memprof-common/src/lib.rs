//! What the kernel probes (`memprof-ebpf`) and user space must agree on: event layouts, counters,
//! settings, sampling arithmetic and limits. It depends on nothing and allocates nothing.
#![no_std]

pub mod counter;
pub mod event;
pub mod function;
pub mod live;
pub mod sampling;
pub mod settings;
