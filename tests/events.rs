//! Event counters, high-water marks, and the registry.

mod common;

use common::machine;
use core::sync::atomic::{AtomicUsize, Ordering};
use pcpu::{CpuId, EventCounter, HighWater, NamedKind, alloc, counters, named_counters};

const NR_CPUS: usize = 6;

counters! {
    static FORKS: EventCounter = "test.forks";
    static UNNAMED: EventCounter;
    static RESET_OFTEN: EventCounter;
    static QUEUED: HighWater = "test.queued_max";
}

#[test]
fn events_of_all_cpus_are_counted_and_can_be_told_apart() {
    let machine = machine(NR_CPUS);
    let before = machine.run(1, |_| UNNAMED.sum())[0];
    machine.run(NR_CPUS, |cpu| (0..=cpu.index()).for_each(|_| UNNAMED.add(2)));
    machine.run(1, |_| {
        assert_eq!(UNNAMED.sum() - before, 2 * (1..=NR_CPUS as u64).sum::<u64>());
        assert_eq!(UNNAMED.count_on(CpuId::new(3).unwrap()), 8);
    });
}

#[test]
fn a_reset_loses_no_event_and_doubles_none() {
    let machine = machine(NR_CPUS);
    let rounds = 100_000;
    let nr_adding = AtomicUsize::new(4);
    let taken: u64 = machine
        .run(NR_CPUS, |cpu| {
            if cpu.index() < 4 {
                (0..rounds).for_each(|_| RESET_OFTEN.inc());
                nr_adding.fetch_sub(1, Ordering::Release);
                return 0;
            }
            // Two that reset at the same time.
            let mut taken = 0u64;
            while nr_adding.load(Ordering::Acquire) > 0 {
                let before = RESET_OFTEN.reset();
                assert!(before <= 4 * rounds, "{before} events at once: one was counted twice");
                taken += before;
            }
            taken
        })
        .into_iter()
        .sum();
    machine.run(1, |_| assert_eq!(taken + RESET_OFTEN.reset(), 4 * rounds));
    machine.run(1, |_| assert_eq!(RESET_OFTEN.sum(), 0));
}

#[test]
fn a_run_time_event_counter_starts_at_zero_and_leaves_no_object() {
    machine(NR_CPUS).run(1, |_| {
        let before = alloc::stats().live_objects;
        for _ in 0..3 {
            let events = EventCounter::new().unwrap();
            assert_eq!(events.sum(), 0);
            events.add(u64::MAX);
            events.add(3);
            assert_eq!(events.sum(), 2, "wraps");
            assert_eq!(format!("{events:?}"), "EventCounter(2)");
            let mark = HighWater::new().unwrap();
            assert_eq!(mark.max(), 0);
            mark.record(9);
        }
        assert_eq!(alloc::stats().live_objects, before);
    });
}

#[test]
fn a_high_water_mark_is_the_highest_of_all_cpus() {
    let machine = machine(NR_CPUS);
    machine.run(NR_CPUS, |cpu| {
        for value in [3, 10 + cpu.index() as u64, 5] {
            QUEUED.record(value);
        }
    });
    machine.run(1, |_| {
        assert_eq!(QUEUED.max(), 10 + NR_CPUS as u64 - 1);
        assert_eq!(QUEUED.max_on(CpuId::new(2).unwrap()), 12);
    });
}

#[test]
fn named_counters_are_found_by_name_and_others_are_not_listed() {
    machine(NR_CPUS).run(1, |_| {
        let named = |name: &str| named_counters().iter().find(|counter| counter.name() == name);
        let forks = named("test.forks").expect("in the registry");
        let before = forks.value();
        FORKS.add(5);
        assert_eq!((forks.kind(), forks.value(), forks.value_on(CpuId::BOOT)), (NamedKind::Sum, before + 5, before + 5));
        assert_eq!(format!("{forks}"), format!("test.forks {}", before + 5));
        assert_eq!(named("test.queued_max").expect("in the registry").kind(), NamedKind::Max);
        // The crate's own two are there as well, and nothing else.
        assert_eq!(named_counters().len(), 4, "{:?}", named_counters());
        assert!(named("pcpu.counter.promotions").is_some());
    });
}
