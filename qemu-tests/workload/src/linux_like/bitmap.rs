//! A bitmap that is searched a word at a time.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

const WORD_BITS: usize = u64::BITS as usize;

#[derive(Debug)]
pub(super) struct Bitmap(Vec<u64>);

impl Bitmap {
    /// All clear.
    pub(super) fn new(nr_bits: usize) -> Self {
        Bitmap(vec![0; nr_bits.div_ceil(WORD_BITS)])
    }

    #[cfg(test)]
    pub(super) fn get(&self, index: usize) -> bool {
        self.0[index / WORD_BITS] >> (index % WORD_BITS) & 1 == 1
    }

    pub(super) fn set(&mut self, index: usize) {
        self.0[index / WORD_BITS] |= 1 << (index % WORD_BITS);
    }

    pub(super) fn set_all(&mut self, range: Range<usize>) {
        self.for_each_word(range, |word, mask| *word |= mask);
    }

    pub(super) fn clear_all(&mut self, range: Range<usize>) {
        self.for_each_word(range, |word, mask| *word &= !mask);
    }

    fn for_each_word(&mut self, range: Range<usize>, mut change: impl FnMut(&mut u64, u64)) {
        let mut start = range.start;
        while start < range.end {
            let nr = (WORD_BITS - start % WORD_BITS).min(range.end - start);
            change(&mut self.0[start / WORD_BITS], (u64::MAX >> (WORD_BITS - nr)) << (start % WORD_BITS));
            start += nr;
        }
    }

    /// The first set bit of the range, or the range's end.
    pub(super) fn next_set(&self, range: Range<usize>) -> usize {
        self.next(range, 0)
    }

    /// The first clear bit of the range, or the range's end.
    pub(super) fn next_clear(&self, range: Range<usize>) -> usize {
        self.next(range, u64::MAX)
    }

    fn next(&self, range: Range<usize>, flip: u64) -> usize {
        let mut start = range.start;
        while start < range.end {
            let bits = (self.0[start / WORD_BITS] ^ flip) >> (start % WORD_BITS);
            if bits != 0 {
                return (start + bits.trailing_zeros() as usize).min(range.end);
            }
            start = (start / WORD_BITS + 1) * WORD_BITS;
        }
        range.end
    }

    /// The bit behind the last set bit of the range, or the range's start.
    pub(super) fn after_last_set(&self, range: Range<usize>) -> usize {
        let mut end = range.end;
        while end > range.start {
            let word = (end - 1) / WORD_BITS;
            let bits = self.0[word] << (WORD_BITS - 1 - (end - 1) % WORD_BITS);
            if bits != 0 {
                return (end - bits.leading_zeros() as usize).max(range.start);
            }
            end = word * WORD_BITS;
        }
        range.start
    }
}
