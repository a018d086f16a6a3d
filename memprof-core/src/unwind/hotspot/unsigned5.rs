//! UNSIGNED5: how HotSpot compresses numbers in debug information and line tables.
//!
//! A number takes one to five bytes, six bits more in each. A byte of 192 or more says that another one
//! follows, unless it is the fifth. From JDK 20 on (`src/hotspot/share/utilities/unsigned5.hpp`) each byte is
//! one more than its value, so that none is zero; before (`src/hotspot/share/code/compressedStream.hpp`) it is
//! the value itself.

/// Bytes of the longest number.
pub(super) const MAX_BYTES: usize = 5;

/// Bytes from this one on have a successor.
const CONTINUED: u8 = 192;

/// Reads numbers one after the other.
pub(super) struct Unsigned5<'a> {
    bytes: &'a [u8],
    /// What is added to each byte: see [`super::layout::Layout::unsigned5_bias`].
    bias: u8,
}

impl<'a> Unsigned5<'a> {
    /// Reads from the start of `bytes`.
    pub(super) fn new(bytes: &'a [u8], bias: u8) -> Self {
        Self { bytes, bias }
    }

    /// A single byte that is no number.
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    /// How many bytes are left.
    pub(super) fn rest(&self) -> usize {
        self.bytes.len()
    }

    /// The next number; `None` when it is cut off, or none.
    pub(super) fn unsigned(&mut self) -> Option<u32> {
        let mut sum: u32 = 0;
        for i in 0..MAX_BYTES as u32 {
            let byte = self.byte()?;
            let value = u32::from(byte.checked_sub(self.bias)?);
            sum = sum.wrapping_add(value << (6 * i));
            if byte < CONTINUED {
                break;
            }
        }
        Some(sum)
    }

    /// The next number, whose lowest bit is its sign.
    pub(super) fn signed(&mut self) -> Option<i32> {
        let coded = self.unsigned()?;
        Some((coded >> 1) as i32 ^ -((coded & 1) as i32))
    }
}

/// Writes a number, for the inputs of tests.
#[cfg(test)]
pub(super) fn encode(mut number: u32, bias: u8) -> Vec<u8> {
    let low = u32::from(CONTINUED) - u32::from(bias);
    let mut bytes = Vec::new();
    while number >= low && bytes.len() < MAX_BYTES - 1 {
        let rest = number - low;
        bytes.push((low + rest % 64) as u8 + bias);
        number = rest / 64;
    }
    bytes.push(number as u8 + bias);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_forms() {
        // Worked by hand from the definition: sum of (byte - bias) * 64^i.
        for (bytes, bias, number) in [
            (&[0][..], 0, 0_u32),
            (&[191], 0, 191),
            (&[192, 0], 0, 192),
            (&[255, 1], 0, 255 + 64),
            (&[192, 192, 192, 192, 192], 0, 0xc30c_30c0),
            (&[1], 1, 0),
            (&[191], 1, 190),
            (&[192, 1], 1, 191),
            (&[255, 3], 1, 254 + 2 * 64),
        ] {
            assert_eq!(Unsigned5::new(bytes, bias).unsigned(), Some(number), "{bytes:?}");
        }
        for bias in [0, 1] {
            for number in [0, 1, 189, 190, 191, 192, 255, 12_000, 65_535, 1 << 20, u32::MAX] {
                let bytes = encode(number, bias);
                let mut stream = Unsigned5::new(&bytes, bias);
                assert_eq!((stream.unsigned(), stream.byte()), (Some(number), None), "{bytes:?}");
            }
        }
    }

    #[test]
    fn signs_are_the_lowest_bit() {
        let signed = |coded| Unsigned5::new(&encode(coded, 0), 0).signed();
        let numbers = [0, 1, 2, 3, u32::MAX - 1, u32::MAX].map(signed);
        assert_eq!(numbers, [Some(0), Some(-1), Some(1), Some(-2), Some(i32::MAX), Some(i32::MIN)]);
    }

    #[test]
    fn what_is_no_number_is_none() {
        for (bytes, bias) in
            [(&[][..], 0), (&[200], 0), (&[192, 192, 192, 192], 0), (&[0], 1), (&[200, 0], 1)]
        {
            assert_eq!(Unsigned5::new(bytes, bias).unsigned(), None, "{bytes:?}");
        }
    }
}
