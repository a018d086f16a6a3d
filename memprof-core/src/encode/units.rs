//! Numbers as people read them.

const KIB: f64 = 1024.0;
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes with a binary unit, to one decimal: `512 B`, `100.0 MiB`.
#[must_use]
pub fn bytes(bytes: f64) -> String {
    let rounded = bytes.round();
    if rounded < KIB {
        return format!("{rounded:.0} B");
    }
    let mut value = bytes / KIB;
    let mut unit = 0;
    // What would print as 1024.0 takes the next unit.
    while value >= KIB - 0.05 && unit + 1 < UNITS.len() {
        value /= KIB;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A number of things, rounded, in groups of three digits: `1,234,567`.
#[must_use]
pub fn count(count: f64) -> String {
    let digits = format!("{:.0}", count.round());
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A time span given in nanoseconds, in its two largest units: `2.5 s`, `3 min 20 s`, `1 h 2 min`.
#[must_use]
pub fn duration(nanoseconds: u64) -> String {
    let tenths = nanoseconds.saturating_add(50_000_000) / 100_000_000;
    let seconds = tenths / 10;
    match seconds {
        0..60 => format!("{seconds}.{} s", tenths % 10),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// `part` of `whole` in percent, to one decimal. Only all of it is `100 %`, and only nothing `0 %`.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if part == 0 {
        return "0 %".into();
    }
    if part >= whole {
        return "100 %".into();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    format!("{:.1} %", percent.clamp(0.1, 99.9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(1023.4), "1023 B");
        assert_eq!(bytes(1023.9), "1.0 KiB");
        assert_eq!(bytes(104_857_600.0), "100.0 MiB");
        assert_eq!(bytes(1_048_575.9), "1.0 MiB");
        assert_eq!(bytes(2e18), "1.7 EiB");
        assert_eq!(count(999.6), "1,000");
        assert_eq!(count(12.0), "12");
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(duration(2_540_000_000), "2.5 s");
        assert_eq!(duration(59_960_000_000), "1 min 0 s");
        assert_eq!(duration(3_725_000_000_000), "1 h 2 min");
        assert_eq!(duration(90_000_000_000_000), "1 d 1 h");
        assert_eq!(percent(1, 100_000), "0.1 %");
        assert_eq!(percent(99_999, 100_000), "99.9 %");
        assert_eq!(percent(0, 0), "0 %");
        assert_eq!(percent(7, 7), "100 %");
    }
}
