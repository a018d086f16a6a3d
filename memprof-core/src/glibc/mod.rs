//! glibc's malloc, read from outside: what it has handed out and what it has been given back but keeps.
//!
//! No symbols are needed, and the target is not stopped. The layout is proved by the data: arenas by the ring of
//! their `next` pointers, bins by the pointers back to them (`malloc/malloc.c`, `malloc/arena.c` of glibc 2.17 to
//! 2.42).
//!
//! ```text
//! heap of a thread's arena, at a multiple of 64 MiB           main arena: [heap] (brk)
//! ┌───────────┬──────────────┬───────┬──────┬───────┬─────┐   ┌───────┬──────┬───────┬─────┐
//! │ heap_info │ malloc_state │ chunk │ free │ chunk │ top │   │ chunk │ free │ chunk │ top │
//! └───────────┴──────────────┴───────┴──────┴───────┴─────┘   └───────┴──────┴───────┴─────┘
//!   ar_ptr ──────▲   next ──► the next arena … ──► main_arena (in libc's data) ──► back
//!
//! chunk: prev_size (only if the chunk before is free) | size, flags: 1 PREV_INUSE, 2 IS_MMAPPED, 4 NON_MAIN_ARENA
//! ```
//! Whether a chunk is in use says the `PREV_INUSE` of the chunk behind it. Chunks in a thread's cache or a fastbin
//! look in use; they are told by following these lists.

mod arenas;
mod caches;
mod heap;
mod layout;
mod mmapped;
mod version;
mod walk;
mod window;

pub use mmapped::MmappedChunks;
pub use version::{MAX_VERSION_BYTES, Version, other_allocator, read_only_data, version};
pub use walk::{Arena, HeapArea, NoWalk, Surroundings, Use, Walk, WalkLosses, walk};
