//! Recognises files that hold a Java virtual machine.

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};

use crate::input::Jvm;

/// What the exported variables start with that describe HotSpot's data
/// (`src/hotspot/share/runtime/vmStructs.hpp`).
const HOTSPOT_PREFIX: &str = "gHotSpotVM";

/// The section in which GraalVM's native images keep their heap.
const NATIVE_IMAGE_SECTION: &str = ".svm_heap";

/// Whether a file of this path is HotSpot's library, or the one by which OpenJ9 passes for it.
#[must_use]
pub fn is_libjvm(path: &str) -> bool {
    file_name(path) == "libjvm.so"
}

/// Whether a file of this path is OpenJ9's library (`libj9vm29.so`).
#[must_use]
pub fn is_openj9(path: &str) -> bool {
    let name = file_name(path);
    name.starts_with("libj9vm") && name.ends_with(".so")
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The JVM in an ELF file with this path. HotSpot's and OpenJ9's libraries always have their names.
#[must_use]
pub fn recognise(path: &str, bytes: &[u8]) -> Option<Jvm> {
    let file: ElfFile64<'_, Endianness> = ElfFile64::parse(bytes).ok()?;
    if is_libjvm(path) {
        let symbols: Vec<_> = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())))
            .filter(|(name, _)| name.starts_with(HOTSPOT_PREFIX))
            .collect();
        return (!symbols.is_empty()).then_some(Jvm::HotSpot { symbols });
    }
    if is_openj9(path) {
        return Some(Jvm::OpenJ9);
    }
    file.section_by_name(NATIVE_IMAGE_SECTION).map(|_| Jvm::NativeImage)
}
