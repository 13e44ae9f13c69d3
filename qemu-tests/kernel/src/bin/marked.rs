//! The least kernel that marks operations of its own: a shared word and a per-CPU one, each added to by all CPUs.

#![cfg_attr(pcpu_kernel, no_std, no_main)]

#[cfg(not(pcpu_kernel))]
fn main() {
    println!("a kernel: build it with `--config .cargo/kernel-host.toml`, then `cargo xtask transfers --kernel` it");
}

#[cfg(pcpu_kernel)]
mod kernel {
    use core::sync::atomic::{AtomicU64, Ordering};

    use pcpu::{marked, marker};
    use pcpu_boot::{BootInfo, Exit, exit, smp};

    pcpu_boot::entry!(main);

    static SHARED: AtomicU64 = AtomicU64::new(0);

    pcpu::per_cpu! {
        static OWN: u64 = 0;
    }

    fn main(boot: &'static BootInfo) -> ! {
        smp::start(boot, 64 * 1024);
        // The first execution on each CPU moves lines, whatever it is. When all CPUs have ended it, what it counted is forgotten.
        smp::run_on_all(|_| work());
        marker::forget::<1>();
        marker::forget::<2>();
        smp::run_on_all(|_| (0..100).for_each(|_| work()));
        exit(Exit::Success)
    }

    fn work() {
        marked!(1, "shared_add", SHARED.fetch_add(1, Ordering::Relaxed));
        marked!(2, "own_add", OWN.inc());
    }
}
