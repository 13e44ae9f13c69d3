//! What precompiled `core` and the compiler expect from a C library, for the host's target. Bare-metal targets bring their own.

use core::arch::asm;

/// # Safety
///
/// As in C: both ranges are valid and do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: valid ranges by the caller's promise; the direction flag is clear by the ABI.
    unsafe {
        asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) bytes % 8,
            inout("rcx") bytes / 8 => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
    to
}

/// # Safety
///
/// As in C: both ranges are valid; they may overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= bytes {
        // SAFETY: forwards, each byte is read before the copy reaches it; byte by byte, as eight at once would not.
        unsafe {
            asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
        }
    } else {
        // SAFETY: backwards from the last byte, for the same reason; the direction flag is clear again at the end.
        unsafe {
            asm!("std", "rep movsb", "cld", inout("rcx") bytes => _, inout("rdi") to.wrapping_add(bytes).wrapping_sub(1) => _,
                inout("rsi") from.wrapping_add(bytes).wrapping_sub(1) => _, options(nostack));
        }
    }
    to
}

/// # Safety
///
/// As in C: the range is valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    let eight = u64::from(value as u8) * 0x0101_0101_0101_0101;
    // SAFETY: a valid range by the caller's promise; the direction flag is clear by the ABI.
    unsafe {
        asm!("rep stosq", "mov rcx, {rest}", "rep stosb", rest = in(reg) bytes % 8,
            inout("rcx") bytes / 8 => _, inout("rdi") to => _, in("rax") eight, options(nostack, preserves_flags));
    }
    to
}

/// # Safety
///
/// As in C: both ranges are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    let mut at = 0;
    while at < bytes {
        // SAFETY: inside both ranges.
        let (l, r) = unsafe { (*left.add(at), *right.add(at)) };
        if l != r {
            return i32::from(l) - i32::from(r);
        }
        at += 1;
    }
    0
}

/// # Safety
///
/// As in C: both ranges are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(left, right, bytes) }
}

/// The compiler turns loops that look for a zero byte into calls of it, so it is not such a loop itself.
///
/// # Safety
///
/// As in C: a zero byte ends the string.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(string: *const u8) -> usize {
    let left: usize;
    // SAFETY: reads up to the zero byte; the direction flag is clear by the ABI.
    unsafe { asm!("repne scasb", inout("rcx") usize::MAX => left, inout("rdi") string => _, in("al") 0_u8, options(nostack, readonly)) };
    // Counted down once for each byte, the zero byte included.
    usize::MAX - left - 1
}

/// Precompiled `core` refers to it; nothing unwinds, so nothing calls it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {
    crate::exit::halt()
}

/// Precompiled `core` refers to it; nothing unwinds, so nothing calls it.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    crate::exit::halt()
}
