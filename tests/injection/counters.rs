//! Counters and words.

use core::cell::Cell;
use pcpu::{Counter, with_pin};

use crate::cpus::{migrate_to, next_cpu};
use crate::explorer::{Explorer, Plan};
use crate::injections::{COUNTING, COUNTING_AWAY_AND_BACK};
use crate::objects::{Objects, PURSE, TOTAL};
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
    prove("Counter::new, add, drop", LONG, |world, explorer| {
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
