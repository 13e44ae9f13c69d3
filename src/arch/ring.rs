//! Privileged state: the interrupt flag, the GS base, the width of virtual addresses.
//!
//! The same code runs in ring 0 and, for tests on host threads, in ring 3, where the interrupt flag cannot be changed and the GS
//! base is the kernel's to set; each function asks for the current privilege level first.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "host")]
use crate::host as simulated;

/// Without the host harness no thread is a CPU, and there is nothing to interrupt in ring 3.
#[cfg(not(feature = "host"))]
mod simulated {
    pub(super) fn irqs_are_on() -> bool {
        false
    }

    pub(super) fn irq_save_and_disable() -> bool {
        super::enter_template()
    }

    pub(super) fn irq_enable() {
        super::leave_template();
    }
}

const RFLAGS_IF: u64 = 1 << 9;
const CR4_LA57: u64 = 1 << 12;
const CR4_FSGSBASE: u64 = 1 << 16;
const IA32_GS_BASE: u32 = 0xc000_0101;
const SYS_SCHED_YIELD: u64 = 24;
const SYS_ARCH_PRCTL: u64 = 158;
const SYS_GETTID: u64 = 186;
const ARCH_SET_GS: u64 = 0x1001;

fn in_ring0() -> bool {
    let cs: u16;
    // SAFETY: reads a register.
    unsafe { asm!("mov {0:x}, cs", out(reg) cs, options(nomem, nostack, preserves_flags)) };
    cs & 3 == 0
}

fn cr4() -> u64 {
    let cr4: u64;
    // SAFETY: callers are in ring 0, where reading CR4 has no effect.
    unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags)) };
    cr4
}

fn rflags() -> u64 {
    let flags: u64;
    // SAFETY: pushes and pops one word; not `nostack`, so the compiler keeps clear of the red zone.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(nomem, preserves_flags)) };
    flags
}

/// Whether maskable interrupts are on. In ring 3: as the host harness simulates it, else `false`.
pub(crate) fn irqs_are_on() -> bool {
    if in_ring0() { rflags() & RFLAGS_IF != 0 } else { simulated::irqs_are_on() }
}

/// Turns maskable interrupts off and tells whether they were on.
#[inline]
pub(crate) fn irq_save_and_disable() -> bool {
    if in_ring0() {
        let were_on = rflags() & RFLAGS_IF != 0;
        // SAFETY: ring 0 may clear the flag. Not `nomem`: what follows must not move before it.
        unsafe { asm!("cli", options(nostack)) };
        were_on
    } else {
        simulated::irq_save_and_disable()
    }
}

/// Turns maskable interrupts on again if `were_on`.
///
/// # Safety
///
/// `were_on` comes from the [`irq_save_and_disable`] that this call pairs with, on this CPU, innermost first.
#[inline]
pub(crate) unsafe fn irq_restore(were_on: bool) {
    if !were_on {
        return;
    }
    if in_ring0() {
        // SAFETY: they were on before, by the caller's promise. Not `nomem`: what came before must not move after it.
        unsafe { asm!("sti", options(nostack)) };
    } else {
        simulated::irq_enable();
    }
}

/// The thread that has the template for itself; 0 if none has.
static IN_TEMPLATE: AtomicU64 = AtomicU64::new(0);

/// Gives this thread the template for itself, and tells whether it had not before. Waits for other threads.
///
/// In ring 3 every thread that is no CPU of the host harness works in the template, as if it were the boot CPU. They are it one after the
/// other: a token, which keeps everything else off a CPU, keeps them off each other. Elsewhere than on Linux there is no harness, and a
/// program is to have one thread.
pub(crate) fn enter_template() -> bool {
    if !cfg!(target_os = "linux") {
        return false;
    }
    let this_thread = system_call(SYS_GETTID);
    if IN_TEMPLATE.load(Ordering::Relaxed) == this_thread {
        return false;
    }
    while IN_TEMPLATE.compare_exchange_weak(0, this_thread, Ordering::Acquire, Ordering::Relaxed).is_err() {
        system_call(SYS_SCHED_YIELD);
    }
    true
}

/// Ends what an `enter_template` began that returned `true`.
pub(crate) fn leave_template() {
    IN_TEMPLATE.store(0, Ordering::Release);
}

/// A system call of Linux's that takes no arguments and does nothing to memory.
fn system_call(number: u64) -> u64 {
    let result;
    // SAFETY: callers are in ring 3 and name such a call; rcx and r11 are clobbered by `syscall`.
    unsafe { asm!("syscall", inout("rax") number => result, out("rcx") _, out("r11") _, options(nomem, nostack)) };
    result
}

/// The number of significant bits of a virtual address: 57 with five-level paging, else 48.
pub(crate) fn virtual_address_bits() -> u32 {
    if in_ring0() && cr4() & CR4_LA57 != 0 { 57 } else { 48 }
}

/// Loads GS base.
///
/// # Safety
///
/// `base` is canonical, and from here on every `gs:[address]` of this CPU may be `base` further.
pub(crate) unsafe fn set_gs_base(base: usize) {
    if in_ring0() {
        if cr4() & CR4_FSGSBASE != 0 {
            // SAFETY: enabled in CR4; the base is canonical by the caller's promise.
            unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
        } else {
            // SAFETY: the MSR exists on every x86_64 processor; the base is canonical by the caller's promise.
            unsafe {
                asm!("wrmsr", in("ecx") IA32_GS_BASE, in("eax") base as u32, in("edx") (base >> 32) as u32, options(nostack, preserves_flags));
            }
        }
        return;
    }
    // Ring 3 has `wrgsbase` only where the kernel enabled it; the system call is always there.
    // SAFETY: sets this thread's GS base and nothing else; rcx and r11 are clobbered by `syscall`.
    unsafe {
        asm!("syscall", inout("rax") SYS_ARCH_PRCTL => _, in("rdi") ARCH_SET_GS, in("rsi") base, out("rcx") _, out("r11") _, options(nostack));
    }
}
