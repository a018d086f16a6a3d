//! Symbols: the JVM's texts, in which names, signatures and source files are kept.

use super::layout::MethodLayout;
use super::witness::Witness;
use crate::address::Avma;
use crate::memory::ProcessMemory;

/// Most bytes shown of a symbol. Class files allow 65535, and people cannot read that.
const MAX_LENGTH: usize = 1024;

/// Reads the symbol at `address` and notes what was read as a witness.
pub(super) fn read(
    address: Avma,
    layout: &MethodLayout,
    memory: &mut ProcessMemory<'_>,
    witness: &mut Witness,
) -> Option<String> {
    if address == 0 {
        return None;
    }
    let length = witness.u16(address.wrapping_add(layout.symbol_length), memory)?;
    let shown = usize::from(length).min(MAX_LENGTH);
    let bytes = witness.bytes(address.wrapping_add(layout.symbol_body), shown, memory)?;
    let mut text = modified_utf8(bytes);
    if shown < usize::from(length) {
        text.push('…');
    }
    Some(text)
}

/// A text in the UTF-8 of class files (JVM specification, 4.4.7): zero has two bytes, and characters beyond
/// U+FFFF have two times three. What is none is replaced.
fn modified_utf8(bytes: &[u8]) -> String {
    let units: Vec<u16> = {
        let mut units = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let Some((unit, length)) = unit(rest) {
            units.push(unit);
            rest = &rest[length..];
        }
        units
    };
    String::from_utf16_lossy(&units)
}

/// The first UTF-16 unit of a text, and its bytes.
fn unit(bytes: &[u8]) -> Option<(u16, usize)> {
    const REPLACEMENT: u16 = 0xfffd;
    let low =
        |i: usize| bytes.get(i).filter(|&&byte| byte & 0xc0 == 0x80).map(|&byte| u16::from(byte & 0x3f));
    let first = *bytes.first()?;
    Some(match (first, low(1), low(2)) {
        (0x00..=0x7f, ..) => (first.into(), 1),
        (0xc0..=0xdf, Some(second), _) => (u16::from(first & 0x1f) << 6 | second, 2),
        (0xe0..=0xef, Some(second), Some(third)) => (u16::from(first & 0x0f) << 12 | second << 6 | third, 3),
        _ => (REPLACEMENT, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_class_files_become_readable() {
        for (bytes, text) in [
            (&b"java/util/Map$Entry"[..], "java/util/Map$Entry"),
            ("Größe".as_bytes(), "Größe"),
            ("名前".as_bytes(), "名前"),
            (&[b'a', 0xc0, 0x80, b'b'], "a\0b"),
            (&[0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80], "😀"),
            (&[0xed, 0xa0, 0xbd, b'x'], "\u{fffd}x"),
            (&[0xff, 0x80, b'x', 0xe0, 0x80], "\u{fffd}\u{fffd}x\u{fffd}\u{fffd}"),
            (&[], ""),
        ] {
            assert_eq!(modified_utf8(bytes), text);
        }
    }
}
