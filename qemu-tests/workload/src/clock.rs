//! The time-stamp counter, which a kernel and a native thread read alike.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};

static TICKS_PER_SECOND: AtomicU64 = AtomicU64::new(0);

/// This CPU's time-stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: every x86_64 processor has it, and nothing here runs where it may not be read.
    unsafe { _rdtsc() }
}

/// Says how fast it counts; whoever measured that calls this before the first round.
pub fn set_ticks_per_second(rate: u64) {
    TICKS_PER_SECOND.store(rate, Ordering::Relaxed);
}

/// How fast it counts; 0 if nobody said so.
pub fn ticks_per_second() -> u64 {
    TICKS_PER_SECOND.load(Ordering::Relaxed)
}
