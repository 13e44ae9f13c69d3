//! The clock: the time-stamp counter, calibrated once against the PIT, together with the local APIC timer.

use core::{
    arch::x86_64::_rdtsc,
    sync::atomic::{AtomicU64, Ordering},
};

use x86_64::instructions::port::Port;

use crate::timer;

const PIT_HZ: u64 = 1_193_182;
const PIT_CHANNEL2_DATA: u16 = 0x42;
const PIT_COMMAND: u16 = 0x43;
/// Channel 2, low byte then high byte, mode 0: the output rises when the count ends.
const PIT_CHANNEL2_ONCE: u8 = 0b1011_0000;
const GATE_PORT: u16 = 0x61;
const GATE: u8 = 1 << 0;
const SPEAKER: u8 = 1 << 1;
const OUTPUT: u8 = 1 << 5;

const MEASURED_HZ: u64 = 100;
/// A host that takes the CPU away makes a measurement too long, never too short: the shortest is the best.
const NR_MEASUREMENTS: usize = 3;

static TSC_AT_BOOT: AtomicU64 = AtomicU64::new(0);
static TSC_HZ: AtomicU64 = AtomicU64::new(0);
static TIMER_HZ: AtomicU64 = AtomicU64::new(0);

/// This CPU's time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: every x86_64 processor has it, and ring 0 may read it.
    unsafe { _rdtsc() }
}

/// How fast [`tsc`] counts.
pub fn tsc_hz() -> u64 {
    TSC_HZ.load(Ordering::Relaxed)
}

/// How fast the local APIC timer counts, as `timer` sets it up.
pub(crate) fn timer_ticks_per_second() -> u64 {
    TIMER_HZ.load(Ordering::Relaxed)
}

/// Microseconds since the boot CPU's first Rust code; 0 until the clock is calibrated.
pub fn micros_since_boot() -> u64 {
    let hz = tsc_hz();
    if hz == 0 {
        return 0;
    }
    let cycles = tsc().saturating_sub(TSC_AT_BOOT.load(Ordering::Relaxed));
    // In two parts, so that no product overflows.
    cycles / hz * 1_000_000 + cycles % hz * 1_000_000 / hz
}

/// Spins for that many microseconds.
pub fn spin_micros(micros: u64) {
    let end = micros_since_boot() + micros;
    while micros_since_boot() < end {
        core::hint::spin_loop();
    }
}

/// Measures both counters. Boot CPU, local APIC on, interrupts off.
pub(crate) fn calibrate() {
    TSC_AT_BOOT.store(tsc(), Ordering::Relaxed);
    let (cycles, ticks) = (0..NR_MEASUREMENTS).map(|_| measure()).min().unwrap_or_default();
    TSC_HZ.store(cycles * MEASURED_HZ, Ordering::Relaxed);
    TIMER_HZ.store(ticks * MEASURED_HZ, Ordering::Relaxed);
}

/// Cycles of the time-stamp counter and ticks of the local APIC timer in 1/[`MEASURED_HZ`] of a second.
fn measure() -> (u64, u64) {
    let [low, high] = ((PIT_HZ / MEASURED_HZ) as u16).to_le_bytes();
    let mut gate = Port::<u8>::new(GATE_PORT);
    let mut data = Port::<u8>::new(PIT_CHANNEL2_DATA);
    // SAFETY: the ports of the PIT's channel 2, which nothing else uses; the speaker stays off.
    unsafe {
        let others = gate.read() & !(GATE | SPEAKER);
        gate.write(others | GATE);
        Port::<u8>::new(PIT_COMMAND).write(PIT_CHANNEL2_ONCE);
        data.write(low);
        data.write(high);
    }
    timer::start_counting();
    let start = tsc();
    // SAFETY: as above.
    while unsafe { gate.read() } & OUTPUT == 0 {
        core::hint::spin_loop();
    }
    let measured = (tsc() - start, timer::ticks_counted().into());
    timer::stop();
    measured
}
