//! A timer on every CPU, whose interrupts do something in the middle of what a case does.

use core::sync::atomic::{AtomicU64, Ordering};

use pcpu::CpuId;
use pcpu_boot::{interrupts, timer};

const VECTOR: u8 = 0x40;
const MAX_CPUS: usize = 64;

/// Ticks, over all CPUs, for a case about what falls between two instructions.
pub const MANY: u64 = 3000;
/// Ticks, over all CPUs, for a case that any tick would make fail.
pub const SOME: u64 = 300;

/// Ticks taken by each CPU, kept without the library's help: what is being tried must not count itself.
static TAKEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Ticks taken by that CPU so far.
pub fn taken_on(cpu: CpuId) -> u64 {
    TAKEN[cpu.index()].load(Ordering::SeqCst)
}

/// Ticks taken by all CPUs so far.
pub fn taken() -> u64 {
    CpuId::possible().map(taken_on).sum()
}

/// For a tick's handler: counts the tick.
pub fn count() {
    TAKEN[CpuId::current().index()].fetch_add(1, Ordering::SeqCst);
}

/// Makes `handler` handle the ticks of all CPUs. It has to call [`count`].
pub fn set_handler(handler: interrupts::Handler) {
    interrupts::set_handler(VECTOR, handler);
}

/// Repeats `body` on this CPU while its timer ticks, until the CPU has taken its share of `ticks`. No tick is taken after it returns.
pub fn repeat_while_ticking(ticks: u64, mut body: impl FnMut()) {
    let cpu = CpuId::current();
    let nr_cpus = CpuId::possible().len();
    let end = taken_on(cpu) + ticks.div_ceil(nr_cpus as u64);
    timer::every(period_micros(nr_cpus), VECTOR);
    while taken_on(cpu) < end {
        body();
    }
    timer::stop();
    // A tick that was raised before the stop is taken here.
    pcpu_boot::time::spin_micros(100);
}

/// About 8000 ticks a second over all CPUs: more than a host with few CPUs can deliver leaves the guest no time between them.
fn period_micros(nr_cpus: usize) -> u32 {
    (nr_cpus as u32 * 125).clamp(250, 1000)
}
