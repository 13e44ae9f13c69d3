//! What the kernel's main function is told, and the steps on the boot CPU that lead to it.

use alloc::{boxed::Box, string::String};

use crate::{CommandLine, apic, cpu, entry, fw_cfg, gdt, heap, idt, pvh::Pvh, time};

/// What the boot found.
#[derive(Debug)]
pub struct BootInfo {
    /// How many CPUs the machine has, all of which [`smp::start`](crate::smp::start) starts.
    pub nr_cpus: usize,
    /// The kernel's command line.
    pub command_line: CommandLine,
    /// How much memory the heap manages, in bytes.
    pub heap_bytes: usize,
}

/// Names the kernel's main function, of type `fn(&'static BootInfo) -> !`.
///
/// It runs on the boot CPU with interrupts off and before [`pcpu::init`]: what it does to per-CPU variables there, it does to the
/// template, and the boot CPU keeps it. [`smp::start`](crate::smp::start) comes next.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[unsafe(no_mangle)]
        extern "Rust" fn pcpu_boot_main(boot: &'static $crate::BootInfo) -> ! {
            let main: fn(&'static $crate::BootInfo) -> ! = $main;
            main(boot)
        }
    };
}

unsafe extern "Rust" {
    /// Defined by [`entry!`](crate::entry).
    safe fn pcpu_boot_main(boot: &'static BootInfo) -> !;
}

/// The boot CPU's first Rust function, called once by `entry`'s assembly.
pub(crate) extern "C" fn start_boot_cpu(start_info_address: usize) -> ! {
    // SAFETY: the first and only call on the boot CPU; nothing points into these tables yet.
    unsafe { gdt::load_early() };
    idt::load();
    cpu::enable_features();
    apic::mask_legacy_controllers();
    apic::enable();
    time::calibrate();
    // SAFETY: the address comes from the boot loader, and nothing but the image was written so far.
    let pvh = unsafe { Pvh::at(start_info_address) };
    let heap = heap::usable(pvh);
    let line = pvh.command_line();
    assert!(!heap.contains(&line.as_ptr().addr()), "the command line lies inside the memory that is to become the heap");
    let heap_bytes = heap.len();
    // SAFETY: RAM that neither the image nor the boot loader's data use.
    unsafe { heap::init(heap) };
    let line: &'static str = String::from_utf8_lossy(line).into_owned().leak();
    // SAFETY: the start info and all that it refers to were read above.
    unsafe { entry::unmap_null_page() };
    pcpu_boot_main(Box::leak(Box::new(BootInfo { nr_cpus: fw_cfg::nr_cpus(), command_line: CommandLine::new(line), heap_bytes })))
}
