//! Counters and words.

use core::cell::Cell;
use pcpu::{AllocFlags, Counter, with_pin};

use crate::cpus::{migrate_to, next_cpu};
use crate::explorer::{Explorer, Plan};
use crate::injections::{COUNTING, COUNTING_AWAY_AND_BACK, PROMOTING, SPENDING};
use crate::objects::{LIMIT, Objects, PURSE, TOTAL};
use crate::prove;

/// No storm: an add that is disturbed in each gap tries again for ever.
const ADD: &[Plan<'static, Objects>] = &[
    Plan::Single { at_most: usize::MAX, injections: COUNTING },
    Plan::Sequence { injections: COUNTING_AWAY_AND_BACK[0] },
    Plan::Sequence { injections: COUNTING_AWAY_AND_BACK[1] },
    Plan::Sequence { injections: COUNTING_AWAY_AND_BACK[2] },
    Plan::Sequence { injections: COUNTING_AWAY_AND_BACK[3] },
];

const WORD: &[Plan<'static, Objects>] = &[Plan::Single { at_most: usize::MAX, injections: COUNTING }];

const LONG: &[Plan<'static, Objects>] = &[
    Plan::Single { at_most: 100, injections: COUNTING },
    Plan::Storm { spacing: 1, injections: COUNTING },
    Plan::Storm { spacing: 7, injections: COUNTING },
];

/// Steps an add of 5 to the counter.
fn add(world: &Objects, explorer: &mut Explorer<'_, Objects>, add: impl FnOnce(&Counter)) {
    world.pending.set(5);
    explorer.step(|| add(&world.counter));
    world.pending.set(0);
    world.expected.set(world.expected.get() + 5);
}

/// Lets every CPU touch the counters.
fn touch(world: &Objects) {
    for _ in 0..crate::cpus::NR_CPUS {
        world.count();
        migrate_to(next_cpu());
    }
}

#[test]
fn a_first_add_can_be_disturbed_after_every_instruction() {
    prove("Counter::add, first touch", ADD, |world, explorer| add(world, explorer, |counter| counter.add(5)));
}

#[test]
fn an_add_can_be_disturbed_after_every_instruction() {
    prove("Counter::add, hit", ADD, |world, explorer| {
        touch(world);
        add(world, explorer, |counter| counter.add(5));
    });
}

#[test]
fn an_add_that_posts_can_be_disturbed_after_every_instruction() {
    prove("Counter::add, posting", ADD, |world, explorer| {
        touch(world);
        world.counter.add(27);
        world.expected.set(world.expected.get() + 27);
        add(world, explorer, |counter| counter.add(5));
    });
}

#[test]
fn a_pinned_add_can_be_interrupted_after_every_instruction() {
    prove("Counter::add_pinned, first touch", ADD, |world, explorer| {
        add(world, explorer, |counter| with_pin(|pin| counter.add_pinned(pin, 5)));
    });
    prove("Counter::add_pinned, hit", ADD, |world, explorer| {
        touch(world);
        add(world, explorer, |counter| with_pin(|pin| counter.add_pinned(pin, 5)));
    });
}

#[test]
fn an_add_to_a_set_can_be_disturbed_after_every_instruction() {
    prove("CounterSet::add", ADD, |world, explorer| {
        explorer.step(|| world.set.add(2, -9));
        world.expected_set[2].set(world.expected_set[2].get() - 9);
    });
}

#[test]
fn a_sum_that_is_disturbed_counts_what_finished_before_and_nothing_that_began_after() {
    prove("Counter::sum", LONG, |world, explorer| {
        touch(world);
        let before = world.expected.get();
        let sum = explorer.step(|| world.counter.sum());
        assert!((before..=world.expected.get()).contains(&sum), "{sum} is not from {before} to {}", world.expected.get());
    });
    prove("CounterSet::sum_all", LONG, |world, explorer| {
        touch(world);
        let before = world.expected_set.each_ref().map(Cell::get);
        let sums = explorer.step(|| world.set.sum_all());
        for (index, sum) in sums.into_iter().enumerate() {
            let (a, b) = (before[index], world.expected_set[index].get());
            assert!((a.min(b)..=a.max(b)).contains(&sum), "{sum} is not between {a} and {b}");
        }
    });
}

#[test]
fn making_and_dropping_a_counter_can_be_disturbed_after_every_instruction() {
    // No storm: the add tries again for ever.
    const SINGLE: &[Plan<'static, Objects>] = &[Plan::Single { at_most: 300, injections: COUNTING }];
    prove("Counter::new, add, drop", SINGLE, |world, explorer| {
        world.stock(8, [4, 4, 4], 4);
        let sum = explorer.step(|| {
            let counter = Counter::new(7)?;
            counter.inc();
            Ok::<_, pcpu::AllocError>(counter.sum())
        });
        assert_eq!(sum, Ok(8));
    });
}

#[test]
fn an_operation_on_a_word_can_be_disturbed_after_every_instruction() {
    prove("Var::add", WORD, |world, explorer| {
        explorer.step(|| TOTAL.add(2));
        world.expected_total.set(world.expected_total.get() + 2);
    });
    prove("Var::inc", WORD, |world, explorer| {
        explorer.step(|| TOTAL.inc());
        world.expected_total.set(world.expected_total.get() + 1);
    });
    prove("Var::add_return", WORD, |world, explorer| {
        explorer.step(|| TOTAL.add_return(2));
        world.expected_total.set(world.expected_total.get() + 2);
    });
    prove("Var::swap", WORD, |world, explorer| {
        touch(world);
        let taken = explorer.step(|| PURSE.swap(0));
        world.expected_purse.set(world.expected_purse.get() - taken);
    });
    prove("Var::compare_exchange", WORD, |world, explorer| {
        touch(world);
        let taken = explorer.step(|| {
            let found = PURSE.get();
            PURSE.compare_exchange(found, 0).unwrap_or(0)
        });
        world.expected_purse.set(world.expected_purse.get() - taken);
    });
}

#[test]
fn adding_to_all_of_a_set_can_be_disturbed_after_every_instruction() {
    prove("CounterSet::add_all", ADD, |world, explorer| {
        explorer.step(|| world.set.add_all([1, 0, -50]));
        for (index, amount) in [(0, 1), (2, -50)] {
            world.expected_set[index].set(world.expected_set[index].get() + amount);
        }
    });
}

#[test]
fn setting_a_value_loses_no_add_that_overlaps_it() {
    prove("CounterSet::set", LONG, |world, explorer| {
        touch(world);
        let before = world.expected_set[2].get();
        explorer.step(|| world.set.set(2, 1000));
        // Whatever was added meanwhile came before, and is part of the 1000, or after.
        let (sum, added) = (world.set.sum(2), world.expected_set[2].get() - before);
        assert!((1000..=1000 + added).contains(&sum), "{sum} after {added} were added");
        world.expected_set[2].set(sum);
    });
}

#[test]
fn bounds_that_are_disturbed_contain_what_finished_and_what_may_have() {
    prove("Counter::bounds", LONG, |world, explorer| {
        touch(world);
        let before = world.expected.get();
        let bounds = explorer.step(|| world.counter.bounds());
        assert!(*bounds.start() <= world.expected.get() && *bounds.end() >= before, "{bounds:?} has nothing from {before} on");
    });
}

#[test]
fn an_add_to_a_lazy_counter_can_be_disturbed_after_every_instruction() {
    prove("LazyCounterSet::add, inline", ADD, |world, explorer| {
        explorer.step(|| world.lazy.add(0, 5));
        world.expected_lazy[0].set(world.expected_lazy[0].get() + 5);
    });
    prove("LazyCounter::add, promoted", ADD, |world, explorer| {
        explorer.step(|| world.promoted.add(5));
        world.expected_promoted.set(world.expected_promoted.get() + 5);
    });
    prove("LazyCounter::add_pinned, promoted", ADD, |world, explorer| {
        explorer.step(|| with_pin(|pin| world.promoted.add_pinned(pin, 5)));
        world.expected_promoted.set(world.expected_promoted.get() + 5);
    });
}

#[test]
fn an_add_that_promotes_can_be_disturbed_after_every_instruction() {
    // No storm: once it is promoted, by another context, the add tries again for ever.
    const ADDING: &[Plan<'static, Objects>] = &[Plan::Single { at_most: 300, injections: PROMOTING }];
    prove("LazyCounterSet::add, promoting", ADDING, |world, explorer| {
        world.stock(16, [2, 2, 2], 0);
        // The next change of CPU is the last one that the policy takes.
        for _ in 0..8 {
            world.lazy.add(0, 1);
            migrate_to(next_cpu());
        }
        world.expected_lazy[0].set(8);
        assert!(!world.lazy.is_promoted());
        explorer.step(|| world.lazy.add(0, 5));
        world.expected_lazy[0].set(world.expected_lazy[0].get() + 5);
    });
}

#[test]
fn a_promotion_can_be_disturbed_after_every_instruction() {
    const PROMOTE: &[Plan<'static, Objects>] =
        &[Plan::Single { at_most: 300, injections: PROMOTING }, Plan::Storm { spacing: 3, injections: PROMOTING }];
    prove("LazyCounterSet::promote", PROMOTE, |world, explorer| {
        world.count();
        let outcome = explorer.step(|| world.lazy.promote(AllocFlags::PROCESS));
        assert_eq!(outcome, Ok(()));
        world.count();
    });
}

#[test]
fn events_can_be_counted_and_reset_by_others_after_every_instruction() {
    prove("EventCounter::add", WORD, |world, explorer| {
        explorer.step(|| world.events.add(3));
        world.expected_events.set(world.expected_events.get() + 3);
    });
    prove("EventCounter::reset", LONG, |world, explorer| {
        touch(world);
        let taken = explorer.step(|| world.events.reset());
        world.expected_events.set(world.expected_events.get() - taken);
    });
    prove("HighWater::record", WORD, |world, explorer| {
        explorer.step(|| world.mark.record(2));
        world.highest.set(world.highest.get().max(2));
    });
}

#[test]
fn a_counter_with_a_limit_can_be_disturbed_after_every_instruction() {
    const SPEND: &[Plan<'static, Objects>] =
        &[Plan::Single { at_most: 200, injections: SPENDING }, Plan::Storm { spacing: 5, injections: SPENDING }];
    for (name, spent, amount) in
        [("LimitCounter::try_add, hit", 10, 1), ("LimitCounter::try_add, refill", 0, 1), ("LimitCounter::try_add, sweep", 150, 45)]
    {
        prove(name, SPEND, |world, explorer| {
            world.spend(spent);
            let outcome = explorer.step(|| world.limit.try_add(amount));
            world.expected_limit.set(world.expected_limit.get() + if outcome.is_ok() { amount } else { 0 });
            assert!(world.expected_limit.get() <= LIMIT, "above the limit");
        });
    }
    prove("LimitCounter::sub", SPEND, |world, explorer| {
        world.spend(100);
        world.expected_limit.set(world.expected_limit.get() - 20);
        explorer.step(|| world.limit.sub(20));
    });
}
