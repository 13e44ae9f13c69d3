//! A word for who touches per-CPU data on a thread that is no CPU: without it the process only dies by SIGSEGV, where nothing points at the cause.

use core::mem::MaybeUninit;
use core::ptr;
use std::sync::OnceLock;

use super::{IRQS, Irqs};
use crate::arch;

const HINT: &str = "pcpu::host: this thread is no CPU of the machine's. Per-CPU data is used, and counters and boxes are dropped, \
                    inside `Machine::run` or `Machine::on_boot_cpu`\n";

/// A GS base from which neither an address in a program's image nor one of an object's leads to memory: half of what a process may map.
const NOWHERE: usize = 1 << 46;

/// Makes this thread, if it is no CPU, fault wherever it touches per-CPU data, and not only where there happens to be no memory.
pub(super) fn provoke() {
    if IRQS.get() == Irqs::NoCpu {
        // SAFETY: below 2^47, so canonical; the thread is no CPU and touches no per-CPU data, by the contract of `boot`, and would fault if it did.
        unsafe { arch::set_gs_base(NOWHERE) };
    }
}

/// The handler before this one: the standard library's, which tells stack overflows.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// From now on such a fault is explained before it ends the process.
pub(super) fn explain() {
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: an action of zeroes is the default one, and both pointers are to actions. The handler calls what may be called in one.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGSEGV, ptr::null(), before.as_mut_ptr()) == 0 && BEFORE.set(before.assume_init()).is_ok() {
            libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
        }
    }
}

/// Returns to the instruction that faulted, which then meets the handler that was there before.
extern "C" fn on_fault(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: a string's bytes, and an action that the system gave.
    unsafe {
        if IRQS.get() == Irqs::NoCpu {
            libc::write(libc::STDERR_FILENO, HINT.as_ptr().cast(), HINT.len());
        }
        libc::sigaction(libc::SIGSEGV, BEFORE.get().map_or(ptr::null(), ptr::from_ref), ptr::null_mut());
    }
}
