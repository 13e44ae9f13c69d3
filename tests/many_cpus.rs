//! Counters on as many CPUs as there can be, and on as many as large machines have.

mod common;

use common::machine;
use pcpu::{AllocFlags, Batch, Counter, CounterSet, CounterVec, LazyCounterSet, alloc};
use std::sync::Mutex;

/// So many that several share a bit of a mask.
const NR_CPUS: usize = 384;

/// How many do: there are 63 bits.
const CPUS_IN_GROUP: usize = NR_CPUS.div_ceil(63);

static ALONE: Mutex<()> = Mutex::new(());

/// What Linux's `percpu_counter_tree` guarantees with a batch of 32: from `-batch * m` to `(batch - 1) * m`.
fn width_of_tree(nr_cpus: usize) -> i64 {
    let m = match nr_cpus {
        64 => 192,
        256 => 768,
        384 => 1536,
        _ => unreachable!("no figure for {nr_cpus} CPUs"),
    };
    (2 * 32 - 1) * m
}

#[test]
fn bounds_are_closer_than_those_of_a_tree_of_counters() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let machine = machine(NR_CPUS);
    let counter = machine.run(1, |_| Counter::with(0, Batch::new(32).unwrap(), AllocFlags::PROCESS).unwrap()).remove(0);
    let mut expected = 0;
    for nr_cpus in [64, 256, 384] {
        machine.run(nr_cpus, |cpu| counter.add(cpu.index() as i64 % 32));
        expected += (0..nr_cpus as i64).map(|cpu| cpu % 32).sum::<i64>();
        machine.run(1, |_| {
            assert_eq!(counter.sum(), expected);
            for nesting in 1..=3 {
                let bounds = counter.bounds_nested(nesting);
                assert!(bounds.contains(&expected));
                let width = bounds.end() - bounds.start();
                let nr_visited = nr_cpus.next_multiple_of(CPUS_IN_GROUP).min(NR_CPUS);
                assert_eq!(width, i64::from(2 * nesting - 1) * 31 * nr_visited as i64, "{nr_cpus} CPUs");
                assert!(width < width_of_tree(nr_cpus), "{width} at {nr_cpus} CPUs");
            }
        });
    }
    let counter = Mutex::new(Some(counter));
    machine.run(1, |_| drop(counter.lock().unwrap().take()));
}

/// Linux reserved room for one counter of a set only, which showed on machines with many CPUs.
#[test]
fn sets_of_any_length_keep_to_their_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let machine = machine(NR_CPUS);
    machine.run(1, |_| {
        let neighbours: Vec<_> = (0..8).map(|_| CounterSet::<13>::new([7; 13]).unwrap()).collect();
        let long = CounterVec::new(&[1; 1000]).unwrap();
        let lazy = LazyCounterSet::<64>::default();
        lazy.promote(AllocFlags::PROCESS).unwrap();
        for index in 0..1000 {
            long.add(index, 30);
            lazy.add(index % 64, 1);
        }
        neighbours.iter().for_each(|set| assert_eq!(set.sum_all(), [7; 13]));
        let mut sums = [0; 1000];
        long.sum_into(&mut sums);
        assert_eq!(sums, [31; 1000]);
        assert_eq!(lazy.sum_all().iter().sum::<i64>(), 1000);
    });
    machine.run(1, |_| assert_eq!(alloc::stats().live_objects, 0));
}

/// With more CPUs than bits in a mask, few CPUs are visited by themselves, and the last group may not be full.
#[test]
fn the_last_cpu_is_visited() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let machine = machine(NR_CPUS);
    let counter = machine.run(1, |_| Counter::new(0).unwrap()).remove(0);
    let last_group = NR_CPUS % CPUS_IN_GROUP;
    assert!(last_group > 0);
    let adders = [383, 0, 7, 14, 21];
    for (nr_adders, nr_visited) in [(1, 1), (4, 4), (5, 4 * CPUS_IN_GROUP + last_group)] {
        machine.run(NR_CPUS, |cpu| {
            if adders[..nr_adders].contains(&cpu.index()) {
                counter.inc();
            }
        });
        machine.run(1, |_| {
            let bounds = counter.bounds_nested(1);
            assert_eq!(bounds.end() - bounds.start(), 31 * nr_visited as i64);
        });
    }
    machine.run(1, |_| assert_eq!(counter.sum(), 1 + 4 + 5));
    let counter = Mutex::new(Some(counter));
    machine.run(1, |_| drop(counter.lock().unwrap().take()));
}
