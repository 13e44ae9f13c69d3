//! What only a kernel can show: per-CPU variables and counters on real CPUs, with interrupts.
//!
//! Each case is a claim. The command line chooses: `list`, `filter=SUBSTRING`, `exact`, `skip=SUBSTRING`.

#![cfg_attr(pcpu_kernel, no_std, no_main)]

#[cfg(not(pcpu_kernel))]
fn main() {
    println!("a kernel: run it with `cargo test --config .cargo/kernel-host.toml -p test-kernel`");
}

#[cfg(pcpu_kernel)]
extern crate alloc;

#[cfg(pcpu_kernel)]
mod areas;
#[cfg(pcpu_kernel)]
mod counters;
#[cfg(pcpu_kernel)]
mod harness;
#[cfg(pcpu_kernel)]
mod interrupts;
#[cfg(pcpu_kernel)]
mod memory;
#[cfg(pcpu_kernel)]
mod paged;
#[cfg(pcpu_kernel)]
mod statics;
#[cfg(pcpu_kernel)]
mod ticker;
#[cfg(pcpu_kernel)]
mod tokens;

#[cfg(pcpu_kernel)]
mod kernel {
    use pcpu_boot::BootInfo;

    use crate::{areas, counters, harness, interrupts, memory, paged, statics, tokens};

    pcpu_boot::entry!(main);

    pub const UNIT_BYTES: usize = 128 * 1024;

    fn main(boot: &'static BootInfo) -> ! {
        areas::before_init();
        pcpu_boot::smp::start(boot, UNIT_BYTES);
        pcpu::alloc::set_source(&pcpu::alloc::Heap);
        harness::run(
            boot.command_line,
            &[areas::CASES, statics::CASES, tokens::CASES, interrupts::CASES, memory::CASES, paged::CASES, counters::CASES],
        )
    }
}
