//! This machine: its kernel, its processes, the files they map, and what this program may do.

pub(crate) mod allocators;
pub(crate) mod btf;
pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod credentials;
pub(crate) mod jvm_attach;
pub(crate) mod kernel;
pub(crate) mod memory_limits;
pub(crate) mod module_file;
pub(crate) mod pagemap;
pub(crate) mod proc_fs;
pub(crate) mod process_memory;
pub(crate) mod seccomp;
