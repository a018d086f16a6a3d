//! Who owns which part of the address space.

use std::collections::BTreeMap;

use crate::address::Avma;

/// Parts of the address space with their owners. They never overlap: the first to claim a part has it.
#[derive(Debug)]
pub(super) struct Land<O> {
    /// By start: end and owner.
    parts: BTreeMap<Avma, (Avma, O)>,
}

impl<O> Default for Land<O> {
    fn default() -> Self {
        Self { parts: BTreeMap::new() }
    }
}

impl<O: Copy> Land<O> {
    /// Gives what nobody owns of `start..end` to `owner`.
    pub(super) fn claim(&mut self, start: Avma, end: Avma, owner: O) {
        let mut at = start;
        for (from, to) in self.overlapping(start, end) {
            if at < from {
                self.parts.insert(at, (from, owner));
            }
            at = at.max(to);
        }
        if at < end {
            self.parts.insert(at, (end, owner));
        }
    }

    /// All parts, ascending.
    pub(super) fn ranges(&self) -> Vec<(Avma, Avma)> {
        self.parts.iter().map(|(&start, &(end, _))| (start, end)).collect()
    }

    /// The owner of this address.
    pub(super) fn owner(&self, address: Avma) -> Option<O> {
        let (_, &(end, owner)) = self.parts.range(..=address).next_back()?;
        (address < end).then_some(owner)
    }

    /// All of `start..end` in pieces of one owner each, or of none; ascending.
    pub(super) fn pieces(&self, start: Avma, end: Avma) -> Vec<(Avma, Avma, Option<O>)> {
        let mut pieces = Vec::new();
        let mut at = start;
        for (from, to) in self.overlapping(start, end) {
            let (from, to) = (from.max(start), to.min(end));
            if at < from {
                pieces.push((at, from, None));
            }
            pieces.push((from, to, self.owner(from)));
            at = to;
        }
        if at < end {
            pieces.push((at, end, None));
        }
        pieces
    }

    fn overlapping(&self, start: Avma, end: Avma) -> Vec<(Avma, Avma)> {
        let first = self.parts.range(..=start).next_back().map_or(start, |(&from, _)| from);
        if first >= end {
            return Vec::new();
        }
        self.parts
            .range(first..end)
            .map(|(&from, &(to, _))| (from, to))
            .filter(|&(_, to)| to > start)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_claim_counts() {
        let mut land = Land::default();
        land.claim(20, 30, 'a');
        land.claim(40, 50, 'b');
        land.claim(10, 60, 'c');
        land.claim(0, 15, 'd');
        land.claim(70, 70, 'e');
        assert_eq!(land.ranges(), [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50), (50, 60)]);
        let owners: String = (0..7).filter_map(|ten| land.owner(ten * 10 + 5)).collect();
        assert_eq!(owners, "dcacbc");
        assert_eq!(
            land.pieces(25, 75),
            [
                (25, 30, Some('a')),
                (30, 40, Some('c')),
                (40, 50, Some('b')),
                (50, 60, Some('c')),
                (60, 75, None)
            ]
        );
        assert_eq!(land.pieces(80, 90), [(80, 90, None)]);
        assert_eq!(Land::<char>::default().pieces(5, 6), [(5, 6, None)]);
    }
}
