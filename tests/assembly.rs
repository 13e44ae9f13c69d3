//! Bring-up without the harness: `init` on one thread, the others installed from assembly.

use core::arch::global_asm;
use core::ptr::NonNull;
use pcpu::{AreaLayout, CpuId, DEFAULT_UNIT_BYTES, InstallError, per_cpu};

// What the entry code of another CPU does: its number in edi, a stack, a call.
global_asm!(
    ".globl enter_cpu",
    "enter_cpu:",
    "push rbp",
    "mov rbp, rsp",
    "and rsp, -16",
    "call {install}",
    "leave",
    "ret",
    install = sym pcpu::pcpu_install,
);

unsafe extern "C" {
    fn enter_cpu(cpu: u32) -> u32;
}

per_cpu! {
    static EVENTS: u64 = 10;
}

#[test]
fn a_cpu_that_is_installed_from_assembly_works_in_its_own_area() {
    const NR_CPUS: u32 = 4;
    std::thread::spawn(|| {
        EVENTS.inc();
        let layout = AreaLayout::new(NR_CPUS as usize, DEFAULT_UNIT_BYTES).unwrap();
        let memory = vec![0u8; layout.size_bytes() + layout.align_bytes()].leak();
        let start = memory.as_mut_ptr().expose_provenance().next_multiple_of(layout.align_bytes());
        let start = NonNull::new(core::ptr::with_exposed_provenance_mut(start)).unwrap();
        // SAFETY: leaked memory; this thread is the boot CPU from here to its end, and no other thread touches per-CPU data but as a CPU.
        unsafe { pcpu::init(start, layout.size_bytes(), &layout) }.unwrap();
        assert_eq!(CpuId::current(), CpuId::BOOT);
        assert_eq!(EVENTS.get(), 11);
        for cpu in 1..NR_CPUS {
            // One after the other; each is that CPU to its end.
            let on_cpu = move || {
                // SAFETY: this thread is that CPU.
                let (first, again) = unsafe { (enter_cpu(cpu), enter_cpu(cpu)) };
                assert_eq!((first, again), (0, InstallError::AlreadyInstalled as u32));
                assert_eq!(CpuId::current().as_u32(), cpu);
                EVENTS.add(u64::from(cpu));
                assert_eq!(EVENTS.get(), 10 + u64::from(cpu));
            };
            std::thread::spawn(on_cpu).join().unwrap();
        }
        // SAFETY: fails.
        assert_eq!(unsafe { enter_cpu(NR_CPUS) }, InstallError::UnknownCpu as u32);
        assert_eq!(EVENTS.get(), 11, "this thread is still the boot CPU");
        assert_eq!(EVENTS.sum(), 11 + 11 + 12 + 13);
    })
    .join()
    .unwrap();
}
