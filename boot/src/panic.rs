//! A panic on any CPU is reported in one line and ends the machine.

use core::sync::atomic::{AtomicU32, Ordering};

const NOBODY: u32 = u32::MAX;

/// The number of the first CPU that panicked. Only it reports; others stop.
static REPORTER: AtomicU32 = AtomicU32::new(NOBODY);

/// Whether that CPU is the one that reports a panic.
pub(crate) fn is_reported_by(cpu: u32) -> bool {
    REPORTER.load(Ordering::Relaxed) == cpu
}

#[cfg(pcpu_kernel)]
mod handler {
    use core::{
        panic::PanicInfo,
        sync::atomic::{AtomicU32, Ordering},
    };

    use super::{NOBODY, REPORTER};
    use crate::{
        cpu,
        exit::{Exit, exit, halt},
    };

    /// How often the reporter panicked.
    static NR_PANICS: AtomicU32 = AtomicU32::new(0);

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        x86_64::instructions::interrupts::disable();
        let cpu = cpu::number();
        if let Err(reporter) = REPORTER.compare_exchange(NOBODY, cpu, Ordering::Relaxed, Ordering::Relaxed)
            && reporter != cpu
        {
            halt();
        }
        let (file, line, column) = info.location().map_or(("?", 0, 0), |at| (at.file(), at.line(), at.column()));
        match NR_PANICS.fetch_add(1, Ordering::Relaxed) {
            0 => {
                let message = defmt::Display2Format(&info.message());
                defmt::error!("@panic cpu={=u32} {=str}:{=u32}:{=u32}: {}", cpu, file, line, column, message);
            }
            // The message itself panicked.
            1 => defmt::error!("@panic cpu={=u32} {=str}:{=u32}:{=u32}: panicked while reporting a panic", cpu, file, line, column),
            _ => {}
        }
        exit(Exit::Panic)
    }
}
