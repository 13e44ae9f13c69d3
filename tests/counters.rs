//! Counters: exact sums, approximate reads, clean memory.

mod common;

use common::machine;
use core::sync::atomic::{AtomicBool, Ordering};
use pcpu::{AllocFlags, Batch, Counter, CounterSet, alloc, with_pin};
use std::sync::Mutex;

const NR_CPUS: usize = 8;

static ALONE: Mutex<()> = Mutex::new(());

/// Runs on one CPU and checks that no object stays behind.
fn on_boot_cpu(f: impl Fn() + Sync) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    machine(NR_CPUS).run(1, |_| {
        let before = alloc::stats().live_objects;
        f();
        assert_eq!(alloc::stats().live_objects, before);
    });
}

#[test]
fn a_sum_is_exact_and_a_read_is_within_a_batch_of_each_cpu() {
    on_boot_cpu(|| {
        let counter = Counter::new(1000).unwrap();
        let mut expected = 1000i64;
        for (round, amount) in [1, -1, 5, 31, 32, 33, -31, -32, 1 << 40, -7].into_iter().cycle().take(10_000).enumerate() {
            if round % 2 == 0 {
                counter.add(amount)
            } else {
                with_pin(|pin| counter.add_pinned(pin, amount))
            }
            expected += amount;
            assert_eq!(counter.sum(), expected);
            let error = expected - counter.read();
            assert!((0..32).contains(&error), "read is {error} below after {amount}");
        }
        counter.sub(5);
        counter.inc();
        counter.dec();
        counter.dec();
        assert_eq!(counter.sum(), expected - 6);
    });
}

#[test]
fn the_whole_range_of_i64_is_there_and_wraps() {
    on_boot_cpu(|| {
        for initial in [i64::MIN, -1, 0, i64::MAX] {
            let counter = Counter::new(initial).unwrap();
            assert_eq!((counter.read(), counter.sum()), (initial, initial));
            counter.add(i64::MAX);
            counter.inc();
            assert_eq!(counter.sum(), initial.wrapping_add(i64::MAX).wrapping_add(1));
            counter.sub(i64::MIN);
            assert_eq!(counter.sum(), initial);
            counter.add(i64::MIN);
            counter.add(i64::MIN);
            assert_eq!(counter.sum(), initial);
        }
        let negative = Counter::new(-3).unwrap();
        assert_eq!((negative.sum_positive(), negative.read_positive()), (0, 0));
    });
}

#[test]
fn the_largest_batch_loses_nothing() {
    on_boot_cpu(|| {
        let counter = Counter::with(0, Batch::MAX, AllocFlags::PROCESS).unwrap();
        for _ in 0..1000 {
            counter.add((1 << 32) - 1);
        }
        assert_eq!(counter.sum(), 1000 * ((1 << 32) - 1));
        assert!(counter.sum().abs_diff(counter.read()) < 1 << 32);
    });
}

#[test]
fn adds_of_all_cpus_are_all_in_the_sum_of_any() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let machine = machine(NR_CPUS);
    let rounds = 20_000i64;
    let shared = machine.run(1, |_| (Counter::new(0).unwrap(), CounterSet::new([7, 0, -7, 0, 1]).unwrap())).remove(0);
    machine.run(NR_CPUS, |cpu| {
        let (counter, set) = &shared;
        for round in 0..rounds {
            counter.add(cpu.index() as i64 + 1);
            with_pin(|pin| counter.add_pinned(pin, -1));
            set.add((round % 5) as usize, round);
            with_pin(|pin| set.add_pinned(pin, 4, -1));
        }
    });
    machine.run(NR_CPUS, |_| {
        let (counter, set) = &shared;
        assert_eq!(counter.sum(), rounds * (1..8).sum::<i64>());
        assert!(counter.sum().abs_diff(counter.read()) <= 31 * NR_CPUS as u64);
        let of = |index: i64| (0..rounds).filter(|round| round % 5 == index).sum::<i64>() * NR_CPUS as i64;
        let expected = [7 + of(0), of(1), of(2) - 7, of(3), of(4) + 1 - rounds * NR_CPUS as i64];
        assert_eq!(set.sum_all(), expected);
        for (index, expected) in expected.into_iter().enumerate() {
            assert_eq!(set.sum(index), expected);
        }
    });
    machine.run(1, |_| ());
    let shared = Mutex::new(Some(shared));
    machine.run(1, |_| drop(shared.lock().unwrap().take()));
}

#[test]
fn a_sum_that_races_with_adds_never_goes_back() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let machine = machine(NR_CPUS);
    let counter = Mutex::new(machine.run(1, |_| Some(Counter::new(0).unwrap())).remove(0));
    let shared = counter.lock().unwrap().take().unwrap();
    let done = AtomicBool::new(false);
    machine.run(3, |cpu| {
        if cpu.index() == 0 {
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let sum = shared.sum();
                assert!(sum >= last, "{sum} after {last}: only adds of positive amounts run");
                last = sum;
            }
        } else {
            (0..200_000).for_each(|_| shared.inc());
            done.store(true, Ordering::Release);
        }
    });
    machine.run(1, |_| assert_eq!(shared.sum(), 400_000));
    *counter.lock().unwrap() = Some(shared);
    machine.run(1, |_| drop(counter.lock().unwrap().take()));
}

#[test]
fn a_new_counter_starts_from_clean_memory() {
    on_boot_cpu(|| {
        for round in 0..100 {
            let set = CounterSet::<4>::new([round; 4]).unwrap();
            assert_eq!(set.sum_all(), [round; 4]);
            (0..4).for_each(|index| set.add(index, 1 + index as i64));
            let other = Counter::new(-round).unwrap();
            other.inc();
            assert_eq!(other.sum(), 1 - round);
            assert_eq!(set.sum_all(), [round + 1, round + 2, round + 3, round + 4]);
        }
    });
}
