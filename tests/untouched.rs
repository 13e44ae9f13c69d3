//! Sums, bounds and drops do not go near the memory of CPUs that never wrote: here it cannot even be read. (But in robust mode they do.)

#![cfg(not(feature = "robust"))]

mod common;

use common::machine;
use pcpu::{AllocFlags, Counter, CounterSet, CpuId, LazyCounter, LimitCounter, PerCpuBox};
use std::sync::Mutex;

const NR_CPUS: usize = 8;
const PAGE_BYTES: usize = 4096;

/// The pages that hold a CPU's copies of objects that were allocated just before this one.
fn pages_near<T>(object: &PerCpuBox<T>, cpu: CpuId) -> (usize, usize) {
    let near = object.ptr_on(cpu).expose_provenance();
    let start = (near - 4 * size_of::<T>()) / PAGE_BYTES * PAGE_BYTES;
    (start, (near + size_of::<T>()).next_multiple_of(PAGE_BYTES) - start)
}

fn protect((start, bytes): (usize, usize), protection: i32) {
    // SAFETY: pages of the machine's memory, which nobody touches while they are inaccessible: the point of the test.
    let outcome = unsafe { libc::mprotect(core::ptr::with_exposed_provenance_mut(start), bytes, protection) };
    assert_eq!(outcome, 0, "mprotect");
}

#[test]
fn a_sum_bounds_and_a_drop_do_not_touch_cpus_that_never_wrote() {
    let machine = machine(NR_CPUS);
    let made = machine.run(1, |_| {
        let counters = (Counter::new(0).unwrap(), LazyCounter::new(0), LimitCounter::new(100).unwrap(), CounterSet::new([0; 4]).unwrap());
        counters.1.promote(AllocFlags::PROCESS).unwrap();
        (counters, PerCpuBox::<u64>::zeroed().unwrap(), PerCpuBox::<[u64; 4]>::zeroed().unwrap())
    });
    machine.run(3, |_| {
        let (counter, lazy, limit, set) = &made[0].0;
        counter.inc();
        lazy.inc();
        limit.try_add(1).unwrap();
        set.add_all([1, 2, 3, 4]);
    });
    let made = Mutex::new(made);
    machine.run(1, |_| {
        let (counters, word, words) = made.lock().unwrap().remove(0);
        let untouched = CpuId::new(5).unwrap();
        let pages = [pages_near(&word, untouched), pages_near(&words, untouched)];
        pages.into_iter().for_each(|pages| protect(pages, libc::PROT_NONE));
        let (counter, lazy, limit, set) = counters;
        assert_eq!((counter.sum(), lazy.sum(), limit.value(), set.sum_all()), (3, 3, 3, [3, 6, 9, 12]));
        assert!(counter.bounds().contains(&3) && lazy.bounds().contains(&3) && set.bounds(3).contains(&12));
        drop((counter, lazy, limit, set));
        pages.into_iter().for_each(|pages| protect(pages, libc::PROT_READ | libc::PROT_WRITE));
        // SAFETY: nobody wrote.
        assert_eq!(unsafe { *words.ptr_on(untouched) }, [0; 4]);
    });
}
