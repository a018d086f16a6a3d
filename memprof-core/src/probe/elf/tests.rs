//! Symbol lookup over small ELF files made here.

use super::*;
use crate::probe::allocators::MUSL;

const STT_OBJECT: u8 = 1;
const STT_GNU_IFUNC: u8 = 10;
/// Where the file's only segment starts: file offset and address differ, as they do in real libraries.
const SEGMENT: (u64, u64) = (0x40 + 0x38, 0x1000);

const STB_LOCAL: u8 = 0;

/// A symbol to be: name, address, size, type; global unless the type says otherwise.
type Entry = (&'static str, u64, u64, u8);

/// Marks the type of an [`Entry`] as that of a local symbol.
const LOCAL: u8 = 0x80;

/// The exports of a glibc with aliases and no `reallocarray`.
const GLIBC_EXPORTS: &[Entry] = &[
    ("gnu_get_libc_version", 0x1000, 4, 2),
    ("malloc", 0x1010, 16, 2),
    ("__libc_malloc", 0x1010, 16, 2),
    ("calloc", 0x1020, 16, 2),
    ("realloc", 0x1030, 16, 2),
    ("free", 0x1040, 8, 2),
    ("cfree", 0x1040, 8, 2),
    ("memalign", 0x1050, 4, 2),
    ("aligned_alloc", 0x1050, 4, 2),
];

/// An ELF file with one segment of 0x80 bytes, each its own index, and these dynamic symbols.
fn elf(machine: u16, symbols: &[Entry]) -> Vec<u8> {
    let code: Vec<u8> = (0..0x80).collect();
    let mut strings = vec![0];
    let mut dynsym = vec![0; 24];
    for &(name, address, size, kind) in symbols {
        dynsym.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
        let binding = if kind & LOCAL != 0 { STB_LOCAL } else { 0x10 };
        dynsym.extend([binding | (kind & !LOCAL), 0]);
        dynsym.extend(u16::from(address != 0).to_le_bytes());
        dynsym.extend(address.to_le_bytes());
        dynsym.extend(size.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    let code_end = SEGMENT.0 + code.len() as u64;
    let strings_at = code_end + dynsym.len() as u64;
    let headers_at = strings_at + strings.len() as u64;

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(3_u16.to_le_bytes());
    file.extend(machine.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for word in [0, 0x40, headers_at] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [0x40_u16, 0x38, 1, 0x40, 4, 3] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    file.extend(5_u32.to_le_bytes());
    for word in [SEGMENT.0, SEGMENT.1, SEGMENT.1, 0x80, 0x80, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(&code);
    file.extend(&dynsym);
    file.extend(&strings);
    // Null, code, .dynsym linked to .dynstr, .dynstr.
    for (kind, address, offset, size, link, entry) in [
        (0, 0, 0, 0, 0, 0),
        (1, SEGMENT.1, SEGMENT.0, 0x80, 0, 0),
        (11, 0, code_end, dynsym.len() as u64, 3, 24),
        (3, 0, strings_at, strings.len() as u64, 0, 0),
    ] {
        file.extend(0_u32.to_le_bytes());
        file.extend(u32::to_le_bytes(kind));
        for word in [0, address, offset, size] {
            file.extend(u64::to_le_bytes(word));
        }
        file.extend(u32::to_le_bytes(link));
        file.extend(0_u32.to_le_bytes());
        for word in [1, entry] {
            file.extend(u64::to_le_bytes(word));
        }
    }
    file
}

fn names(examined: &Examined) -> Vec<String> {
    examined.allocators.iter().map(|found| format!("{}{}", found.prefix, found.allocator.name)).collect()
}

#[test]
fn finds_each_function_once() {
    let examined = examine(&elf(62, GLIBC_EXPORTS)).unwrap();
    assert_eq!(names(&examined), ["glibc"]);
    assert_eq!(examined.symbols, SymbolCounts { dynamic: 9, full: 0 });
    let found: Vec<_> =
        examined.functions.iter().map(|f| (f.symbol.as_str(), f.kind, f.nesting, f.svma)).collect();
    assert_eq!(
        found,
        [
            ("malloc", FunctionKind::Malloc, Nesting::Leaf, 0x1010),
            ("calloc", FunctionKind::Calloc, Nesting::Leaf, 0x1020),
            ("realloc", FunctionKind::Realloc, Nesting::Outer, 0x1030),
            ("free", FunctionKind::Free, Nesting::Leaf, 0x1040),
            ("aligned_alloc", FunctionKind::AlignedAlloc, Nesting::Outer, 0x1050),
        ]
    );
    let malloc = &examined.functions[0];
    assert_eq!((malloc.file_offset, malloc.size), (SEGMENT.0 + 0x10, 16));
    assert_eq!(malloc.code, (0x10..0x20).collect::<Vec<u8>>());
}

#[test]
fn keeps_all_versions_of_a_name() {
    let mut symbols = GLIBC_EXPORTS.to_vec();
    symbols.push(("memalign", 0x1060, 4, 2));
    let found = examine(&elf(62, &symbols)).unwrap().functions;
    assert_eq!(found.iter().filter(|f| f.kind == FunctionKind::AlignedAlloc).count(), 2);
}

#[test]
fn code_ends_with_the_segment() {
    let mut symbols = GLIBC_EXPORTS.to_vec();
    symbols.push(("valloc", 0x1078, 64, 2));
    let found = examine(&elf(62, &symbols)).unwrap().functions;
    assert_eq!(found.last().map(|f| (f.size, f.code.len())), Some((64, 8)));
}

#[test]
fn allocators_are_told_apart_by_their_markers() {
    let of = |symbols: &[Entry]| names(&examine(&elf(62, symbols)).unwrap());
    let with = |more: Entry| [&[("malloc", 0x1010, 16, 2), ("free", 0x1040, 8, 2)], &[more][..]].concat();
    assert_eq!(of(&with(("mallctl", 0x1000, 4, 2))), ["jemalloc"]);
    assert_eq!(of(&with(("__dls3", 0x1000, 4, 2))), ["musl"]);
    assert_eq!(of(&with(("_int_malloc", 0x1000, 4, 2 | LOCAL))), ["glibc"]);
    assert_eq!(of(&with(("main", 0x1000, 4, 2))), ["an unknown allocator"]);
    assert_eq!(of(&[("malloc", 0x1010, 16, 2)]), [""; 0], "no free");
    assert_eq!(of(&[("tc_malloc", 0x1010, 16, 2), ("tc_free", 0x1040, 8, 2)]), ["tcmalloc"]);
    assert_eq!(of(&[("mi_malloc", 0x1010, 16, 2), ("mi_free", 0x1040, 8, 2)]), ["mimalloc"]);
}

/// A Rust program with jemalloc and musl linked into it: all symbols are local.
#[test]
fn one_file_can_hold_two_allocators() {
    let symbols = [
        ("__simple_malloc", 0x1000, 4, 2 | LOCAL),
        ("malloc", 0x1010, 8, 2 | LOCAL),
        ("free", 0x1018, 8, 2 | LOCAL),
        ("_rjem_mallctl", 0x1020, 4, 2 | LOCAL),
        ("_rjem_malloc", 0x1030, 8, 2 | LOCAL),
        ("_rjem_sdallocx", 0x1038, 8, 2 | LOCAL),
        ("_Znwm", 0x1050, 8, 2 | LOCAL),
    ];
    let examined = examine(&elf(62, &symbols)).unwrap();
    assert_eq!(names(&examined), ["_rjem_jemalloc", "musl"]);
    let found: Vec<_> = examined.functions.iter().map(|f| f.symbol.as_str()).collect();
    assert_eq!(found, ["malloc", "free", "_rjem_malloc", "_rjem_sdallocx"]);
    assert_eq!(examined.allocators[1].allocator, &MUSL);
}

/// A library's own function is not what the program calls; a global one is preferred.
#[test]
fn local_functions_are_the_last_resort() {
    let library = |malloc: u8| {
        let symbols =
            [("exported", 0x1000, 4, 2), ("malloc", 0x1010, 8, malloc), ("free", 0x1018, 8, malloc)];
        names(&examine(&elf(62, &symbols)).unwrap())
    };
    assert_eq!(library(2 | LOCAL), [""; 0]);
    assert_eq!(library(2), ["an unknown allocator"]);
    let mut symbols = GLIBC_EXPORTS.to_vec();
    symbols.push(("malloc", 0x1060, 4, 2 | LOCAL));
    let found = examine(&elf(62, &symbols)).unwrap().functions;
    assert!(found.iter().all(|f| f.svma != 0x1060), "{found:?}");
}

#[test]
fn what_was_looked_at_is_counted() {
    let text = |dynamic, full| SymbolCounts { dynamic, full }.to_string();
    assert_eq!(text(0, 0), "names no function: stripped");
    assert_eq!(text(7, 0), "7 functions in .dynsym, .symtab is stripped");
    assert_eq!(text(0, 9), "0 functions in .dynsym, 9 in .symtab");
}

#[test]
fn data_and_indirect_functions_and_imports_do_not_count() {
    for replacement in
        [("malloc", 0x1040, 8, STT_OBJECT), ("malloc", 0x1040, 8, STT_GNU_IFUNC), ("malloc", 0, 0, 2)]
    {
        let symbols: Vec<_> =
            GLIBC_EXPORTS.iter().map(|&s| if s.0 == "malloc" { replacement } else { s }).collect();
        assert_eq!(examine(&elf(62, &symbols)).unwrap().allocators, [], "{replacement:?}");
    }
}

#[test]
fn refuses_other_files() {
    assert!(matches!(examine(b"#!/bin/sh\n"), Err(ExamineError::Parse(_))));
    assert!(matches!(examine(&[]), Err(ExamineError::Parse(_))));
    assert!(matches!(examine(&elf(183, GLIBC_EXPORTS)), Err(ExamineError::Machine(183))));
    let mut symbols = GLIBC_EXPORTS.to_vec();
    symbols.push(("pvalloc", 0x9000, 4, 2));
    let found = examine(&elf(62, &symbols));
    assert!(matches!(found, Err(ExamineError::Unmapped { svma: 0x9000, segments: 1, .. })), "{found:?}");
    assert_eq!(
        found.unwrap_err().to_string(),
        "`pvalloc` at 0x9000 lies outside of the file's 1 loadable segments"
    );
}

/// Real allocators of this machine are checked by the tests on real processes; these are their jumps.
#[test]
fn wrappers_give_way_to_what_they_wrap() {
    let code = |bytes: &[u8]| {
        let mut code = bytes.to_vec();
        code.resize(16, 0xcc);
        code
    };
    let function = |symbol: &str, kind, svma, bytes: &[u8]| AllocatorFunction {
        kind,
        nesting: Nesting::Leaf,
        symbol: symbol.to_owned(),
        svma,
        size: 16,
        file_offset: svma,
        code: code(bytes),
    };
    let file = elf(62, &[("aligned_alloc", 0x1040, 16, 2)]);
    let file = parse(&file).unwrap();
    let symbols = FunctionSymbols::read(&file);
    let functions = [
        // jmp 0x1010; endbr64, jmp 0x1010; jmp 0x1010 by another kind; call 0x1040.
        function("malloc", FunctionKind::Malloc, 0x1010, &[0x53, 0xc3]),
        function("plain", FunctionKind::Malloc, 0x1000, &[0xeb, 0x0e]),
        function("marked", FunctionKind::Malloc, 0x1020, &[0xf3, 0x0f, 0x1e, 0xfa, 0xeb, 0xea]),
        function("calloc", FunctionKind::Calloc, 0x1030, &[0xeb, 0xde]),
        function("aligned_alloc", FunctionKind::AlignedAlloc, 0x1040, &[0x53, 0xc3]),
        function("new", FunctionKind::New, 0x1050, &[0x53, 0xe8, 0xea, 0xff, 0xff, 0xff, 0x5b, 0xc3]),
        function("inlined", FunctionKind::New, 0x1060, &[0x53, 0x5b, 0xc3]),
    ];
    let mut functions: BTreeMap<_, _> = functions.into_iter().map(|f| (f.svma, f)).collect();
    let vias = BTreeMap::from([(0x1050, "aligned_alloc".to_owned()), (0x1060, "aligned_alloc".to_owned())]);
    wrappers::resolve(&file, &symbols, &vias, &mut functions);
    let left: Vec<_> = functions.values().map(|f| (f.symbol.as_str(), f.nesting)).collect();
    assert_eq!(
        left,
        [
            ("malloc", Nesting::Leaf),
            ("calloc", Nesting::Outer),
            ("aligned_alloc", Nesting::Leaf),
            ("inlined", Nesting::Leaf),
        ]
    );
}
