//! Each operation in a function of its own, for a look at the instructions that it becomes. Also boots, and says so.

#![cfg_attr(pcpu_kernel, no_std, no_main)]

#[cfg(not(pcpu_kernel))]
fn main() {
    println!("a kernel: build it with `--config .cargo/kernel-host.toml` and boot it in QEMU");
}

#[cfg(pcpu_kernel)]
mod kernel {
    use core::hint::black_box;
    use core::num::NonZeroUsize;

    use pcpu::alloc::{self, AllocFlags};
    use pcpu::{AllocError, Counter, CounterSet, CpuId, EventCounter, LazyCounterSet, PerCpuBox, Pinned, field};
    use pcpu_boot::{BootInfo, Exit, exit};

    pcpu_boot::entry!(main);

    struct CpuLocal {
        padding: [u64; 5],
        switches: u64,
    }

    pcpu::per_cpu! {
        static HITS: u64 = 0;
        static CPU: CpuLocal = CpuLocal { padding: [0; 5], switches: 0 };
    }

    pcpu::counters! {
        static EVENTS: EventCounter = "operations.events";
    }

    macro_rules! operations {
        ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {
            $(
                #[unsafe(no_mangle)]
                #[inline(never)]
                fn $name($($argument: $type),*) $(-> $result)? $body
            )*

            /// Keeps the functions from being left out.
            fn keep() {
                $(black_box($name as *const ());)*
            }
        };
    }

    operations! {
        fn operation_static_add(amount: u64) { HITS.add(amount) }
        fn operation_static_inc() { HITS.inc() }
        fn operation_static_load() -> u64 { HITS.get() }
        fn operation_field_add(amount: u64) { field!(CPU, switches).add(amount) }
        fn operation_handle_add(counted: PerCpuBox<u64>, amount: u64) -> PerCpuBox<u64> {
            counted.add(amount);
            counted
        }
        fn operation_current_cpu() -> CpuId { CpuId::current() }
        fn operation_static_event() { EVENTS.inc() }
        fn operation_event_add(events: &EventCounter, nr: u64) { events.add(nr) }
        fn operation_counter_add(counter: &Counter, amount: i64) { counter.add(amount) }
        fn operation_counter_add_pinned(counter: &Counter, pin: Pinned<'_>, amount: i64) { counter.add_pinned(pin, amount) }
        fn operation_set_add(set: &CounterSet<4>, amount: i64) { set.add(2, amount) }
        fn operation_set_add_pinned(set: &CounterSet<4>, pin: Pinned<'_>, amount: i64) { set.add_pinned(pin, 2, amount) }
        fn operation_lazy_add_sole_user(set: &mut LazyCounterSet<4>, amount: i64) { set.add_exclusive(2, amount) }
        fn operation_allocate_hit() -> Result<NonZeroUsize, AllocError> { alloc::allocate(16, 8, AllocFlags::PROCESS) }
        fn operation_free_hit(handle: NonZeroUsize) {
            // SAFETY: looked at, not run.
            unsafe { alloc::free_clean(handle, 16, 8) }
        }
    }

    fn main(_boot: &'static BootInfo) -> ! {
        keep();
        black_box(field!(CPU, padding));
        defmt::println!("every operation is there");
        exit(Exit::Success)
    }
}
