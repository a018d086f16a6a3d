//! Line tables: which source line each piece of a method's bytecode comes from.
//!
//! A table follows the bytecodes of its method (`src/hotspot/share/oops/method.hpp`,
//! `CompressedLineNumberReadStream`). It is a list of steps from one pair (bytecode index, line) to the next: a
//! byte with both, or 255 and then two signed numbers. A zero byte ends it.

use super::unsigned5::Unsigned5;

/// Bytecode indices and the lines from them on, in the order of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LineTable {
    pairs: Box<[(u16, u16)]>,
}

impl LineTable {
    /// Reads a table, whose numbers have this [`super::layout::Layout::unsigned5_bias`]. Also returned is how many
    /// bytes it has. `None` when it does not end within `bytes`, or is none.
    pub(super) fn read(bytes: &[u8], bias: u8) -> Option<(Self, usize)> {
        let mut stream = Unsigned5::new(bytes, bias);
        let (mut bci, mut line) = (0_i32, 0_i32);
        let mut pairs = Vec::new();
        loop {
            match stream.byte()? {
                0 => {
                    let length = bytes.len().saturating_sub(stream.rest());
                    return Some((Self { pairs: pairs.into() }, length));
                }
                0xff => {
                    bci = bci.checked_add(stream.signed()?)?;
                    line = line.checked_add(stream.signed()?)?;
                }
                both => {
                    bci = bci.checked_add(i32::from(both >> 3))?;
                    line = line.checked_add(i32::from(both & 7))?;
                }
            }
            pairs.push((u16::try_from(bci).ok()?, u16::try_from(line).ok()?));
        }
    }

    /// The line of a bytecode index: that of the nearest pair at or before it. 0 when there is none.
    pub(super) fn line(&self, bci: u16) -> u16 {
        let mut best = (0, 0);
        for &(start, line) in &self.pairs {
            if start == bci {
                return line;
            }
            // A table need not be in order.
            if start < bci && start >= best.0 {
                best = (start, line);
            }
        }
        best.1
    }

    /// Bytes that it takes.
    pub(super) fn size(&self) -> usize {
        size_of_val(&*self.pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::unsigned5::encode;
    use super::*;

    fn signed(number: i32, bias: u8) -> Vec<u8> {
        encode((number << 1 ^ number >> 31) as u32, bias)
    }

    fn far(bci: i32, line: i32, bias: u8) -> Vec<u8> {
        [vec![0xff], signed(bci, bias), signed(line, bias)].concat()
    }

    #[test]
    fn a_line_holds_up_to_the_next_one() {
        for bias in [0, 1] {
            let near = vec![3 << 3 | 1, 10 << 3 | 7];
            let bytes = [far(0, 1200, bias), near, far(40, -8, bias), vec![0, 9, 9]].concat();
            let (table, length) = LineTable::read(&bytes, bias).unwrap();
            assert_eq!(length, bytes.len() - 2);
            let lines = [0, 2, 3, 12, 13, 52, 53, u16::MAX].map(|bci| table.line(bci));
            assert_eq!(lines, [1200, 1200, 1201, 1201, 1208, 1208, 1200, 1200]);
        }
    }

    #[test]
    fn a_table_need_not_be_in_order() {
        let bytes = [far(20, 5, 0), far(-15, 2, 0), far(10, 40, 0), vec![0]].concat();
        let (table, _) = LineTable::read(&bytes, 0).unwrap();
        assert_eq!([0, 4, 5, 14, 15, 20, 99].map(|bci| table.line(bci)), [0, 0, 7, 7, 47, 5, 5]);
    }

    #[test]
    fn what_is_no_table_is_none() {
        for bytes in [
            vec![],
            vec![9, 9],
            vec![0xff, 200],
            [far(-1, 5, 0), vec![0]].concat(),
            [far(1, 70_000, 0), vec![0]].concat(),
            [far(i32::MAX, 1, 0), far(i32::MAX, 1, 0), vec![0]].concat(),
        ] {
            assert_eq!(LineTable::read(&bytes, 0), None, "{bytes:?}");
        }
        assert_eq!(LineTable::read(&[0], 1), Some((LineTable::default(), 1)));
    }
}
