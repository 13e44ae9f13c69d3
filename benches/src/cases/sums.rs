//! An exact sum of a counter that some CPUs wrote to.

use crate::case::Case;
use core::hint::black_box;
use core::sync::atomic::{AtomicI32, Ordering};
use pcpu::Counter;
use pcpu::host::Machine;
use workload::linux_like::LinuxLike;

pub fn cases(machine: &Machine, nr_possible: usize, linux_like: &'static LinuxLike) -> Vec<Case> {
    let case = |name: &str, nr_touched: usize| {
        // Never freed: a counter may be dropped on a CPU only.
        let counter: &Counter = Box::leak(machine.run(1, |_| Box::new(Counter::new(0).expect("memory for a counter"))).swap_remove(0));
        machine.run(nr_touched, |_| counter.inc());
        let slot = linux_like.allocate(4, 4).expect("memory for a slot").expose_provenance().get();
        let slots: Vec<_> = (0..nr_possible)
            .map(|cpu| {
                let slot = core::ptr::NonNull::with_exposed_provenance(slot.try_into().expect("the address of an object"));
                linux_like.copy_on(slot, cpu).expose_provenance().get()
            })
            .collect();
        let sum_of_slots = move || {
            slots.iter().fold(0i64, |sum, &slot| {
                // SAFETY: a word of an object that is never freed, and never accessed otherwise.
                let slot = unsafe { AtomicI32::from_ptr(core::ptr::with_exposed_provenance_mut(slot)) };
                sum + i64::from(slot.load(Ordering::Relaxed))
            })
        };
        let case = Case::new(name, 1, |turn| {
            turn.sample(|| {
                black_box(counter.sum());
            })
        });
        case.with_baseline(move |turn| {
            turn.sample(|| {
                black_box(sum_of_slots());
            })
        })
    };
    vec![case("sum/touched_2", 2), case("sum/touched_all", nr_possible)]
}
