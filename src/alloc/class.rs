//! Size classes.

use crate::area::LINE_BYTES;

/// The smallest object, and the smallest alignment.
pub(super) const MIN_BYTES: usize = 8;

/// The largest object of a class. Larger ones are runs of blocks.
pub(super) const MAX_CLASS_BYTES: usize = 2048;

/// How many classes there are: the powers of two from 8 to 2048. Powers of two, so that every object is aligned to its size and a line never
/// holds parts of more objects than it must.
pub(super) const NR_CLASSES: usize = (MAX_CLASS_BYTES / MIN_BYTES).ilog2() as usize + 1;

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u8);

impl Class {
    /// The class of objects of that size and alignment, if one is large enough. The alignment is a power of two.
    #[inline(always)]
    pub(super) const fn of(size_bytes: usize, align_bytes: usize) -> Option<Class> {
        let wanted = if size_bytes > align_bytes { size_bytes } else { align_bytes };
        if wanted > MAX_CLASS_BYTES || size_bytes == 0 || !align_bytes.is_power_of_two() {
            return None;
        }
        let wanted = if wanted > MIN_BYTES { wanted } else { MIN_BYTES };
        Some(Class((wanted.next_power_of_two().ilog2() - MIN_BYTES.ilog2()) as u8))
    }

    #[inline(always)]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// What an object of the class takes, in bytes.
    #[inline(always)]
    pub(super) const fn bytes(self) -> usize {
        MIN_BYTES << self.0
    }

    pub(super) fn all() -> impl Iterator<Item = Class> {
        (0..NR_CLASSES as u8).map(Class)
    }
}

// Objects up to a line are aligned by their class alone, whatever the alignment of the unit beyond a line.
const _: () = assert!(MAX_CLASS_BYTES >= LINE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_large_enough_aligned_and_not_twice_too_large() {
        for align_bytes in [1, 2, 4, 8, 16, 32, 64, 512, 2048] {
            for size_bytes in 1..=MAX_CLASS_BYTES {
                let class = Class::of(size_bytes, align_bytes).unwrap();
                assert!(class.bytes() >= size_bytes && class.bytes().is_multiple_of(align_bytes));
                assert!(class.bytes() < 2 * size_bytes.max(align_bytes).max(MIN_BYTES / 2 + 1));
            }
        }
        assert_eq!(Class::all().last().unwrap().bytes(), MAX_CLASS_BYTES);
        assert_eq!(Class::of(MAX_CLASS_BYTES + 1, 1), None);
        assert_eq!(Class::of(8, 4096), None);
        assert_eq!(Class::of(0, 1), None);
        assert_eq!(Class::of(8, 3), None);
    }
}
