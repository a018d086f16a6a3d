//! Executable mappings whose owner is known, for us and for framehop.

use std::ops::Range;
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;

use crate::address::Avma;
use crate::process::module::{Module, Section};

/// Whose code an executable mapping holds.
#[derive(Clone, Debug)]
pub enum CodeOwner {
    /// A module's; the live address is the linked one plus `bias` (wrapping).
    Module {
        /// The module.
        module: Arc<Module>,
        /// Live minus linked address.
        bias: u64,
    },
    /// The JVM's code cache.
    Java,
    /// The kernel's trampoline for uretprobes.
    Uprobes,
}

/// An executable mapping whose owner is known.
#[derive(Clone, Debug)]
pub struct CodeMapping {
    /// First address.
    pub start: Avma,
    /// One past the last address.
    pub end: Avma,
    /// Whose code it is.
    pub owner: CodeOwner,
}

impl PartialEq for CodeMapping {
    fn eq(&self, other: &Self) -> bool {
        let owners = match (&self.owner, &other.owner) {
            (CodeOwner::Module { module: a, bias }, CodeOwner::Module { module: b, bias: other }) => {
                a.index == b.index && bias == other
            }
            (CodeOwner::Java, CodeOwner::Java) | (CodeOwner::Uprobes, CodeOwner::Uprobes) => true,
            _ => false,
        };
        owners && self.start == other.start && self.end == other.end
    }
}

/// Lowest linked address of a module. framehop counts from here, in 32 bits.
fn base_svma(module: &Module) -> u64 {
    module.image.segments.first().map_or(0, |segment| segment.svma)
}

/// Whether framehop finds the rules for a live address of this module, by the same table as we do. Where
/// it does not, it walks along rbp without saying so.
pub(crate) fn framehop_knows(module: &Module, bias: u64, lookup: Avma) -> bool {
    let base = base_svma(module).wrapping_add(bias);
    let in_reach = lookup.checked_sub(base).is_some_and(|offset| u32::try_from(offset).is_ok());
    in_reach
        && module.cfi().is_some_and(|cfi| {
            cfi.eh_frame_hdr().is_some() && u32::try_from(cfi.eh_frame().bytes.len()).is_ok()
        })
}

/// A mapping as framehop wants it, if it is code of a module whose search table can be trusted.
pub(crate) fn framehop_module(mapping: &CodeMapping) -> Option<framehop::Module<Arc<[u8]>>> {
    let CodeOwner::Module { module, bias } = &mapping.owner else { return None };
    let cfi = module.cfi()?;
    let (eh_frame, eh_frame_hdr) = (cfi.eh_frame(), cfi.eh_frame_hdr()?);
    let base_svma = base_svma(module);
    let sections = ExplicitModuleSectionInfo {
        base_svma,
        text_svma: module.image.text.map(|(start, end)| start..end),
        eh_frame_svma: Some(range(eh_frame)),
        eh_frame: Some(Arc::clone(&eh_frame.bytes)),
        eh_frame_hdr_svma: Some(range(eh_frame_hdr)),
        eh_frame_hdr: Some(Arc::clone(&eh_frame_hdr.bytes)),
        ..ExplicitModuleSectionInfo::default()
    };
    let base_avma = base_svma.wrapping_add(*bias);
    let path = module.image.path.clone();
    Some(framehop::Module::new(path, mapping.start..mapping.end, base_avma, sections))
}

fn range(section: &Section) -> Range<u64> {
    section.svma..section.svma.saturating_add(section.bytes.len() as u64)
}
