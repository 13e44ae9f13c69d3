//! This CPU's local APIC timer.

use crate::{
    apic::{self, Register},
    time,
};

const PERIODIC: u32 = 1 << 17;
const MASKED: u32 = 1 << 16;
const DIVIDE_BY_16: u32 = 0b0011;

/// Raises `vector` on this CPU every `micros` microseconds, in place of what its timer did before.
///
/// # Panics
/// When the period is shorter than a tick of the timer or longer than it can count.
pub fn every(micros: u32, vector: u8) {
    start(micros, PERIODIC | u32::from(vector));
}

/// Raises `vector` on this CPU once, in `micros` microseconds, in place of what its timer did before.
///
/// # Panics
/// As [`every`].
pub fn once(micros: u32, vector: u8) {
    start(micros, u32::from(vector));
}

/// Stops this CPU's timer. An interrupt that it raised already may still be delivered.
pub fn stop() {
    // SAFETY: no interrupt comes from it any more.
    unsafe {
        apic::write(Register::TimerEntry, MASKED);
        apic::write(Register::TimerInitialCount, 0);
    }
}

fn start(micros: u32, entry: u32) {
    let count = u64::from(micros) * time::timer_ticks_per_second() / 1_000_000;
    let count = u32::try_from(count).ok().filter(|&count| count > 0);
    let count = count.unwrap_or_else(|| panic!("the local APIC timer cannot count {micros} us"));
    // SAFETY: the vector's handler is the caller's to set; without one the interrupt is a panic.
    unsafe {
        apic::write(Register::TimerDivider, DIVIDE_BY_16);
        apic::write(Register::TimerEntry, entry);
        apic::write(Register::TimerInitialCount, count);
    }
}

/// Lets the timer count down silently from its highest value, for calibration.
pub(crate) fn start_counting() {
    // SAFETY: masked.
    unsafe {
        apic::write(Register::TimerDivider, DIVIDE_BY_16);
        apic::write(Register::TimerEntry, MASKED);
        apic::write(Register::TimerInitialCount, u32::MAX);
    }
}

/// How far it counted.
pub(crate) fn ticks_counted() -> u32 {
    u32::MAX - apic::read(Register::TimerCurrentCount)
}
