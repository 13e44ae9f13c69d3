//! Types that one instruction reads, writes or combines.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A value that one instruction loads, stores, exchanges or compare-exchanges: integers up to 64 bits, `bool` and thin pointers.
///
/// # Safety
///
/// The size is 1, 2, 4 or 8 and equals the alignment; `from_bits(to_bits(x))` is `x`. Sealed: not for implementing elsewhere.
pub unsafe trait Word: Copy + sealed::Sealed {
    /// The value, zero-extended.
    #[doc(hidden)]
    fn to_bits(self) -> u64;

    /// The value back from its bits; what lies above the type's width is ignored.
    ///
    /// # Safety
    ///
    /// The bits came from `to_bits`, or are zero.
    #[doc(hidden)]
    unsafe fn from_bits(bits: u64) -> Self;

    /// A relaxed load of another CPU's copy.
    ///
    /// # Safety
    ///
    /// `from` is valid and aligned, and everybody accesses it by atomics of this size or single instructions.
    #[doc(hidden)]
    unsafe fn load_remote(from: *const Self) -> Self;
}

/// A [`Word`] that can be counted with: the integers. Arithmetic wraps, as the instructions do.
///
/// # Safety
///
/// As for [`Word`]; every bit pattern is a value.
pub unsafe trait Integer: Word {
    /// Zero.
    #[doc(hidden)]
    const ZERO: Self;

    /// Wrapping addition.
    #[doc(hidden)]
    fn plus(self, other: Self) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! integers {
    ($($int:ty, $bits:ty, $atomic:ty;)*) => {$(
        impl sealed::Sealed for $int {}

        // SAFETY: an integer of that size, aligned to its size on x86_64; the casts are inverse to each other.
        unsafe impl Word for $int {
            #[inline(always)]
            fn to_bits(self) -> u64 {
                self as $bits as u64
            }

            #[inline(always)]
            unsafe fn from_bits(bits: u64) -> Self {
                bits as Self
            }

            #[inline(always)]
            unsafe fn load_remote(from: *const Self) -> Self {
                // SAFETY: valid, aligned and accessed atomically by the caller's promise.
                unsafe { <$atomic>::from_ptr(from.cast_mut().cast()) }.load(Ordering::Relaxed) as Self
            }
        }

        // SAFETY: every bit pattern is a value of an integer.
        unsafe impl Integer for $int {
            const ZERO: Self = 0;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )*};
}

integers! {
    u8, u8, AtomicU8; u16, u16, AtomicU16; u32, u32, AtomicU32; u64, u64, AtomicU64; usize, u64, AtomicU64;
    i8, u8, AtomicU8; i16, u16, AtomicU16; i32, u32, AtomicU32; i64, u64, AtomicU64; isize, u64, AtomicU64;
}

impl sealed::Sealed for bool {}

// SAFETY: one byte, 0 or 1.
unsafe impl Word for bool {
    #[inline(always)]
    fn to_bits(self) -> u64 {
        self as u64
    }

    #[inline(always)]
    unsafe fn from_bits(bits: u64) -> Self {
        bits as u8 != 0
    }

    #[inline(always)]
    unsafe fn load_remote(from: *const Self) -> Self {
        // SAFETY: valid, aligned and accessed atomically by the caller's promise.
        unsafe { AtomicBool::from_ptr(from.cast_mut()) }.load(Ordering::Relaxed)
    }
}

impl<T> sealed::Sealed for *mut T {}

// SAFETY: 8 bytes; provenance is exposed on the way in and taken up again on the way out.
unsafe impl<T> Word for *mut T {
    #[inline(always)]
    fn to_bits(self) -> u64 {
        self.expose_provenance() as u64
    }

    #[inline(always)]
    unsafe fn from_bits(bits: u64) -> Self {
        core::ptr::with_exposed_provenance_mut(bits as usize)
    }

    #[inline(always)]
    unsafe fn load_remote(from: *const Self) -> Self {
        // SAFETY: valid, aligned and accessed atomically by the caller's promise.
        unsafe { AtomicPtr::from_ptr(from.cast_mut()) }.load(Ordering::Relaxed)
    }
}

impl<T> sealed::Sealed for *const T {}

// SAFETY: as for `*mut T`.
unsafe impl<T> Word for *const T {
    #[inline(always)]
    fn to_bits(self) -> u64 {
        self.expose_provenance() as u64
    }

    #[inline(always)]
    unsafe fn from_bits(bits: u64) -> Self {
        core::ptr::with_exposed_provenance(bits as usize)
    }

    #[inline(always)]
    unsafe fn load_remote(from: *const Self) -> Self {
        // SAFETY: valid, aligned and accessed atomically by the caller's promise.
        unsafe { <*mut T>::load_remote(from.cast()) }
    }
}
