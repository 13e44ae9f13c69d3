//! Moving the running thread between CPUs whose own threads do not run.

use pcpu::host::{Machine, irq_enable, irq_save_and_disable};
use pcpu::{CpuId, per_cpu};
use std::sync::Mutex;

pub const NR_CPUS: usize = 3;

per_cpu! {
    static LANDMARK: u64 = 0;
}

/// Where an address of template space lies on a CPU.
pub fn copy_on<T>(cpu: CpuId, address: usize) -> *mut T {
    let delta = LANDMARK.ptr_on(cpu).addr().wrapping_sub(LANDMARK.template_address());
    core::ptr::with_exposed_provenance_mut(address.wrapping_add(delta))
}

/// What a scheduler does to a task: from now on the thread is that CPU. A trap handler's return does not undo it.
pub fn migrate_to(cpu: CpuId) {
    const ARCH_SET_GS: usize = 0x1001;
    // SAFETY: the area of a possible CPU on which nobody else runs.
    let outcome = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, copy_on::<u8>(cpu, 0)) };
    assert_eq!(outcome, 0, "arch_prctl");
}

/// The CPU after this one.
pub fn next_cpu() -> CpuId {
    CpuId::new((CpuId::current().as_u32() + 1) % NR_CPUS as u32).expect("possible")
}

/// Runs `f` as a task on another CPU does meanwhile, with interrupts on there.
pub fn on_another_cpu<R>(f: impl FnOnce() -> R) -> R {
    let here = CpuId::current();
    migrate_to(next_cpu());
    let were_on = irq_save_and_disable();
    irq_enable();
    let result = f();
    irq_save_and_disable();
    migrate_to(here);
    if were_on {
        irq_enable();
    }
    result
}

/// Runs `f` on the boot CPU, the only one with a thread.
pub fn on_boot_cpu<R: Send>(f: impl Fn() -> R + Sync) -> R {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: per-CPU data is touched inside `run` only.
    let machine = unsafe { Machine::boot(NR_CPUS) }.expect("the machine boots");
    machine.run(1, |_| f()).remove(0)
}
