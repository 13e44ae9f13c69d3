//! The log: defmt frames out of QEMU's debug console port, from any CPU, in interrupts and while panicking.
//!
//! One frame at a time, under a lock with interrupts off. The lock knows its owner, because it is not always free when it is needed:
//! * the owner itself comes again (an exception or a panic inside a statement): its open frame is cut off, which costs that line only,
//!   as a decoder starts afresh at the next frame's leading zero;
//! * a panicking CPU waits for another owner only so long, then takes the lock away. The former owner's further bytes are dropped.

use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, Ordering},
};

use defmt::Encoder;
use x86_64::instructions::{interrupts, port::Port};

use crate::{cpu, panic, time};

const DEBUG_CONSOLE_PORT: u16 = 0xe9;
const NO_OWNER: u32 = u32::MAX;
/// About a second: an owner whom the host does not let run for that long is taken to be stuck.
const PATIENCE_CYCLES: u64 = 3_000_000_000;
/// For the byte that a former owner may be writing.
const GRACE_CYCLES: u64 = 10_000_000;

/// The number of the CPU that writes a frame.
static OWNER: AtomicU32 = AtomicU32::new(NO_OWNER);

struct State {
    encoder: Encoder,
    /// Frames that the owner has begun and not released: more than one when statements nest.
    depth: u32,
    /// Whether the innermost of them may still be written.
    open: bool,
    /// Whether interrupts were on before the outermost.
    interrupts_were_on: bool,
}

struct Shared(UnsafeCell<State>);

// SAFETY: only `OWNER` accesses it, with interrupts off.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(State { encoder: Encoder::new(), depth: 0, open: false, interrupts_were_on: false }));

#[defmt::global_logger]
struct Console;

defmt::timestamp!("{=u64:us} cpu{=u32}", time::micros_since_boot(), cpu::number());

// SAFETY: between `acquire` and `release` no other CPU writes, by `OWNER`, and no other code on this CPU without its cutting the open
// frame off first.
unsafe impl defmt::Logger for Console {
    fn acquire() {
        let interrupts_were_on = interrupts::are_enabled();
        interrupts::disable();
        let me = cpu::number();
        let nested = lock(me);
        // SAFETY: this CPU is the owner, interrupts are off, and the reference ends with this function.
        let state = unsafe { &mut *STATE.0.get() };
        if !nested {
            state.interrupts_were_on = interrupts_were_on;
            state.depth = 0;
        }
        if nested || state.open {
            // A new encoder's first byte is a zero, the end of a frame that was left open.
            state.encoder = Encoder::new();
        }
        state.depth += 1;
        state.open = true;
        state.encoder.start_frame(|bytes| put(me, bytes));
    }

    unsafe fn flush() {}

    unsafe fn release() {
        let me = cpu::number();
        if OWNER.load(Ordering::Relaxed) != me {
            // Taken away by a panicking CPU: the machine is about to end.
            return;
        }
        // SAFETY: as in `acquire`.
        let state = unsafe { &mut *STATE.0.get() };
        if state.open {
            state.encoder.end_frame(|bytes| put(me, bytes));
            state.open = false;
        }
        state.depth -= 1;
        if state.depth == 0 {
            let interrupts_were_on = state.interrupts_were_on;
            OWNER.store(NO_OWNER, Ordering::Release);
            if interrupts_were_on {
                interrupts::enable();
            }
        }
    }

    unsafe fn write(bytes: &[u8]) {
        let me = cpu::number();
        if OWNER.load(Ordering::Relaxed) != me {
            return;
        }
        // SAFETY: as in `acquire`.
        let state = unsafe { &mut *STATE.0.get() };
        if state.open {
            state.encoder.write(bytes, |bytes| put(me, bytes));
        }
    }
}

/// Makes `me` the owner. True if it was already.
fn lock(me: u32) -> bool {
    let start = time::tsc();
    loop {
        match OWNER.compare_exchange_weak(NO_OWNER, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return false,
            Err(owner) if owner == me => return true,
            Err(owner) if panic::is_reported_by(me) && time::tsc().wrapping_sub(start) > PATIENCE_CYCLES => {
                if OWNER.compare_exchange(owner, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    let taken = time::tsc();
                    while time::tsc().wrapping_sub(taken) < GRACE_CYCLES {
                        core::hint::spin_loop();
                    }
                    return false;
                }
            }
            Err(_) => core::hint::spin_loop(),
        }
    }
}

fn put(me: u32, bytes: &[u8]) {
    let mut port = Port::<u8>::new(DEBUG_CONSOLE_PORT);
    for &byte in bytes {
        if OWNER.load(Ordering::Relaxed) == me {
            // SAFETY: the port belongs to the debug console, or to nobody.
            unsafe { port.write(byte) };
        }
    }
}
