//! The local APIC in xAPIC mode: this CPU's APIC id, acknowledging interrupts, interrupting other CPUs.

use x86_64::{
    instructions::{interrupts::without_interrupts, port::Port},
    registers::model_specific::Msr,
};

use crate::{interrupts, smp};

/// The vector of interrupts that went away before they were delivered. They are ignored, and not acknowledged.
pub const SPURIOUS_VECTOR: u8 = 0xff;

const IA32_APIC_BASE: u32 = 0x1b;
/// Address of the registers: where every machine has them after reset, and nobody moves them.
const BASE: usize = 0xfee0_0000;
const BASE_MASK: u64 = 0xf_ffff_f000;
const X2APIC_ENABLED: u64 = 1 << 10;

const SOFTWARE_ENABLE: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const DELIVERY_PENDING: u32 = 1 << 12;
const ASSERT: u32 = 1 << 14;
const ALL_OTHERS: u32 = 0b11 << 18;
const INIT: u32 = 0b101 << 8;
const STARTUP: u32 = 0b110 << 8;

/// The registers, by their offset in bytes.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Register {
    Id = 0x20,
    EndOfInterrupt = 0xb0,
    SpuriousVector = 0xf0,
    CommandLow = 0x300,
    CommandHigh = 0x310,
    TimerEntry = 0x320,
    Line0Entry = 0x350,
    Line1Entry = 0x360,
    TimerInitialCount = 0x380,
    TimerCurrentCount = 0x390,
    TimerDivider = 0x3e0,
}

fn address(register: Register) -> *mut u32 {
    core::ptr::with_exposed_provenance_mut(BASE + register as usize)
}

pub(crate) fn read(register: Register) -> u32 {
    // SAFETY: the registers are mapped, uncached; reading one has no effect.
    unsafe { address(register).read_volatile() }
}

/// # Safety
///
/// The value means to the APIC what the caller may do.
pub(crate) unsafe fn write(register: Register, value: u32) {
    // SAFETY: the registers are mapped, uncached; the caller knows the effect.
    unsafe { address(register).write_volatile(value) };
}

/// Masks every input of the two 8259s, which the firmware left in use.
pub(crate) fn mask_legacy_controllers() {
    for data_port in [0x21, 0xa1] {
        // SAFETY: the controllers' mask registers; the boot CPU is alone.
        unsafe { Port::<u8>::new(data_port).write(0xff) };
    }
}

/// Turns this CPU's local APIC on, with nothing but inter-processor interrupts let in.
pub(crate) fn enable() {
    // SAFETY: the MSR exists on every x86_64 processor.
    let base = unsafe { Msr::new(IA32_APIC_BASE).read() };
    assert!(
        base & X2APIC_ENABLED == 0 && base & BASE_MASK == BASE as u64,
        "the local APIC is not in xAPIC mode at {BASE:#x}: IA32_APIC_BASE is {base:#x}"
    );
    interrupts::set_handler(SPURIOUS_VECTOR, |_| ());
    // SAFETY: fewer interrupts than before, and the spurious one, which is handled.
    unsafe {
        write(Register::TimerEntry, MASKED);
        write(Register::Line0Entry, MASKED);
        write(Register::Line1Entry, MASKED);
        write(Register::SpuriousVector, SOFTWARE_ENABLE | u32::from(SPURIOUS_VECTOR));
    }
}

/// This CPU's local APIC id.
pub fn id() -> u32 {
    read(Register::Id) >> 24
}

/// Tells the local APIC that the interrupt in service is handled.
pub(crate) fn end_of_interrupt() {
    // SAFETY: only `interrupts::dispatch` calls it, in a handler.
    unsafe { write(Register::EndOfInterrupt, 0) };
}

fn command(high: u32, low: u32) {
    // An interrupt between the two writes could send something itself.
    without_interrupts(|| {
        // SAFETY: the callers below send what the receivers can handle.
        unsafe {
            write(Register::CommandHigh, high);
            write(Register::CommandLow, low);
        }
        while read(Register::CommandLow) & DELIVERY_PENDING != 0 {
            core::hint::spin_loop();
        }
    });
}

/// Interrupts one CPU, which may be this one.
pub fn send(cpu: pcpu::CpuId, vector: u8) {
    command(smp::apic_id_of(cpu) << 24, ASSERT | u32::from(vector));
}

/// Interrupts all CPUs but this one.
pub fn send_to_all_others(vector: u8) {
    command(0, ALL_OTHERS | ASSERT | u32::from(vector));
}

/// Resets all CPUs but this one; they wait for a start-up interrupt.
///
/// # Safety
///
/// Nothing runs on them.
pub(crate) unsafe fn send_init_to_all_others() {
    command(0, ALL_OTHERS | ASSERT | INIT);
}

/// Starts all CPUs that wait for it at the page of that number, in 16-bit mode.
///
/// # Safety
///
/// Code that begins a CPU lies there.
pub(crate) unsafe fn send_startup_to_all_others(page: u8) {
    command(0, ALL_OTHERS | ASSERT | STARTUP | u32::from(page));
}
