//! What the system calls that change memory maps do to a session.
//!
//! ```text
//!  Unmap    ─► ranges taken out of the address space, kept aside by thread
//!  Unmapped ─► forgotten, or put back when the call failed
//!  Map      ─► unwind ─► site ─► new range; what mremap had taken gets its new place
//!  Protect  ─► ranges become usable or reserved
//! ```
//! A map call at whose stack an allocator's code stands is the allocator's own: its bytes are those of blocks
//! that are counted already, so its site is left out of profiles. It is tracked like any other, because its
//! ranges may give way to others' (and because the allocator may become known only later).

use memprof_common::event::{EventHeader, MapCall, MapEvent, RangeEvent};
use memprof_common::sampling::CERTAIN;
use rustc_hash::FxHashSet;

use super::Session;
use super::allocators::AllocatorCode;
use crate::estimate::Estimate;
use crate::live::{ProcessIndex, SiteId};
use crate::mapped::{AddressSpace, Call, Mapped, PAGE, Range, Taken, align_up, page_end};
use crate::unwind::StackEnd;

/// `PROT_READ | PROT_WRITE | PROT_EXEC`: without any of them memory cannot be used.
const ACCESS: u64 = 7;
/// `MAP_HUGETLB`: the length is rounded up to large pages.
const MAP_HUGETLB: u32 = 0x40000;
/// Where the flags of `mmap` hold the logarithm of the large pages' size (6 bits; 0 = default).
const MAP_HUGE_SHIFT: u32 = 26;
/// Large pages of x86-64 unless told otherwise: 2 MiB.
const HUGE_PAGE: u64 = 2 << 20;
/// `MREMAP_DONTUNMAP`
const MREMAP_DONTUNMAP: u32 = 4;

/// Memory maps of a session.
#[derive(Debug, Default)]
pub(super) struct Maps {
    /// Which call mapped what.
    pub(super) mapped: Mapped,
    /// The sites of map calls.
    pub(super) sites: FxHashSet<SiteId>,
    /// Whose map calls are no direct ones.
    pub(super) allocators: AllocatorCode,
}

/// Where a map call was made.
struct Place {
    process: ProcessIndex,
    end: StackEnd,
    time: u64,
}

impl Session {
    /// A call whose stack is in `stack` has mapped memory.
    pub(super) fn map(&mut self, call: MapCall, event: &MapEvent, process: ProcessIndex, end: StackEnd) {
        self.advance(event.header.time);
        let place = Place { process, end, time: event.header.time };
        match call {
            MapCall::Mremap => self.mremap(&place, event),
            MapCall::Brk => self.brk(&place, event),
            _ => {
                let unit = if event.flags & MAP_HUGETLB == 0 { PAGE } else { huge_page(event.flags) };
                let end = event.address.saturating_add(align_up(event.length, unit));
                let usable = u64::from(event.protection) & ACCESS != 0;
                self.add_range(&place, event.address, end, usable);
            }
        }
    }

    fn mremap(&mut self, place: &Place, event: &MapEvent) {
        let &MapEvent { address, length, old_address, old_length, .. } = event;
        let end = page_end(address, length);
        let moves = old_length != 0 && event.flags & MREMAP_DONTUNMAP == 0;
        let space = self.maps.mapped.space(place.process);
        let taken = match space.settle(event.header.tid) {
            Some(taken) => taken.ranges,
            // The beginning of the call was not seen.
            None if moves => space.cut(old_address, page_end(old_address, old_length)),
            None => Vec::new(),
        };
        space.cut(address, end);
        let moved: Vec<(u64, Range)> = taken
            .iter()
            .map(|&(start, range)| {
                let to = |at: u64| at.wrapping_sub(old_address).wrapping_add(address);
                (to(start), Range { end: to(range.end).min(end), ..range })
            })
            .collect();
        space.put_back(moved);
        let usable = taken.last().is_none_or(|(_, range)| range.usable);
        let new_from = if moves { page_end(address, old_length) } else { address };
        self.add_range(place, new_from, end, usable);
    }

    fn brk(&mut self, place: &Place, event: &MapEvent) {
        // Without the break before the call nothing can be said.
        let taken = self.maps.mapped.space(place.process).settle(event.header.tid);
        if let Some(Taken { from, .. }) = taken {
            self.add_range(place, align_up(from, PAGE), align_up(event.address, PAGE), true);
        }
    }

    /// A call whose stack is in `stack` has mapped `start..end`, if that is anything.
    fn add_range(&mut self, place: &Place, start: u64, end: u64, usable: bool) {
        if start >= end {
            return;
        }
        self.count_end(place.end);
        if !self.sites.has_room(place.process, self.stack.frames())
            && self.maps.allocators.runs_through(self.stack.frames(), self.table.modules())
        {
            // Without its stack nobody could tell later that it is the allocator's own and not to be counted.
            drop(self.maps.mapped.space(place.process).cut(start, end));
            self.quality.losses.stacks_lost += 1;
            return;
        }
        let bytes = if usable { end - start } else { 0 };
        let (site, lost) = self.sites.add(place.process, &self.stack, Estimate::of_block(bytes, CERTAIN));
        self.quality.losses.stacks_lost += u64::from(lost);
        self.maps.sites.insert(site);
        match self.maps.mapped.call(site, place.time) {
            Some(call) => self.maps.mapped.space(place.process).map(start, end, call, usable),
            None => {
                self.quality.losses.maps_not_tracked += 1;
                self.maps.mapped.space(place.process).cut(start, end);
            }
        }
    }

    /// The address space that an event of this time changes; that of a process that is not watched is counted.
    fn changing_space(&mut self, header: &EventHeader) -> Option<&mut AddressSpace> {
        let Some(process) = self.watched.running(header.tgid) else {
            self.quality.losses.foreign_events += 1;
            return None;
        };
        self.advance(header.time);
        Some(self.maps.mapped.space(process))
    }

    pub(super) fn unmap(&mut self, call: MapCall, event: &RangeEvent) {
        let &RangeEvent { header, address, length, .. } = event;
        let Some(space) = self.changing_space(&header) else { return };
        match call {
            MapCall::Brk => space.take_break(header.tid, address, address.wrapping_add(length)),
            // The kernel refuses such addresses.
            _ if address % PAGE != 0 => space.take(header.tid, address, address, false),
            _ => {
                let moving = call == MapCall::Mremap;
                space.take(header.tid, address, page_end(address, length), moving);
            }
        }
    }

    pub(super) fn unmapped(&mut self, event: &RangeEvent) {
        let &RangeEvent { header, address, length, argument } = event;
        let Some(space) = self.changing_space(&header) else { return };
        match (space.settle(header.tid), argument == 0) {
            (Some(taken), false) => space.put_back(taken.ranges),
            (None, true) => drop(space.cut(address, page_end(address, length))),
            (Some(_), true) | (None, false) => {}
        }
    }

    pub(super) fn protect(&mut self, event: &RangeEvent) {
        let &RangeEvent { header, address, length, argument } = event;
        let Some(space) = self.changing_space(&header) else { return };
        let usable = argument & ACCESS != 0;
        for (Call { site, .. }, bytes) in space.protect(address, page_end(address, length), usable) {
            self.sites.add_bytes(site, bytes);
        }
    }

    /// The sites of map calls that an allocator made for the blocks that it hands out.
    pub(super) fn allocators_own(&self) -> FxHashSet<SiteId> {
        let stacks = (0..).map(SiteId).zip(self.sites.iter());
        stacks
            .filter(|(site, _)| self.maps.sites.contains(site))
            .filter(|(_, (_, stack, _))| self.maps.allocators.runs_through(stack, self.table.modules()))
            .map(|(site, _)| site)
            .collect()
    }
}

fn huge_page(flags: u32) -> u64 {
    match flags >> MAP_HUGE_SHIFT & 0x3f {
        0 => HUGE_PAGE,
        logarithm => 1 << logarithm,
    }
}
