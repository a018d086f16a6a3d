//! Where to put probes: which functions an allocator has, where they are in its file, and at which of
//! their instructions the kernel can take a probe cheaply and safely.

pub mod allocators;
pub mod elf;
pub mod functions;
pub mod placement;
pub mod reach;
