//! Marks operations in the instruction stream, for whoever watches a kernel from outside: a plugin of QEMU's counts instructions and cache
//! line transfers between two marks (`qemu-tests/conflict-plugin`).
//!
//! A mark is one `nop` with a number in it: it changes no register, no flag and no memory, and costs what a `nop` costs. The names of
//! operations are in the section `.pcpu_markers`, which is not loaded.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! static REQUESTS: AtomicU64 = AtomicU64::new(0);
//!
//! pcpu::marked!(1, "count_request", REQUESTS.fetch_add(1, Ordering::Relaxed));
//! let before = pcpu::marked!(2, "take_requests", REQUESTS.swap(0, Ordering::Relaxed));
//! assert_eq!(before, 1);
//! ```
//!
//! The asm is here and not in `arch`, because numbers and names are known where the macro is expanded only.

use core::arch::asm;

/// How many operations can be told apart.
pub const MAX_OPERATIONS: u16 = 1 << NUMBER_BITS;

const NUMBER_BITS: u32 = 12;
const MAGIC: u32 = 0x5043;

const BEGIN: u32 = 1;
const PART: u32 = 2;
const END: u32 = 3;
const FORGET: u32 = 4;
const SUSPEND: u32 = 5;
const RESUME: u32 = 6;

/// Evaluates an expression as an operation, and gives its value: `marked!(number, "name", expression)`.
///
/// The number is a constant below [`MAX_OPERATIONS`](crate::marker::MAX_OPERATIONS), the same for the same name throughout the kernel.
/// The expression must not leave by `return`, `break` or `?`, must not contain another operation, and must stay on its CPU.
///
/// `marked!(part number, expression)` is a further part of an operation that has begun, maybe on another CPU: it counts as the same
/// execution.
///
/// After the end there is a `pause`, at which QEMU lets the next CPU run: with one thread for all CPUs they take turns by operations.
#[macro_export]
macro_rules! marked {
    (part $number:expr, $operation:expr) => {{
        $crate::marker::part::<{ $number }>();
        let value = $operation;
        $crate::marker::end();
        value
    }};
    ($number:expr, $name:literal, $operation:expr) => {{
        // SAFETY: no instruction: a record in a section that is not loaded.
        unsafe {
            ::core::arch::asm!(
                ".pushsection .pcpu_markers, \"\", @progbits",
                ".short {number}",
                concat!(".asciz \"", $name, "\""),
                ".popsection",
                number = const { $number as u16 },
                options(nomem, nostack, preserves_flags)
            );
        }
        $crate::marker::begin::<{ $number }>();
        let value = $operation;
        $crate::marker::end();
        value
    }};
}

/// A mark. To the compiler it may access all memory, so that no access moves across it.
#[inline(always)]
fn mark<const KIND: u32, const NUMBER: u16>() {
    const { assert!(NUMBER < MAX_OPERATIONS, "the number of an operation has 12 bits") };
    // SAFETY: a `nop`, whose memory operand is not accessed.
    unsafe {
        asm!(
            ".byte 0x0f, 0x1f, 0x80",
            ".long {number}",
            number = const { MAGIC << 16 | KIND << NUMBER_BITS | NUMBER as u32 },
            options(nostack, preserves_flags)
        );
    }
}

/// An operation begins on this CPU. [`marked!`](crate::marked) also names it.
#[inline(always)]
pub fn begin<const NUMBER: u16>() {
    mark::<BEGIN, NUMBER>();
}

/// A further part of an operation begins on this CPU: no new execution.
#[inline(always)]
pub fn part<const NUMBER: u16>() {
    mark::<PART, NUMBER>();
}

/// The operation ends on this CPU, and QEMU lets the next CPU run.
#[inline(always)]
pub fn end() {
    mark::<END, 0>();
    core::hint::spin_loop();
}

/// What was counted for an operation so far was for warming up. Called by one CPU, while no other one is in that operation.
#[inline(always)]
pub fn forget<const NUMBER: u16>() {
    mark::<FORGET, NUMBER>();
}

/// What follows on this CPU is not part of the operation that it is in, as in an interrupt's handler; up to [`resume`].
#[inline(always)]
pub fn suspend() {
    mark::<SUSPEND, 0>();
}

/// The operation goes on.
#[inline(always)]
pub fn resume() {
    mark::<RESUME, 0>();
}
