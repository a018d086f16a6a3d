use std::fs::File;

use memprof_core::process::mappings::{CodeFile, parse};
use memprof_core::process::module::{FileId, ModuleImage, ModuleIndex};

use super::*;
use crate::host::module_file::load;
use crate::host::proc_fs::maps_text;

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// This program's modules, and the key of one of its addresses.
struct Own {
    files: ModuleFiles,
    images: Vec<ModuleImage>,
    maps: String,
}

impl Own {
    fn new() -> Self {
        let maps = maps_text(own_pid()).unwrap();
        let mut files = ModuleFiles::new(100);
        let images = files.discover(own_pid(), &maps).into_iter().map(|found| found.image).collect();
        Self { files, images, maps }
    }

    fn key(&self, address: usize) -> SymbolKey {
        let address = address as u64;
        let maps = parse(&self.maps).unwrap();
        let map = maps.iter().find(|map| (map.start..map.end).contains(&address)).unwrap();
        let module = self.images.iter().position(|image| Some(image.file) == map.file).unwrap();
        let offset = address - map.start + map.offset;
        let segments = &self.images[module].segments;
        let segment =
            segments.iter().find(|s| (s.file_offset..s.file_offset + s.size).contains(&offset)).unwrap();
        SymbolKey {
            module: ModuleIndex(u32::try_from(module).unwrap()),
            lookup: offset - segment.file_offset + segment.svma,
        }
    }
}

#[inline(never)]
extern "C" fn a_function_of_this_test(x: u64) -> u64 {
    std::hint::black_box(x) + 1
}

#[test]
fn functions_are_named_where_they_are() {
    let own = Own::new();
    assert_eq!(a_function_of_this_test(1), 2);
    let ours = own.key(a_function_of_this_test as *const () as usize);
    let malloc = own.key(libc::malloc as *const () as usize);
    let nowhere = SymbolKey { module: malloc.module, lookup: 8 };
    let unknown_module = SymbolKey { module: ModuleIndex(9999), lookup: malloc.lookup };
    let keys = [nowhere, malloc, ours, malloc, unknown_module];
    let named = Symbolizer::new().symbolize(&keys, &own.files);

    let mut expected = [(ours.module.0, ours.lookup), (malloc.module.0, malloc.lookup)];
    expected.sort_unstable();
    assert_eq!(named.iter().map(|(module, lookup, _)| (*module, *lookup)).collect::<Vec<_>>(), expected);
    let of = |key: SymbolKey| {
        named.iter().find(|n| (n.0, n.1) == (key.module.0, key.lookup)).unwrap().2.last().unwrap()
    };
    assert!(of(ours).function.ends_with("a_function_of_this_test"), "{:?}", of(ours));
    assert_eq!(of(malloc).function, "malloc");
    assert!(!of(malloc).inlined);
}

/// With nothing but `.dynsym`, an address between two exported functions has no name.
#[test]
fn the_symbol_before_an_address_is_not_its_name() {
    let own = Own::new();
    let malloc = own.key(libc::malloc as *const () as usize);
    let libc = own.files.get(malloc.module).unwrap();
    let mut exported = exported_ranges(libc.file.as_ref().unwrap());
    exported.sort_unstable();
    // Of the functions that libc keeps to itself, those whose neighbour in front ends well before.
    let hidden: Vec<u64> = exported
        .windows(2)
        .filter(|pair| pair[0].1 > pair[0].0 && pair[1].0 > pair[0].1 + 64)
        .map(|pair| pair[0].1 + 32)
        .collect();
    assert!(hidden.len() > 10);
    // The build id leads to debug files, so it is withheld; the link in the file is not followed.
    let symbolizer = Symbolizer::new();
    let mut source = Elf::new(format!("/proc/self/fd/{}", libc.file.as_ref().unwrap().as_raw_fd()));
    source.debug_syms = false;
    let found = symbolizer.backend.symbolize(&Source::Elf(source), Input::VirtOffset(&hidden)).unwrap();
    for (address, symbol) in hidden.iter().zip(found) {
        let inside = exported.iter().any(|(start, end)| (start..end).contains(&address));
        assert!(inside || frames(symbol).is_empty(), "{address:#x}");
    }
}

/// Address ranges of the functions in a library's `.dynsym`.
fn exported_ranges(file: &File) -> Vec<(u64, u64)> {
    use blazesym::inspect::{Inspector, source};
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut elf = source::Elf::new(path);
    elf.debug_syms = false;
    let mut ranges = Vec::new();
    Inspector::new()
        .for_each(&source::Source::Elf(elf), |symbol| {
            ranges.push((symbol.addr, symbol.addr + symbol.size.unwrap_or(0) as u64));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    ranges
}

#[test]
fn a_deleted_file_still_has_names() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("program");
    std::fs::copy("/proc/self/exe", &copy).unwrap();
    let own = Own::new();
    let ours = own.key(a_function_of_this_test as *const () as usize);
    let mapping = CodeFile {
        file: FileId {
            major: 0,
            minor: 0,
            inode: std::os::unix::fs::MetadataExt::ino(&copy.metadata().unwrap()),
        },
        path: copy.to_string_lossy().into_owned(),
        deleted: false,
        start: 0,
        end: 0,
    };
    let (file, found) = load(own_pid(), &mapping).unwrap();
    directory.close().unwrap();
    let module = ModuleFile { pid: own_pid(), build_id: found.image.build_id, file: Some(file) };
    let named = Symbolizer::new().symbolize_module(&module, &[ours.lookup]);
    assert!(named[0].last().unwrap().function.ends_with("a_function_of_this_test"), "{named:?}");
}

#[test]
fn aliases_and_versions_are_plain() {
    for (name, plain) in [
        ("malloc", "malloc"),
        ("__GI___libc_malloc", "malloc"),
        ("__libc_calloc", "calloc"),
        ("__posix_memalign", "posix_memalign"),
        ("malloc@@GLIBC_2.2.5", "malloc"),
        ("pthread_cond_wait@GLIBC_2.3.2", "pthread_cond_wait"),
        ("__GI___fork", "__fork"),
        ("__libc_start_main_impl", "__libc_start_main_impl"),
        ("operator new(unsigned long)", "operator new(unsigned long)"),
        ("user@host of things", "user@host of things"),
        ("@plt", "@plt"),
    ] {
        assert_eq!(plain_name(name), plain);
    }
}
