//! Who handles which interrupt vector.

use core::{
    mem,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use x86_64::{registers::control::Cr2, structures::idt::ExceptionVector};

use crate::apic;

/// The first vector that is not an exception's.
pub const FIRST_DEVICE_VECTOR: u8 = 32;

/// What an interrupt found: the registers that its entry saved, and what the processor pushed.
#[derive(Debug)]
#[repr(C)]
pub struct Frame {
    /// r11, r10, r9, r8, rdi, rsi, rdx, rcx and rax.
    pub saved_registers: [u64; 9],
    /// The vector.
    pub vector: u64,
    /// The processor's error code, 0 for vectors without one.
    pub error_code: u64,
    /// Where the interrupted code goes on.
    pub rip: u64,
    /// Its code segment.
    pub cs: u64,
    /// Its flags.
    pub rflags: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// Its stack segment.
    pub ss: u64,
}

/// Handles one vector, with interrupts off, on that vector's interrupt stack of 8 KiB. It must not block.
pub type Handler = fn(&Frame);

/// `Handler`s, null where there is none.
static HANDLERS: [AtomicPtr<()>; 256] = [const { AtomicPtr::new(null_mut()) }; 256];

/// Makes `handler` handle a vector on all CPUs, in place of the one before.
///
/// Vectors from [`FIRST_DEVICE_VECTOR`] on are taken to come from the local APIC and are acknowledged to it after the handler.
/// An interrupt without a handler is a panic.
pub fn set_handler(vector: u8, handler: Handler) {
    HANDLERS[usize::from(vector)].store(handler as *mut (), Ordering::Release);
}

/// Called by `idt`'s stubs.
pub(crate) extern "C" fn dispatch(frame: &Frame) {
    let handler = HANDLERS[frame.vector as usize].load(Ordering::Acquire);
    if handler.is_null() {
        unhandled(frame);
    }
    // SAFETY: what is not null was a `Handler`.
    let handler: Handler = unsafe { mem::transmute(handler) };
    handler(frame);
    if frame.vector >= FIRST_DEVICE_VECTOR.into() && frame.vector != apic::SPURIOUS_VECTOR.into() {
        apic::end_of_interrupt();
    }
}

fn unhandled(frame: &Frame) -> ! {
    let Frame { vector, error_code, rip, rsp, .. } = frame;
    match ExceptionVector::try_from(*vector as u8) {
        Ok(exception) => panic!(
            "exception {vector} ({exception:?}) without a handler: error code {error_code:#x}, rip {rip:#x}, rsp {rsp:#x}, cr2 {:#x}",
            Cr2::read_raw()
        ),
        Err(_) => panic!("interrupt {vector:#x} without a handler: rip {rip:#x}"),
    }
}
