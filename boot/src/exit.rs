//! Ending the machine through QEMU's `isa-debug-exit`.

use x86_64::instructions::{hlt, interrupts, port::Port};

const DEBUG_EXIT_PORT: u16 = 0xf4;

/// What a kernel has to say at its end. QEMU's exit status is `2 * value + 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Exit {
    /// All is well.
    Success = 0x10,
    /// A test failed.
    Failure = 0x11,
    /// A CPU panicked.
    Panic = 0x12,
}

/// Ends the machine.
pub fn exit(exit: Exit) -> ! {
    interrupts::disable();
    // SAFETY: the port belongs to the exit device, or to nobody.
    unsafe { Port::<u32>::new(DEBUG_EXIT_PORT).write(exit as u32) };
    halt()
}

/// Stops this CPU: QEMU acts on the exit port some time after the write.
pub(crate) fn halt() -> ! {
    interrupts::disable();
    loop {
        hlt();
    }
}
