//! Symbol lookup over small ELF files made here.

use super::*;
use crate::probe::functions::GLIBC;

const STT_OBJECT: u8 = 1;
const STT_GNU_IFUNC: u8 = 10;
/// Where the file's only segment starts: file offset and address differ, as they do in real libraries.
const SEGMENT: (u64, u64) = (0x40 + 0x38, 0x1000);

/// A symbol to be: name, address, size, type; global.
type Entry = (&'static str, u64, u64, u8);

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
        dynsym.extend([0x10 | kind, 0]);
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

#[test]
fn finds_each_function_once() {
    let found = find_functions(&elf(62, GLIBC_EXPORTS), &GLIBC).unwrap();
    let names: Vec<_> = found.iter().map(|f| (f.symbol, f.kind, f.svma)).collect();
    assert_eq!(
        names,
        [
            ("malloc", FunctionKind::Malloc, 0x1010),
            ("calloc", FunctionKind::Calloc, 0x1020),
            ("realloc", FunctionKind::Realloc, 0x1030),
            ("free", FunctionKind::Free, 0x1040),
            ("aligned_alloc", FunctionKind::AlignedAlloc, 0x1050),
        ]
    );
    let malloc = &found[0];
    assert_eq!((malloc.file_offset, malloc.size), (SEGMENT.0 + 0x10, 16));
    assert_eq!(malloc.code, (0x10..0x20).collect::<Vec<u8>>());
}

#[test]
fn keeps_all_versions_of_a_name() {
    let mut symbols = GLIBC_EXPORTS.to_vec();
    symbols.push(("memalign", 0x1060, 4, 2));
    let found = find_functions(&elf(62, &symbols), &GLIBC).unwrap();
    assert_eq!(found.iter().filter(|f| f.kind == FunctionKind::AlignedAlloc).count(), 2);
}

#[test]
fn code_ends_with_the_segment() {
    let mut symbols = GLIBC_EXPORTS.to_vec();
    symbols.push(("valloc", 0x1078, 64, 2));
    let found = find_functions(&elf(62, &symbols), &GLIBC).unwrap();
    assert_eq!(found.last().map(|f| (f.size, f.code.len())), Some((64, 8)));
}

#[test]
fn says_what_is_missing_and_where_it_looked() {
    let other: Vec<_> = GLIBC_EXPORTS.iter().copied().filter(|s| s.0 != "gnu_get_libc_version").collect();
    let error = find_functions(&elf(62, &other), &GLIBC).unwrap_err().to_string();
    assert_eq!(
        error,
        "the file is not glibc: no function `gnu_get_libc_version` among 8 functions of .dynsym and 0 of .symtab"
    );
    assert_eq!(identify(&elf(62, &other)).unwrap(), None);
    assert_eq!(identify(&elf(62, GLIBC_EXPORTS)).unwrap(), Some(&GLIBC));
}

#[test]
fn data_and_indirect_functions_and_imports_do_not_count() {
    for replacement in
        [("free", 0x1040, 8, STT_OBJECT), ("free", 0x1040, 8, STT_GNU_IFUNC), ("free", 0, 0, 2)]
    {
        let symbols: Vec<_> =
            GLIBC_EXPORTS.iter().map(|&s| if s.0 == "free" { replacement } else { s }).collect();
        let found = find_functions(&elf(62, &symbols), &GLIBC);
        assert!(matches!(found, Err(FindError::NotAllocator { missing: "free", .. })), "{replacement:?}");
    }
}

#[test]
fn refuses_other_files() {
    assert!(matches!(find_functions(b"#!/bin/sh\n", &GLIBC), Err(FindError::Parse(_))));
    assert!(matches!(identify(&[]), Err(FindError::Parse(_))));
    assert!(matches!(find_functions(&elf(183, GLIBC_EXPORTS), &GLIBC), Err(FindError::Machine(183))));
    let mut symbols = GLIBC_EXPORTS.to_vec();
    symbols.push(("pvalloc", 0x9000, 4, 2));
    let found = find_functions(&elf(62, &symbols), &GLIBC);
    assert!(matches!(found, Err(FindError::Unmapped { symbol: "pvalloc", svma: 0x9000, segments: 1 })));
}
