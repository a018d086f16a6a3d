//! Class loaders: whether classes are still there.
//!
//! When a JVM unloads a class, what it was read from stays as it is for a while, but not the texts of its names:
//! they are given back at once, and used for others. What is read then is the same when it is read again, and
//! yet wrong. The JVM has a list of all loaders that are alive
//! (`src/hotspot/share/classfile/classLoaderDataGraph.hpp`); a loader is taken off it before its classes go.

use super::layout::LoadersLayout;
use crate::address::Avma;
use crate::memory::ProcessMemory;

/// Most loaders looked at. Where there are more, methods are not named the first time that they are seen.
const MAX_LOADERS: usize = 4096;

/// Whether all these loaders are alive. New ones come first in the list.
pub(super) fn all_alive(
    mut loaders: Vec<Avma>,
    layout: Option<&LoadersLayout>,
    memory: &mut ProcessMemory<'_>,
) -> bool {
    loaders.sort_unstable();
    loaders.dedup();
    let Some(layout) = layout else { return loaders.is_empty() };
    let mut next = layout.head;
    for _ in 0..MAX_LOADERS {
        if loaders.is_empty() {
            return true;
        }
        let Some(loader) = memory.u64(next).filter(|&loader| loader != 0) else { return false };
        loaders.retain(|&wanted| wanted != loader);
        next = loader.wrapping_add(layout.next);
    }
    loaders.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::image::Image;
    use super::*;

    #[test]
    fn only_loaders_in_the_list_are_alive() {
        const LAYOUT: LoadersLayout = LoadersLayout { head: 0x1000, next: 8, of_class: 0 };
        let mut image = Image::default();
        image.put(0x1000, &0x2000_u64.to_le_bytes());
        image.put(0x2008, &0x3000_u64.to_le_bytes());
        image.put(0x3008, &0_u64.to_le_bytes());
        // It has been taken off the list, and still says what came after it.
        image.put(0x4008, &0x2000_u64.to_le_bytes());
        let mut alive = |loaders: &[Avma]| {
            all_alive(loaders.to_vec(), Some(&LAYOUT), &mut ProcessMemory::new(&mut image, 1))
        };
        assert!(alive(&[]) && alive(&[0x3000, 0x2000, 0x3000]));
        assert!(!alive(&[0x4000]) && !alive(&[0x2000, 0x4000]) && !alive(&[0]));
        // A list in a circle ends nevertheless.
        image.put(0x3008, &0x2000_u64.to_le_bytes());
        assert!(!all_alive(vec![0x4000], Some(&LAYOUT), &mut ProcessMemory::new(&mut image, 1)));
        assert!(!all_alive(vec![0x2000], None, &mut ProcessMemory::new(&mut image, 1)));
    }
}
