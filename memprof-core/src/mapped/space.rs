//! One address space: ranges by address.

use std::collections::BTreeMap;

use super::{Call, PAGE, align_up};

/// A run of whole pages of one call that are alike. Its start is its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// One past its last byte.
    pub end: u64,
    /// Whose it is.
    pub call: Call,
    /// Whether it can be accessed at all.
    pub usable: bool,
}

/// Ranges that a call in progress has taken out, by ascending start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Start and range.
    pub ranges: Vec<(u64, Range)>,
    /// Where the call began to take: of `brk`, the program break before it.
    pub from: u64,
    /// Whether they only wait for their new place (`mremap`), and so are in use all the time.
    pub moving: bool,
}

/// What is known of one address space.
#[derive(Debug, Default)]
pub struct AddressSpace {
    /// Without overlaps. Neighbours differ, or they would be one range.
    ranges: BTreeMap<u64, Range>,
    /// What calls in progress have taken out, by thread: at most one entry per thread.
    taken: BTreeMap<u32, Taken>,
}

impl AddressSpace {
    /// A call has mapped `start..end`: what was there is gone.
    pub fn map(&mut self, start: u64, end: u64, call: Call, usable: bool) {
        self.cut(start, end);
        self.put(start, Range { end, call, usable });
    }

    /// Takes everything in `start..end` out.
    pub fn cut(&mut self, start: u64, end: u64) -> Vec<(u64, Range)> {
        if start >= end {
            return Vec::new();
        }
        self.split(start);
        self.split(end);
        let cut: Vec<(u64, Range)> = self.ranges.range(start..end).map(|(&at, &range)| (at, range)).collect();
        for (start, _) in &cut {
            self.ranges.remove(start);
        }
        cut
    }

    /// A thread's call takes `start..end` out for now. What another call of the same thread had taken is gone.
    pub fn take(&mut self, thread: u32, start: u64, end: u64, moving: bool) {
        let ranges = self.cut(start, end);
        self.taken.insert(thread, Taken { ranges, from: start, moving });
    }

    /// A thread wants to change the program break, which is `now`: takes out what is beyond `wanted`.
    pub fn take_break(&mut self, thread: u32, now: u64, wanted: u64) {
        let ranges = self.cut(align_up(wanted, PAGE), align_up(now, PAGE));
        self.taken.insert(thread, Taken { ranges, from: now, moving: false });
    }

    /// The thread's call has come to its end: what it had taken, if its beginning was seen.
    pub fn settle(&mut self, thread: u32) -> Option<Taken> {
        self.taken.remove(&thread)
    }

    /// Puts ranges back, but only where nothing is by now.
    pub fn put_back(&mut self, ranges: Vec<(u64, Range)>) {
        for (start, range) in ranges {
            for (start, end) in self.gaps(start, range.end) {
                self.put(start, Range { end, ..range });
            }
        }
    }

    /// Changes whether `start..end` is usable. Returns the calls whose bytes became so, with how many.
    pub fn protect(&mut self, start: u64, end: u64, usable: bool) -> Vec<(Call, u64)> {
        let mut changed = Vec::new();
        for (start, range) in self.cut(start, end) {
            if usable && !range.usable {
                changed.push((range.call, range.end - start));
            }
            self.put(start, Range { usable, ..range });
        }
        changed
    }

    /// The range that holds `address`.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<Range> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then_some(*range)
    }

    /// All ranges by address.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, Range)> {
        self.ranges.iter().map(|(&start, &range)| (start, range))
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Call and length of every usable range, those that are on the move included.
    pub(super) fn usable(&self) -> impl Iterator<Item = (Call, u64)> {
        let moving =
            self.taken.values().filter(|taken| taken.moving).flat_map(|taken| &taken.ranges).copied();
        let all = self.ranges().chain(moving);
        all.filter(|(_, range)| range.usable).map(|(start, range)| (range.call, range.end - start))
    }

    /// Makes `address` a boundary.
    fn split(&mut self, address: u64) {
        if let Some((_, range)) = self.ranges.range_mut(..address).next_back()
            && address < range.end
        {
            let upper = *range;
            range.end = address;
            self.ranges.insert(address, upper);
        }
    }

    /// Adds a range where nothing is, and joins it with neighbours that are alike.
    fn put(&mut self, mut start: u64, mut range: Range) {
        if start >= range.end {
            return;
        }
        let alike = |other: &Range| other.call == range.call && other.usable == range.usable;
        if let Some(next) = self.ranges.get(&range.end).copied().filter(alike) {
            self.ranges.remove(&range.end);
            range.end = next.end;
        }
        if let Some((&before, previous)) = self.ranges.range(..start).next_back()
            && previous.end == start
            && alike(previous)
        {
            start = before;
        }
        self.ranges.insert(start, range);
    }

    /// The parts of `start..end` where nothing is.
    fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut free_from = match self.ranges.range(..start).next_back() {
            Some((_, range)) => start.max(range.end),
            None => start,
        };
        let mut gaps = Vec::new();
        for (&next, range) in self.ranges.range(start..end.max(start)) {
            if free_from < next {
                gaps.push((free_from, next));
            }
            free_from = free_from.max(range.end);
        }
        if free_from < end {
            gaps.push((free_from, end));
        }
        gaps
    }
}
