//! Counters: exact sums, approximate reads, clean memory.

#[path = "common/alone.rs"]
mod alone;
mod common;

use common::machine;
use core::cmp::Ordering;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering as MemoryOrdering};
use pcpu::{AllocError, AllocFlags, Batch, Counter, CounterIndex, CounterSet, CounterVec, counters, with_pin};
use std::sync::Mutex;

const NR_CPUS: usize = 8;

fn on_boot_cpu(f: impl Fn() + Sync) {
    alone::on_boot_cpu(NR_CPUS, f);
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
    let _alone = alone::alone();
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
    let _alone = alone::alone();
    let machine = machine(NR_CPUS);
    let counter = Mutex::new(machine.run(1, |_| Some(Counter::new(0).unwrap())).remove(0));
    let shared = counter.lock().unwrap().take().unwrap();
    let done = AtomicBool::new(false);
    machine.run(3, |cpu| {
        if cpu.index() == 0 {
            let mut last = 0;
            while !done.load(MemoryOrdering::Acquire) {
                let sum = shared.sum();
                assert!(sum >= last, "{sum} after {last}: only adds of positive amounts run");
                last = sum;
            }
        } else {
            (0..200_000).for_each(|_| shared.inc());
            done.store(true, MemoryOrdering::Release);
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

counters! {
    /// Has a name for each counter of a set.
    pub enum Fruit { Apple, Pear, Plum }
    static STOCK: CounterSet<{ Fruit::COUNT }> = [10, 20, 30];
    static SOLD: Counter = -1, batch: Batch::new(2).unwrap();
}

#[test]
fn enums_and_statics_count() {
    on_boot_cpu(|| {
        assert_eq!(Fruit::ALL.map(|fruit| fruit.index()), [0, 1, 2]);
        let before = (STOCK.sum_all(), SOLD.sum());
        STOCK.sub(Fruit::Pear, 3);
        STOCK.add_all([1, 0, 40]);
        with_pin(|pin| STOCK.add_all_pinned(pin, [0, 1, -1]));
        SOLD.add(3);
        let [apple, pear, plum] = before.0;
        assert_eq!(STOCK.sum_all(), [apple + 1, pear - 2, plum + 39]);
        assert_eq!(STOCK.sum(Fruit::Plum), STOCK.sum(2));
        assert_eq!(SOLD.sum(), before.1 + 3);
        assert_eq!((SOLD.batch().get(), STOCK.batch()), (2, Batch::DEFAULT));
    });
}

#[test]
fn a_value_can_be_set_while_others_add() {
    on_boot_cpu(|| {
        let counter = Counter::new(5).unwrap();
        for value in [0, 1, -1, 1000, i64::MAX, i64::MIN] {
            counter.add(17);
            counter.set(value);
            assert_eq!(counter.sum(), value);
        }
        let set = CounterSet::new([1, 2]).unwrap();
        set.add(0, 31);
        set.set(0, -4);
        assert_eq!(set.sum_all(), [-4, 2]);
    });
    // Nothing that is added meanwhile is lost.
    let _alone = alone::alone();
    let machine = machine(NR_CPUS);
    let counter = machine.run(1, |_| Counter::new(0).unwrap()).remove(0);
    let changes: i64 = machine
        .run(4, |cpu| {
            if cpu.index() > 0 {
                (0..50_000).for_each(|_| counter.inc());
                return 0;
            }
            (0..500)
                .map(|_| {
                    let before = counter.sum();
                    counter.set(before);
                    // At most what the others added in between was taken away.
                    counter.sum() - before
                })
                .filter(|&change| change < 0)
                .count() as i64
        })
        .into_iter()
        .sum();
    assert_eq!(changes, 0, "a value went back below what it was set to");
    let counter = Mutex::new(Some(counter));
    machine.run(1, |_| drop(counter.lock().unwrap().take()));
}

#[test]
fn a_comparison_is_exact_near_and_far() {
    on_boot_cpu(|| {
        let counter = Counter::new(0).unwrap();
        let mut value = 0i64;
        for amount in [1, 30, 1, -40, 500, 7, -1].into_iter().cycle().take(5_000) {
            counter.add(amount);
            value += amount;
            for other in [value - 1000, value - 32, value - 1, value, value + 1, value + 32, value + 1000, i64::MAX, i64::MIN] {
                assert_eq!(counter.compare(other), value.cmp(&other), "{value} and {other}");
            }
        }
    });
}

#[test]
fn bounds_hold_and_are_as_wide_as_documented() {
    on_boot_cpu(|| {
        let counter = Counter::new(3).unwrap();
        assert_eq!(counter.bounds(), 3..=3, "no CPU wrote");
        assert_eq!(counter.max_error(), 0);
        let mut value = 3i64;
        for amount in [1, 31, -30, 5, -31, 31, 31, 40, -50].into_iter().cycle().take(5_000) {
            counter.add(amount);
            value += amount;
            let alone = counter.bounds_nested(1);
            assert!(alone.contains(&value));
            let width = alone.end() - alone.start();
            assert!(width == 31 || width == 0, "{width} with one CPU");
            let nested = counter.bounds();
            assert!(nested.start() <= alone.start() && nested.end() >= alone.end());
            assert!(nested.end() - nested.start() <= 5 * 31);
            assert!(value.abs_diff(counter.read()) <= counter.max_error());
        }
        assert_eq!(counter.bounds_nested(0), counter.bounds_nested(1));
    });
}

#[test]
fn a_set_of_run_time_length_counts_like_any_other() {
    on_boot_cpu(|| {
        for len in [1, 2, 7, 8, 9, 300] {
            let initial: Vec<i64> = (0..len).collect();
            let counters = CounterVec::new(&initial).unwrap();
            for index in 0..len as usize {
                counters.add(index, 5);
                with_pin(|pin| counters.add_pinned(pin, index, -100));
                counters.inc(index);
            }
            let mut sums = vec![0; len as usize];
            counters.sum_into(&mut sums);
            assert_eq!(sums, (0..len).map(|value| value - 94).collect::<Vec<_>>());
            assert_eq!(counters.sum(len as usize - 1), len - 95);
            assert!(counters.bounds(0).contains(&-94));
        }
        assert_eq!(CounterVec::new(&[]).err(), Some(AllocError::ZeroSize));
        assert!(matches!(CounterVec::new(&[0; 100_000]).err(), Some(AllocError::TooLarge { .. })));
    });
}

#[test]
fn sums_of_several_counters_can_be_summed_up() {
    on_boot_cpu(|| {
        let counters: Vec<_> = (0..5).map(|value| Counter::new(value).unwrap()).collect();
        counters[0].add(100);
        assert_eq!(counters.iter().sum::<i64>(), 110);
    });
}

#[test]
fn debug_shows_both_values() {
    on_boot_cpu(|| {
        let counter = Counter::new(64).unwrap();
        counter.inc();
        assert_eq!(format!("{counter:?}"), "Counter { read: 64, sum: 65 }");
        let set = CounterSet::new([64, 0]).unwrap();
        set.inc(0);
        assert_eq!(format!("{set:?}"), "CounterSet { read: [64, 0], sum: [65, 0] }");
    });
}

/// Linux lost counts of a dying CPU that was in no mask any more, but not folded yet.
#[test]
fn sums_and_comparisons_are_exact_at_each_step_of_cpus_going_offline() {
    let _alone = alone::alone();
    let machine = machine(NR_CPUS);
    let counter = machine.run(1, |_| Counter::new(0).unwrap()).remove(0);
    let mut expected = 0;
    // A CPU without a thread is offline, with whatever was in its slot.
    for nr_online in (1..=NR_CPUS).rev().chain(1..=NR_CPUS) {
        machine.run(nr_online, |_| (0..17).for_each(|_| counter.inc()));
        expected += 17 * nr_online as i64;
        machine.run(1, |_| {
            assert_eq!(counter.sum(), expected);
            assert!(counter.bounds().contains(&expected));
            assert_eq!(counter.compare(expected), Ordering::Equal);
            assert_eq!(counter.compare(expected - 1), Ordering::Greater);
        });
    }
    let counter = Mutex::new(Some(counter));
    machine.run(1, |_| drop(counter.lock().unwrap().take()));
}

/// A sum may see the later of two adds and not the earlier one; Linux reported a bad state of what cannot be negative.
#[test]
fn the_positive_sum_of_what_cannot_be_negative_never_is() {
    let _alone = alone::alone();
    let machine = machine(NR_CPUS);
    let counter = machine.run(1, |_| Counter::new(0).unwrap()).remove(0);
    let (ahead, done) = (AtomicI64::new(0), AtomicBool::new(false));
    machine.run(3, |cpu| match cpu.index() {
        // What this one adds the other one takes away again.
        0 => {
            for _ in 0..100_000 {
                counter.add(40);
                ahead.fetch_add(1, MemoryOrdering::Release);
            }
            done.store(true, MemoryOrdering::Release);
        }
        1 => {
            while !done.load(MemoryOrdering::Acquire) || ahead.load(MemoryOrdering::Acquire) > 0 {
                if ahead.fetch_update(MemoryOrdering::AcqRel, MemoryOrdering::Relaxed, |ahead| (ahead > 0).then(|| ahead - 1)).is_ok() {
                    counter.sub(40);
                }
            }
        }
        _ => {
            while !done.load(MemoryOrdering::Acquire) {
                assert!(counter.sum_positive() >= 0 && counter.read_positive() >= 0);
            }
        }
    });
    let counter = Mutex::new(Some(counter));
    machine.run(1, |_| assert_eq!(counter.lock().unwrap().take().map(|counter| counter.sum()), Some(0)));
}

#[test]
fn what_wrapped_compares_as_what_it_is() {
    on_boot_cpu(|| {
        for (initial, amount) in [(i64::MAX - 10, 31), (i64::MIN + 10, -31)] {
            let counter = Counter::new(initial).unwrap();
            assert_eq!(counter.compare(0), initial.cmp(&0));
            counter.add(amount);
            let wrapped = initial.wrapping_add(amount);
            assert_eq!((counter.sum(), counter.compare(0), counter.compare(wrapped)), (wrapped, wrapped.cmp(&0), Ordering::Equal));
        }
    });
}

#[test]
fn a_vec_is_added_to_all_at_once() {
    on_boot_cpu(|| {
        let counters = CounterVec::new(&[0, 10, -5]).unwrap();
        counters.add_all(&[1, 0, 1 << 40]);
        with_pin(|pin| counters.add_all_pinned(pin, &[2, -3, 0]));
        let mut sums = [0; 3];
        counters.sum_into(&mut sums);
        assert_eq!(sums, [3, 7, (1 << 40) - 5]);
    });
}

#[test]
#[should_panic(expected = "an amount for each counter")]
fn a_vec_is_not_added_to_in_part() {
    on_boot_cpu(|| CounterVec::new(&[0; 3]).unwrap().add_all(&[1, 2]));
}
