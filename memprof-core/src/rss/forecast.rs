//! What each cure would give back.

use serde::Serialize;

use super::{Account, Owner};

/// Arenas that the usual advice leaves (`MALLOC_ARENA_MAX=2`).
const FEW_ARENAS: usize = 2;

/// What could come back of the memory that glibc keeps. Amounts are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// `malloc_trim` would return so much now: whole pages of free chunks, and the end of the main arena.
    pub trim_bytes: u64,
    /// Free, and `malloc_trim` would not return it: ends of threads' arenas, partly used pages, caches.
    pub stays_bytes: u64,
    /// What all arenas but the two largest keep free. With fewer arenas other threads could use it: an upper bound
    /// for what `MALLOC_ARENA_MAX=2` saves after a restart, for threads will then free and allocate in other places.
    pub spare_arenas_bytes: u64,
    /// How many arenas these are.
    pub spare_arenas: u64,
}

/// The forecast; none where glibc's heaps could not be read.
#[must_use]
pub fn forecast(account: &Account) -> Option<Forecast> {
    let walk = account.allocator.heaps.as_ref().ok()?;
    let mut arenas: Vec<_> = walk.arenas.iter().filter(|arena| arena.system_bytes > 0).collect();
    arenas.sort_by_key(|arena| std::cmp::Reverse(arena.resident_bytes()));
    let spare = arenas.get(FEW_ARENAS..).unwrap_or_default();
    let trim_bytes = account.bytes(Owner::Trimmable);
    Some(Forecast {
        trim_bytes,
        stays_bytes: account.retained() - trim_bytes,
        spare_arenas_bytes: spare
            .iter()
            .map(|arena| arena.free.resident_bytes + arena.top.resident_bytes + arena.fast.resident_bytes)
            .sum(),
        spare_arenas: spare.len() as u64,
    })
}
