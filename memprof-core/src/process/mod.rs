//! Processes as the core sees them: files mapped as code, where they are mapped, and who they belong to.

pub mod cfi;
mod elf;
pub mod jvm;
pub mod mappings;
pub mod module;
pub mod smaps;
pub mod table;
