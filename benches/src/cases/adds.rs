//! One addition.

use crate::case::Case;
use crate::turn::{Sample, Turn};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};
use pcpu::host::Machine;
use pcpu::{Counter, CounterSet};

pcpu::per_cpu! {
    static EVENTS: u64 = 0;
}

/// A line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

/// As many additions as are timed in one step of a loop, so that the loop is free.
const UNROLLED: usize = 8;

/// Times `add` with 1 and -1 in turns, so that nothing is ever posted; the number tells which of the eight it is.
fn sample(turn: &Turn<'_>, add: impl Fn(usize, i64)) -> Vec<Sample> {
    let turn = Turn { nr_operations: turn.nr_operations.div_ceil(UNROLLED), ..*turn };
    let mut samples = turn.sample(|| (0..UNROLLED).for_each(|nr| add(nr, if (nr / 4).is_multiple_of(2) { 1 } else { -1 })));
    samples.iter_mut().for_each(|sample| sample.ns /= UNROLLED as f64);
    samples
}

pub fn cases(machine: &Machine) -> Vec<Case> {
    // Never freed: a counter may be dropped on a CPU only.
    let counter: &Counter = Box::leak(machine.run(1, |_| Box::new(Counter::new(0).expect("memory for a counter"))).swap_remove(0));
    let set: &CounterSet<4> = Box::leak(machine.run(1, |_| Box::new(CounterSet::new([0; 4]).expect("memory for counters"))).swap_remove(0));
    let mut cases = Vec::new();
    for threads in [1, 2] {
        cases.extend([
            Case::new("gs_add", threads, |turn| {
                let gs_add_ns = turn.gs_add();
                turn.together();
                vec![Sample { ns: turn.gs_add(), gs_add_ns }]
            }),
            Case::new("static_add", threads, |turn| sample(turn, |_, amount| EVENTS.add(amount as u64))),
            Case::new("atomic_add", threads, |turn| {
                let own = Line(AtomicU64::new(0));
                sample(turn, |_, amount| {
                    black_box(&own.0).fetch_add(amount as u64, Ordering::Relaxed);
                })
            }),
            Case::new("counter_add", threads, |turn| sample(turn, |_, amount| counter.add(amount))),
            Case::new("counter_add_pinned", threads, |turn| {
                // SAFETY: the thread is this CPU until it ends.
                unsafe { pcpu::assume_pinned(|pin| sample(turn, |_, amount| counter.add_pinned(pin, amount))) }
            }),
            Case::new("set4_add", threads, |turn| sample(turn, |nr, amount| set.add(nr % 4, amount))),
            Case::new("set4_add_pinned", threads, |turn| {
                // SAFETY: the thread is this CPU until it ends.
                unsafe { pcpu::assume_pinned(|pin| sample(turn, |nr, amount| set.add_pinned(pin, nr % 4, amount))) }
            }),
        ]);
    }
    cases
}
