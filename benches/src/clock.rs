//! Time, and the unit that it is stated in: an addition to this CPU's copy of a word.

use core::arch::asm;
use core::hint::black_box;
use pcpu::PerCpuBox;
use rustix::time::{ClockId, clock_gettime};

/// What this thread executed so far, in nanoseconds. While another thread has the core, it stands still.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds that `work` takes.
pub fn time(work: impl FnOnce()) -> f64 {
    let start = now();
    work();
    now() - start
}

/// Nanoseconds for each of `nr` calls of `operation`.
pub fn time_each(nr: usize, mut operation: impl FnMut()) -> f64 {
    time(|| (0..nr).for_each(|_| operation())) / nr as f64
}

/// Additions that are timed at once: about 50 us.
const NR_ADDS: usize = 150_000;

/// Nanoseconds for one `add` through GS, in a loop that does nothing else, with the address in a register.
pub fn gs_add(word: &PerCpuBox<u64>) -> f64 {
    const UNROLLED: usize = 10;
    let address = black_box(word.template_address());
    time(|| {
        // SAFETY: a word of the library's, which is only added to, one instruction each.
        unsafe {
            asm!(
                "2:",
                ".rept {unrolled}",
                "add qword ptr gs:[{address}], 1",
                ".endr",
                "dec {nr}",
                "jnz 2b",
                unrolled = const UNROLLED,
                address = in(reg) address,
                nr = inout(reg) NR_ADDS / UNROLLED => _,
                options(nostack)
            );
        }
    }) / NR_ADDS as f64
}
