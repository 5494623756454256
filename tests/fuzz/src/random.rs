//! Random numbers, the same for the same seed.

use std::ops::Range;

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, case: u64) -> Self {
        let mut mixed = Self(seed);
        Self(mixed.next() ^ case.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `most`, which isn't 0.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    /// A small number, seldom a large one: at least 1, at most `most`.
    pub(crate) fn few(&mut self, most: usize) -> usize {
        let bits = 1 + self.below(usize::BITS as usize - most.leading_zeros() as usize);
        1 + self.below(most.min(1 << bits))
    }

    pub(crate) fn one<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// A part of something with this length, at most `most` long.
    pub(crate) fn range(&mut self, length: usize, most: usize) -> Range<usize> {
        let start = self.below(length + 1);
        let end = start + self.few(most.max(1));
        start..end.min(length)
    }
}
