//! Which pages of a process are in memory.

use crate::address::Avma;

/// Bytes of a page. Other sizes exist on other architectures; memprof runs on x86-64.
pub const PAGE: u64 = 4096;

/// Where the state of pages comes from: a running system, or a recording.
pub trait PageSource {
    /// The state of the pages from `start`, a page's address, on: one value per page of `pages`. Pages of which
    /// nothing can be learnt are absent.
    fn pages(&mut self, start: Avma, pages: &mut [PageState]);
}

/// Where a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageState {
    /// Nowhere: it has not been touched, has been given back, or reads as the kernel's page of zeros.
    #[default]
    Absent,
    /// In memory.
    Resident,
    /// Swapped out. Reading it would bring it back, so it is never read.
    Swapped,
}

/// The first address of the page that holds `address`.
#[must_use]
pub fn page_start(address: Avma) -> Avma {
    address & !(PAGE - 1)
}

/// The first page boundary at or after `address`, if there is one.
#[must_use]
pub fn page_end(address: Avma) -> Option<Avma> {
    address.checked_add(PAGE - 1).map(page_start)
}
