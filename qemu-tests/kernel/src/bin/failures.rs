//! Provokes each kind of failure that a runner must tell apart: `kind=` on the command line says which.

#![cfg_attr(pcpu_kernel, no_std, no_main)]

#[cfg(not(pcpu_kernel))]
fn main() {
    println!("a kernel: build it with `--config .cargo/kernel-host.toml` and boot it in QEMU");
}

#[cfg(pcpu_kernel)]
mod kernel {
    extern crate alloc;

    use core::{fmt, ptr};

    use pcpu::CpuId;
    use pcpu_boot::{BootInfo, Exit, exit, smp};

    pcpu_boot::entry!(main);

    const UNIT_BYTES: usize = 128 * 1024;

    fn main(boot: &'static BootInfo) -> ! {
        let kind = boot.command_line.value("kind").unwrap_or("");
        smp::start(boot, UNIT_BYTES);
        match kind {
            "ok" => {
                defmt::println!("@plan 1");
                defmt::println!("@begin nothing");
                defmt::println!("@pass nothing");
                defmt::println!("@end");
                exit(Exit::Success)
            }
            "fail" => {
                defmt::println!("@plan 2");
                defmt::println!("@begin good");
                defmt::println!("@pass good");
                defmt::println!("@begin bad");
                on_last_cpu(|| defmt::warn!("about to fail"));
                defmt::println!("@fail bad: on purpose");
                defmt::println!("@end");
                exit(Exit::Failure)
            }
            "short" => {
                defmt::println!("@plan 2");
                defmt::println!("@begin first");
                defmt::println!("@pass first");
                exit(Exit::Success)
            }
            "no_plan" => exit(Exit::Success),
            "panic" => panic!("on purpose"),
            "panic_ap" => on_last_cpu(|| panic!("on purpose")),
            "panic_in_log" => defmt::println!("never finished: {}", defmt::Display2Format(&PanicsWhenShown)),
            "panic_in_log_ap" => on_last_cpu(|| defmt::println!("never finished: {}", defmt::Display2Format(&PanicsWhenShown))),
            "stuck_in_log" => stuck_in_log(),
            "panic_all" => smp::run_on_all(|cpu| panic!("on purpose, on CPU {cpu}")),
            "panic_in_panic" => panic!("{}", PanicsWhenShown),
            "alloc" => drop(core::hint::black_box(alloc::vec![0_u8; 1 << 40])),
            "null" => {
                // SAFETY: not at all: the page is not mapped, so it faults.
                unsafe { core::hint::black_box(ptr::null_mut::<u8>().wrapping_add(8)).write_volatile(1) };
            }
            "null_ap" => on_last_cpu(|| {
                // SAFETY: not at all: the page is not mapped, so it faults.
                unsafe { core::hint::black_box(ptr::null_mut::<u8>().wrapping_add(8)).write_volatile(1) };
            }),
            "interrupt" => {
                pcpu_boot::apic::send(CpuId::BOOT, 0x77);
                pcpu_boot::time::spin_micros(1_000_000);
            }
            "triple" => triple_fault(),
            "hang" => {
                defmt::println!("@plan 1");
                defmt::println!("@begin endless");
                loop {
                    x86_64::instructions::hlt();
                }
            }
            "silent_hang" => loop {
                x86_64::instructions::hlt();
            },
            _ => panic!("no such kind of failure: {kind:?}"),
        }
        panic!("{kind} did not fail")
    }

    struct PanicsWhenShown;

    impl fmt::Display for PanicsWhenShown {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("on purpose, while being shown")
        }
    }

    /// Takes for ever to be shown, with the log's lock held.
    struct Endless;

    impl fmt::Display for Endless {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                core::hint::spin_loop();
            }
        }
    }

    fn on_last_cpu(action: impl Fn() + Sync) {
        let last = CpuId::possible().len() - 1;
        smp::run_on_all(|cpu| {
            if cpu.index() == last {
                action();
            }
        });
    }

    /// The last CPU never gives the log back; the boot CPU panics.
    fn stuck_in_log() {
        let last = CpuId::possible().len() - 1;
        assert!(last > 0, "wants two CPUs");
        smp::run_on_all(|cpu| {
            if cpu.index() == last {
                defmt::println!("never finished: {}", defmt::Display2Format(&Endless));
            } else if cpu == CpuId::BOOT {
                pcpu_boot::time::spin_micros(200_000);
                panic!("on purpose, while another CPU holds the log");
            }
        });
    }

    /// With an interrupt descriptor table of no entries, an exception ends in a triple fault.
    fn triple_fault() {
        let empty = x86_64::structures::DescriptorTablePointer { limit: 0, base: x86_64::VirtAddr::zero() };
        // SAFETY: the machine ends with the next instruction.
        unsafe { x86_64::instructions::tables::lidt(&empty) };
        x86_64::instructions::interrupts::int3();
    }
}
