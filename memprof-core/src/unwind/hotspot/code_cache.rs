//! The code cache: where the JVM keeps the code that it makes, and where in it the blob around an address
//! starts.
//!
//! A heap is divided into segments of equal size. Its segment map has one byte for each: how many segments to
//! go back towards the start of the blob, 0 at the start, 0xff where nothing is
//! (`src/hotspot/share/memory/heap.cpp`).

use super::OpenError;
use super::layout::{CacheLayout, Heaps};
use crate::address::Avma;
use crate::memory::ProcessMemory;

/// Most heaps. There are one or three.
const MAX_HEAPS: u64 = 16;

/// Most bytes of a heap (64 GiB). The JVM allows 2 GiB.
const MAX_HEAP: u64 = 1 << 36;

/// Bytes of the segment map read at once.
const WINDOW: u64 = 512;

/// Most jumps back. A blob of 64 MiB in segments of 64 bytes has 4129.
const MAX_JUMPS: usize = 8192;

/// Mark of a segment in which nothing is.
const FREE: u8 = 0xff;

/// The heaps of a code cache.
#[derive(Debug)]
pub(super) struct CodeCache {
    heaps: Vec<Heap>,
}

/// One heap: address space that is its for the JVM's whole life.
#[derive(Debug)]
struct Heap {
    low: Avma,
    high: Avma,
    segmap: Avma,
    log2_segment_size: u32,
}

impl CodeCache {
    /// Reads where the heaps are.
    pub(super) fn read(layout: &CacheLayout, memory: &mut ProcessMemory<'_>) -> Result<Self, OpenError> {
        let pointer = match layout.heaps {
            Heaps::One(pointer) | Heaps::Array { pointer, .. } => pointer,
        };
        let first = memory.u64(pointer).filter(|&first| first != 0).ok_or(OpenError::NotReady)?;
        let starts = match layout.heaps {
            Heaps::One(_) => vec![first],
            Heaps::Array { len, data, .. } => {
                let len = memory.u32(first.wrapping_add(len)).map_or(0, u64::from);
                let data = memory.u64(first.wrapping_add(data)).ok_or(OpenError::NotReady)?;
                if len > MAX_HEAPS {
                    return Err(OpenError::Unsupported(format!("its code cache has {len} heaps")));
                }
                let starts = (0..len).map(|i| memory.u64(data.wrapping_add(i * 8)));
                starts.collect::<Option<_>>().ok_or(OpenError::NotReady)?
            }
        };
        let heaps: Option<Vec<_>> =
            starts.into_iter().map(|start| Heap::read(start, layout, memory)).collect();
        match heaps {
            Some(heaps) if !heaps.is_empty() => Ok(Self { heaps }),
            _ => Err(OpenError::NotReady),
        }
    }

    /// Whether an address lies in one of the heaps.
    pub(super) fn holds(&self, pc: Avma) -> bool {
        self.heap(pc).is_some()
    }

    /// Bytes from an address to the end of its heap.
    pub(super) fn rest(&self, pc: Avma) -> u64 {
        self.heap(pc).map_or(0, |heap| heap.high - pc)
    }

    /// The start of the block around an address: of what precedes its blob.
    pub(super) fn block(&self, pc: Avma, memory: &mut ProcessMemory<'_>) -> Option<Avma> {
        let heap = self.heap(pc)?;
        let mut segment = (pc - heap.low) >> heap.log2_segment_size;
        // Bytes of the map up to the segment at hand, and where they start.
        let (mut window, mut start) = (Vec::new(), segment + 1);
        for _ in 0..MAX_JUMPS {
            if segment < start {
                start = (segment + 1).saturating_sub(WINDOW);
                let length = segment + 1 - start;
                window = memory.bytes(heap.segmap.wrapping_add(start), usize::try_from(length).ok()?)?;
            }
            match *window.get(usize::try_from(segment - start).ok()?)? {
                FREE => return None,
                0 => return Some(heap.low + (segment << heap.log2_segment_size)),
                back => segment = segment.checked_sub(back.into())?,
            }
        }
        None
    }

    fn heap(&self, pc: Avma) -> Option<&Heap> {
        self.heaps.iter().find(|heap| (heap.low..heap.high).contains(&pc))
    }
}

impl Heap {
    fn read(start: Avma, layout: &CacheLayout, memory: &mut ProcessMemory<'_>) -> Option<Self> {
        let space = start.wrapping_add(layout.memory);
        let low = memory.u64(space.wrapping_add(layout.low_boundary))?;
        let high = memory.u64(space.wrapping_add(layout.high_boundary))?;
        let segmap = start.wrapping_add(layout.segmap).wrapping_add(layout.low_boundary);
        let segmap = memory.u64(segmap)?;
        let log2_segment_size = memory.u32(start.wrapping_add(layout.log2_segment_size))?;
        let is_whole = low != 0 && low < high && high - low <= MAX_HEAP && segmap != 0;
        (is_whole && (4..=16).contains(&log2_segment_size)).then_some(Self {
            low,
            high,
            segmap,
            log2_segment_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::image::Image;
    use super::*;

    const LAYOUT: CacheLayout = CacheLayout {
        heaps: Heaps::Array { pointer: 0x100, len: 0, data: 8 },
        memory: 0x10,
        segmap: 0x50,
        log2_segment_size: 0x90,
        low_boundary: 0,
        high_boundary: 8,
        block_size: 16,
        block_used: 8,
    };

    /// One heap of 4096 segments of 128 bytes, as a JVM writes it down.
    fn image(segments: &[u8]) -> Image {
        let mut image = Image::default();
        image.put(0x100, &0x200_u64.to_le_bytes());
        image.put(0x200, &[1_u64, 0x300].map(u64::to_le_bytes).concat());
        image.put(0x300, &0x400_u64.to_le_bytes());
        image.put(0x410, &[0x10_0000_u64, 0x18_0000].map(u64::to_le_bytes).concat());
        image.put(0x450, &0x20_0000_u64.to_le_bytes());
        image.put(0x490, &7_u64.to_le_bytes());
        image.put(0x20_0000, segments);
        image
    }

    #[test]
    fn the_segment_map_leads_back_to_the_start_of_a_block() {
        // A block of one segment, a large one of 1500, nothing.
        let mut segments = vec![0, 0];
        segments.extend((0..1499).map(|i| if i < 254 { i as u8 + 1 } else { 254 }));
        segments.resize(4096, FREE);
        let mut image = image(&segments);
        let mut memory = ProcessMemory::new(&mut image, 1);
        let cache = CodeCache::read(&LAYOUT, &mut memory).expect("it is whole");
        let mut block = |pc| cache.block(pc, &mut memory);
        assert_eq!([0x10_0000, 0x10_007f].map(&mut block), [Some(0x10_0000); 2]);
        assert_eq!([0x10_0080, 0x10_0100, 0x10_0080 + 1499 * 128].map(&mut block), [Some(0x10_0080); 3]);
        assert_eq!([0x10_0080 + 1500 * 128, 0x17_ffff, 0xf_ffff, 0x18_0000].map(block), [None; 4]);
        assert!(cache.holds(0x10_0000) && cache.holds(0x17_ffff) && !cache.holds(0x18_0000));
        assert_eq!((cache.rest(0x17_fff0), cache.rest(0)), (16, 0));
    }

    #[test]
    fn a_segment_map_that_leads_nowhere_is_no_block() {
        let mut image = image(&[7; 4096]);
        let mut memory = ProcessMemory::new(&mut image, 1);
        let cache = CodeCache::read(&LAYOUT, &mut memory).expect("it is whole");
        assert_eq!([0x10_0000, 0x10_2000].map(|pc| cache.block(pc, &mut memory)), [None; 2]);
    }

    #[test]
    fn a_code_cache_that_is_being_made_is_not_ready() {
        let mut image = image(&[0; 4096]);
        image.put(0x410, &[0_u64, 0].map(u64::to_le_bytes).concat());
        let cache = CodeCache::read(&LAYOUT, &mut ProcessMemory::new(&mut image, 1));
        assert_eq!(cache.map(|_| ()), Err(OpenError::NotReady));
        let cache = CodeCache::read(&LAYOUT, &mut ProcessMemory::new(&mut Image::default(), 1));
        assert_eq!(cache.map(|_| ()), Err(OpenError::NotReady));
    }
}
