//! What a compiled method knows about its calls: a `PcDesc` for every return address
//! (`src/hotspot/share/code/pcDesc.hpp`).

/// Bytes of a `PcDesc`: the return address as an offset into the code, the offset of its scope, two words
/// that do not matter here.
pub(super) const PC_DESC: usize = 16;

/// A compiled method's return addresses, ascending.
#[derive(Debug, Default)]
pub(super) struct PcDescs {
    /// Offsets of the return address and of its scope.
    descs: Box<[(i32, i32)]>,
}

impl PcDescs {
    /// Takes apart what was read.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let desc = |desc: &[u8]| {
            let (pc, rest) = desc.split_first_chunk()?;
            let (scope, _) = rest.split_first_chunk()?;
            Some((i32::from_le_bytes(*pc), i32::from_le_bytes(*scope)))
        };
        Self { descs: bytes.chunks_exact(PC_DESC).filter_map(desc).collect() }
    }

    /// The scope's offset of exactly this return address, given as an offset into the code; 0 when nothing
    /// is known but the method.
    pub(super) fn scope(&self, pc: u64) -> Option<u32> {
        let pc = i32::try_from(pc).ok()?;
        let index = self.descs.binary_search_by_key(&pc, |(pc, _)| *pc).ok()?;
        let (_, scope) = self.descs.get(index)?;
        u32::try_from(*scope).ok()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.descs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_return_addresses_are_known() {
        let desc = |pc: i32, scope: i32| [pc, scope, 0, 0].map(i32::to_le_bytes).concat();
        // The first and last ones are HotSpot's own marks.
        let descs = [desc(-1, 0), desc(96, 1), desc(130, 0), desc(i32::MAX, 0), vec![7; 9]].concat();
        let descs = PcDescs::parse(&descs);
        assert_eq!(descs.len(), 4);
        assert_eq!([95, 96, 97, 130].map(|pc| descs.scope(pc)), [None, Some(1), None, Some(0)]);
        assert_eq!((descs.scope(u64::MAX), PcDescs::parse(&[]).scope(0)), (None, None));
    }
}
