//! One addition.

use crate::case::Case;
use crate::turn::{Sample, Turn};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};
use pcpu::host::Machine;
use pcpu::{AllocFlags, Counter, CounterSet, EventCounter, Explicit, LazyCounterSet, LimitCounter};

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

/// Makes a counter on a CPU. It is never freed: it may be dropped on a CPU only.
fn leak<T: Send + Sync + 'static>(machine: &Machine, make: fn() -> Result<T, pcpu::AllocError>) -> &'static T {
    Box::leak(Box::new(machine.run(1, |_| make().expect("memory for counters")).swap_remove(0)))
}

/// No add reaches it.
const LIMIT: u64 = 1 << 40;

pub fn cases(machine: &Machine) -> Vec<Case> {
    let event = leak(machine, EventCounter::new);
    let counter = leak(machine, || Counter::new(0));
    let set = leak(machine, || CounterSet::new([0; 4]));
    let promoted = leak(machine, || {
        let counters = LazyCounterSet::<4, Explicit>::default();
        counters.promote(AllocFlags::PROCESS)?;
        Ok(counters)
    });
    let limited = leak(machine, || {
        let counter = LimitCounter::new(LIMIT)?;
        counter.try_add(LIMIT / 2).expect("below the limit");
        Ok(counter)
    });
    let shared: &Line = Box::leak(Box::new(Line(AtomicU64::new(0))));
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
            Case::new("atomic_add_shared", threads, |turn| {
                sample(turn, |_, amount| {
                    black_box(&shared.0).fetch_add(amount as u64, Ordering::Relaxed);
                })
            }),
            Case::new("event_add", threads, |turn| sample(turn, |_, amount| event.add(amount as u64))),
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
            Case::new("set4_add_all", threads, |turn| turn.sample(|| set.add_all(black_box([1, -1, 1, -1])))),
            Case::new("lazy4_add_inline", threads, |turn| {
                let own = LazyCounterSet::new([0; 4]);
                let own = black_box(&own);
                sample(turn, |nr, amount| own.add(nr % 4, amount))
            }),
            Case::new("lazy4_add_sole_user", threads, |turn| {
                let own = LazyCounterSet::<4>::default();
                let own = black_box(&own);
                // SAFETY: this thread alone uses it.
                sample(turn, |nr, amount| unsafe { own.add_sole_user(nr % 4, amount) })
            }),
            Case::new("lazy4_add_promoted", threads, |turn| sample(turn, |nr, amount| promoted.add(nr % 4, amount))),
            Case::new("limit_add", threads, |turn| {
                sample(turn, |_, amount| {
                    if amount > 0 {
                        black_box(limited.try_add(1).is_ok());
                    } else {
                        limited.sub(1)
                    }
                })
            }),
        ]);
    }
    cases
}
