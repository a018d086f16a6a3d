//! A heap's resident pages, read in large pieces and in order.

use crate::address::Avma;
use crate::memory::{Part, ProcessMemory};
use crate::pages::{PAGE, PageSource, PageState};

/// Bytes of address space read at once: far below what one `process_vm_readv` moves (2 GiB), and little memory here.
const SPAN: u64 = 16 << 20;

/// Which pages of a stretch are in memory.
#[derive(Debug)]
pub(super) struct Residency {
    start: Avma,
    /// Resident pages before each page, and at the end all.
    before: Vec<u32>,
}

impl Residency {
    /// Looks at the pages of a stretch; both ends are page boundaries.
    pub(super) fn of(pages: &mut dyn PageSource, start: Avma, end: Avma) -> Self {
        let mut states = vec![PageState::Absent; ((end - start) / PAGE) as usize];
        pages.pages(start, &mut states);
        let mut before = Vec::with_capacity(states.len() + 1);
        let mut count = 0;
        before.push(0);
        for state in states {
            count += u32::from(state == PageState::Resident);
            before.push(count);
        }
        Self { start, before }
    }

    fn pages_before(&self, address: Avma) -> u64 {
        let index = (address.saturating_sub(self.start) / PAGE) as usize;
        u64::from(self.before[index.min(self.before.len() - 1)])
    }

    /// Whether the page of this address is in memory.
    pub(super) fn is_resident(&self, address: Avma) -> bool {
        let Some(index) = address.checked_sub(self.start).map(|offset| (offset / PAGE) as usize) else {
            return false;
        };
        index + 1 < self.before.len() && self.before[index] != self.before[index + 1]
    }

    /// Bytes of `start..end` that are in memory; counted to the byte at both ends.
    pub(super) fn resident_bytes(&self, start: Avma, end: Avma) -> u64 {
        if start >= end {
            return 0;
        }
        self.bytes_before(end) - self.bytes_before(start)
    }

    fn bytes_before(&self, address: Avma) -> u64 {
        let part = if self.is_resident(address) { (address - self.start) % PAGE } else { 0 };
        self.pages_before(address) * PAGE + part
    }

    /// Bytes in resident pages that lie in `start..end` as a whole.
    pub(super) fn whole_pages(&self, start: Avma, end: Avma) -> u64 {
        let (start, end) = (start.next_multiple_of(PAGE), end & !(PAGE - 1));
        if start >= end { 0 } else { (self.pages_before(end) - self.pages_before(start)) * PAGE }
    }
}

/// The content of resident pages, a piece at a time.
#[derive(Debug)]
pub(super) struct Window {
    end: Avma,
    piece: (Avma, Avma),
    /// Where a page of the piece starts in `bytes`.
    offsets: Vec<Option<u32>>,
    bytes: Vec<u8>,
}

impl Window {
    /// A window on memory before `end`, which shows nothing yet.
    pub(super) fn new(end: Avma) -> Self {
        Self { end, piece: (0, 0), offsets: Vec::new(), bytes: Vec::new() }
    }

    /// The word at this address, a multiple of 8. The window moves there if need be.
    pub(super) fn word(
        &mut self,
        memory: &mut ProcessMemory<'_>,
        residency: &Residency,
        address: Avma,
    ) -> Option<u64> {
        if !(self.piece.0..self.piece.1).contains(&address) {
            if !residency.is_resident(address) {
                return None;
            }
            self.load(memory, residency, address & !(PAGE - 1));
        }
        self.loaded(address)
    }

    /// The word at this address, read by itself where the window does not show it.
    pub(super) fn peek(
        &self,
        memory: &mut ProcessMemory<'_>,
        residency: &Residency,
        address: Avma,
    ) -> Option<u64> {
        if (self.piece.0..self.piece.1).contains(&address) {
            return self.loaded(address);
        }
        if residency.is_resident(address) { memory.u64(address) } else { None }
    }

    fn loaded(&self, address: Avma) -> Option<u64> {
        let offset = self.offsets[((address - self.piece.0) / PAGE) as usize]?;
        let at = offset as usize + (address % PAGE) as usize;
        let bytes = self.bytes.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn load(&mut self, memory: &mut ProcessMemory<'_>, residency: &Residency, start: Avma) {
        let end = self.end.min(start.saturating_add(SPAN)).next_multiple_of(PAGE);
        self.piece = (start, end);
        self.offsets = vec![None; ((end - start) / PAGE) as usize];
        let mut resident: Vec<usize> = (0..self.offsets.len())
            .filter(|&index| residency.is_resident(start + index as u64 * PAGE))
            .collect();
        self.bytes.clear();
        self.bytes.resize(resident.len() * PAGE as usize, 0);
        let mut filled = 0;
        // A page that has gone since is left out, and reading goes on behind it.
        while !resident.is_empty() {
            let parts = runs(start, &resident);
            let read = memory.read_parts(&parts, &mut self.bytes[filled..]) / PAGE as usize;
            for (count, &index) in resident[..read].iter().enumerate() {
                self.offsets[index] = u32::try_from(filled + count * PAGE as usize).ok();
            }
            filled += read * PAGE as usize;
            resident.drain(..(read + 1).min(resident.len()));
        }
    }
}

/// Neighbouring pages as one part each.
fn runs(start: Avma, pages: &[usize]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for &index in pages {
        let address = start + index as u64 * PAGE;
        match parts.last_mut() {
            Some(part) if part.address + part.length as u64 == address => part.length += PAGE as usize,
            _ => parts.push(Part { address, length: PAGE as usize }),
        }
    }
    parts
}
