//! A module's call frame information: which code has unwind rules, and where they stand in `.eh_frame`.

use std::sync::Arc;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice,
    FrameDescriptionEntry, LittleEndian, UnwindSection,
};

use super::module::{ModuleImage, Section};
use crate::address::Svma;

/// How gimli reads a section here: x86-64 is little-endian.
pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Bytes of an address in x86-64 call frame information.
const ADDRESS_SIZE: u8 = 8;

/// One function's (or part of a function's) entry in `.eh_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fde {
    /// First address it covers, as linked.
    start: Svma,
    /// One past the last address it covers.
    end: Svma,
    /// Where it starts in `.eh_frame`.
    offset: usize,
}

/// The call frame information of a module, indexed by address.
#[derive(Debug)]
pub struct Cfi {
    eh_frame: Section,
    eh_frame_hdr: Option<Section>,
    bases: BaseAddresses,
    /// Non-empty entries by ascending start.
    fdes: Vec<Fde>,
}

impl Cfi {
    /// Indexes the `.eh_frame` of a module; `None` when it has none. Damaged entries are left out, so
    /// that code without a usable rule counts as not covered.
    #[must_use]
    pub fn new(image: &ModuleImage) -> Option<Self> {
        let eh_frame = image.eh_frame.clone()?;
        let bases = base_addresses(image);
        let mut fdes = index(&read(&eh_frame.bytes), &bases);
        fdes.sort_unstable_by_key(|fde| (fde.start, fde.offset));
        let eh_frame_hdr = image.eh_frame_hdr.clone().filter(|hdr| agrees(hdr, &eh_frame, &bases, &fdes));
        Some(Self { eh_frame, eh_frame_hdr, bases, fdes })
    }

    /// Whether some entry covers the instruction at `svma`.
    #[must_use]
    pub fn covers(&self, svma: Svma) -> bool {
        self.find(svma).is_some()
    }

    /// Whether one entry covers the instructions at both addresses: they are of one function.
    #[must_use]
    pub fn same_function(&self, a: Svma, b: Svma) -> bool {
        self.find(a).is_some_and(|fde| (fde.start..fde.end).contains(&b))
    }

    /// The section that holds the rules.
    #[must_use]
    pub fn eh_frame(&self) -> &Section {
        &self.eh_frame
    }

    /// The file's own search table, if it lists exactly the entries of `.eh_frame`. An unwinder that
    /// searches another table than the one that was checked would take other rules.
    #[must_use]
    pub fn eh_frame_hdr(&self) -> Option<&Section> {
        self.eh_frame_hdr.as_ref()
    }

    /// Addresses that pointers in the rules are relative to.
    pub(crate) fn bases(&self) -> &BaseAddresses {
        &self.bases
    }

    /// `.eh_frame` for gimli.
    pub(crate) fn section(&self) -> EhFrame<Bytes<'_>> {
        read(&self.eh_frame.bytes)
    }

    /// The entry that covers the instruction at `svma`.
    pub(crate) fn entry(&self, svma: Svma) -> Option<FrameDescriptionEntry<Bytes<'_>>> {
        let offset = EhFrameOffset(self.find(svma)?.offset);
        self.section().fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset).ok()
    }

    fn find(&self, svma: Svma) -> Option<&Fde> {
        let after = self.fdes.partition_point(|fde| fde.start <= svma);
        self.fdes[..after].last().filter(|fde| svma < fde.end)
    }
}

/// Where the search table says that `.eh_frame` is, for files whose section headers are stripped.
pub(crate) fn eh_frame_address(hdr: &Section) -> Option<Svma> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(hdr.svma);
    EhFrameHdr::new(&hdr.bytes, LittleEndian).parse(&bases, ADDRESS_SIZE).ok()?.eh_frame_ptr().direct().ok()
}

fn base_addresses(image: &ModuleImage) -> BaseAddresses {
    let mut bases = BaseAddresses::default();
    if let Some(section) = &image.eh_frame {
        bases = bases.set_eh_frame(section.svma);
    }
    if let Some(section) = &image.eh_frame_hdr {
        bases = bases.set_eh_frame_hdr(section.svma);
    }
    if let Some((start, _)) = image.text {
        bases = bases.set_text(start);
    }
    bases
}

fn read(bytes: &Arc<[u8]>) -> EhFrame<Bytes<'_>> {
    let mut eh_frame = EhFrame::new(bytes, LittleEndian);
    eh_frame.set_address_size(ADDRESS_SIZE);
    eh_frame
}

/// Reads the address range of every entry, in file order.
fn index(eh_frame: &EhFrame<Bytes<'_>>, bases: &BaseAddresses) -> Vec<Fde> {
    let mut fdes = Vec::new();
    // Entries of one compilation unit share one CIE and follow it.
    let mut last_cie: Option<CommonInformationEntry<Bytes<'_>>> = None;
    let mut entries = eh_frame.entries(bases);
    // An entry whose length is damaged hides where the next one starts: keep what came before.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|section, bases, offset| match &last_cie {
            Some(cie) if cie.offset() == offset.0 => Ok(cie.clone()),
            _ => section.cie_from_offset(bases, offset),
        });
        let Ok(fde) = parsed else { continue };
        let start = fde.initial_address();
        if let Some(end) = start.checked_add(fde.len()).filter(|end| *end > start) {
            fdes.push(Fde { start, end, offset: fde.offset() });
        }
        last_cie = Some(fde.cie().clone());
    }
    fdes
}

/// Whether the search table lists exactly these entries, in this order.
fn agrees(hdr: &Section, eh_frame: &Section, bases: &BaseAddresses, fdes: &[Fde]) -> bool {
    let Ok(parsed) = EhFrameHdr::new(&hdr.bytes, LittleEndian).parse(bases, ADDRESS_SIZE) else {
        return false;
    };
    if parsed.eh_frame_ptr() != gimli::Pointer::Direct(eh_frame.svma) {
        return false;
    }
    let Some(table) = parsed.table() else { return false };
    let mut rows = table.iter(bases);
    for fde in fdes {
        let Ok(Some((start, pointer))) = rows.next() else { return false };
        let address = eh_frame.svma.checked_add(fde.offset as u64);
        if start.direct() != Ok(fde.start) || pointer.direct().ok() != address {
            return false;
        }
    }
    matches!(rows.next(), Ok(None))
}
