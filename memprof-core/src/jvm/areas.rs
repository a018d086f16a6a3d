//! Where a JVM's parts are, from what it says without native memory tracking: the answers to `VM.info` and
//! `Compiler.codecache` (`src/hotspot/share/utilities/vmError.cpp`, `code/codeCache.cpp`).

use super::{JvmArea, JvmPart};

/// The name and version of the JVM, from the answer to `VM.info`: `OpenJDK 64-Bit Server VM (17.0.9+9)`.
#[must_use]
pub fn version(info: &str) -> Option<String> {
    let text = info.lines().find_map(|line| line.strip_prefix("vm_info: "))?;
    Some(text.split(" for ").next().unwrap_or(text).trim().to_owned())
}

/// The parts that the answer to `VM.info` tells.
#[must_use]
pub fn areas(info: &str) -> Vec<JvmArea> {
    info.lines().filter_map(area).collect()
}

/// The parts of the code cache, from the answer to `Compiler.codecache`: ` bounds [start, used to, end)`.
#[must_use]
pub fn code_areas(code_cache: &str) -> Vec<JvmArea> {
    code_cache
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("bounds "))
        .filter_map(|bounds| {
            let numbers = addresses(bounds);
            made((*numbers.first()?, *numbers.get(2)?), JvmPart::CodeCache)
        })
        .collect()
}

fn area(line: &str) -> Option<JvmArea> {
    let line = line.trim_start();
    let (part, rest) = [
        ("Heap address:", JvmPart::JavaHeap),
        ("Compressed class space", JvmPart::ClassSpace),
        ("CDS archive(s) mapped at:", JvmPart::SharedClasses),
        ("Card table byte_map:", JvmPart::Gc),
        ("Prev Bits:", JvmPart::Gc),
        ("Next Bits:", JvmPart::Gc),
        ("Bits:", JvmPart::Gc),
        ("Begin Bits:", JvmPart::Gc),
        ("End Bits:", JvmPart::Gc),
    ]
    .iter()
    .find_map(|&(start, part)| Some((part, line.strip_prefix(start)?)))?;
    let numbers = addresses(rest);
    let start = *numbers.first()?;
    let end = match part {
        // `0x0000000687400000, size: 6028 MB, …`
        JvmPart::JavaHeap => {
            let (_, size) = rest.split_once("size: ")?;
            let megabytes: u64 = size.split(' ').next()?.parse().ok()?;
            start.checked_add(megabytes.checked_mul(1 << 20)?)?
        }
        // Up to JDK 15: ` size: 1073741824 Address: 0x0000000800000000`
        JvmPart::ClassSpace if rest.starts_with(" size: ") => {
            start.checked_add(rest[" size: ".len()..].split(' ').next()?.parse().ok()?)?
        }
        // `[0x…-0x…-0x…)`: the parts of the archive that are mapped read-only and read-write, one after the other.
        JvmPart::SharedClasses => *numbers.get(..3)?.last()?,
        _ => *numbers.get(1)?,
    };
    made((start, end), part)
}

fn made((start, end): (u64, u64), part: JvmPart) -> Option<JvmArea> {
    (start < end).then_some(JvmArea { start, end, part })
}

/// All numbers that are written as `0x…`.
fn addresses(text: &str) -> Vec<u64> {
    text.split("0x")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
            u64::from_str_radix(&rest[..end], 16).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
Heap address: 0x0000000687400000, size: 6028 MB, Compressed Oops mode: Zero based, Oop shift amount: 3
Narrow klass base: 0x0000000800000000, Narrow klass shift: 0
Compressed class space size: 1073741824 Address: 0x0000000800000000
Card table byte_map: [0x00007f49a5e74000,0x00007f49a6a3a000] _byte_map_base: 0x00007f49a2a3a000
Marking Bits (Prev, Next): (CMBitMap*) 0x00007f49b8052978, (CMBitMap*) 0x00007f49b80529b0
 Prev Bits: [0x00007f499a1d0000, 0x00007f49a0000000)
 Next Bits: [0x00007f49943a0000, 0x00007f499a1d0000)
vm_info: OpenJDK 64-Bit Server VM (11.0.13+8) for linux-amd64 JRE (11.0.13+8), built on Oct 19 2021
";

    const NEW: &str = "\
CDS archive(s) mapped at: [0x00007f80f2000000-0x00007f80f2c5a000-0x00007f80f2e00000), size 14680064
Compressed class space mapped at: 0x0000000073000000-0x00000000b3000000, reserved size: 1073741824
 Bits: [0x00007f80c6fd0000, 0x00007f80cce00000)
Heap address: nowhere, size: many MB
";

    fn found(info: &str) -> Vec<(JvmPart, u64, u64)> {
        areas(info).iter().map(|area| (area.part, area.start, area.end)).collect()
    }

    #[test]
    fn parts_of_the_address_space() {
        assert_eq!(
            found(OLD),
            [
                (JvmPart::JavaHeap, 0x6_8740_0000, 0x8_0000_0000),
                (JvmPart::ClassSpace, 0x8_0000_0000, 0x8_4000_0000),
                (JvmPart::Gc, 0x7f49_a5e7_4000, 0x7f49_a6a3_a000),
                (JvmPart::Gc, 0x7f49_9a1d_0000, 0x7f49_a000_0000),
                (JvmPart::Gc, 0x7f49_943a_0000, 0x7f49_9a1d_0000),
            ]
        );
        assert_eq!(
            found(NEW),
            [
                (JvmPart::SharedClasses, 0x7f80_f200_0000, 0x7f80_f2e0_0000),
                (JvmPart::ClassSpace, 0x7300_0000, 0xb300_0000),
                (JvmPart::Gc, 0x7f80_c6fd_0000, 0x7f80_cce0_0000),
            ]
        );
        assert_eq!(version(OLD).as_deref(), Some("OpenJDK 64-Bit Server VM (11.0.13+8)"));
        assert_eq!(version(NEW), None);
    }

    #[test]
    fn the_code_cache_is_of_several_parts() {
        let text = "\
CodeHeap 'non-profiled nmethods': size=120040Kb used=14Kb max_used=14Kb free=120025Kb
 bounds [0x00007f80d48c6000, 0x00007f80d4b36000, 0x00007f80dbe00000]
CodeCache: size=245760Kb, used=1343Kb, max_used=1343Kb, free=244414Kb
 bounds [0x1, 0x2
";
        let found: Vec<_> = code_areas(text).iter().map(|area| (area.start, area.end)).collect();
        assert_eq!(found, [(0x7f80_d48c_6000, 0x7f80_dbe0_0000)]);
    }
}
