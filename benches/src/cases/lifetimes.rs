//! Counters from their making to their end, on one CPU.

use crate::case::Case;
use crate::turn::{Sample, Turn};
use core::hint::black_box;
use core::sync::atomic::{AtomicI64, Ordering};
use pcpu::{Batch, CounterSet, CpuChanges, Explicit, LazyCounterSet, Pinned, PromotionPolicy};
use std::sync::LazyLock;
use workload::lifetime::{self, Member, Update};

const NR: usize = Member::COUNT;

/// All updates of a fork, an exec and an exit, to one address space.
fn updates() -> &'static [Update] {
    static UPDATES: LazyLock<Vec<Update>> = LazyLock::new(|| lifetime::PHASES.concat());
    &UPDATES
}

/// Four words in a line.
#[repr(align(64))]
struct Atomics([AtomicI64; NR]);

fn atomics() {
    let counters = Atomics([const { AtomicI64::new(0) }; NR]);
    let counters = black_box(&counters);
    for update in updates() {
        counters.0[update.member.index()].fetch_add(update.pages, Ordering::Relaxed);
    }
    black_box(counters.0.each_ref().map(|counter| counter.load(Ordering::Relaxed)));
}

fn set(pin: Pinned<'_>) {
    let counters = CounterSet::new([0; NR]).expect("memory for counters");
    let shared = black_box(&counters);
    for update in updates() {
        shared.add_pinned(pin, update.member.index(), update.pages);
    }
    black_box(shared.sum_all());
}

fn lazy<P: PromotionPolicy>(pin: Pinned<'_>) {
    let counters = LazyCounterSet::<NR, P>::with([0; NR], Batch::DEFAULT, P::NEW);
    let shared = black_box(&counters);
    for update in updates() {
        shared.add_pinned(pin, update.member.index(), update.pages);
    }
    black_box(shared.sum_all());
}

fn sole_user() {
    let mut counters = LazyCounterSet::new([0; NR]);
    let own = black_box(&mut counters);
    for update in updates() {
        own.add_exclusive(update.member.index(), update.pages);
    }
    black_box(own.sum_all());
}

fn pinned(turn: &Turn<'_>, lifetime: fn(Pinned<'_>)) -> Vec<Sample> {
    // SAFETY: the thread is this CPU until it ends.
    unsafe { pcpu::assume_pinned(|pin| turn.sample(|| lifetime(pin))) }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for threads in [1, 2] {
        cases.extend([
            Case::new("lifetime/set4", threads, |turn| pinned(turn, set)),
            Case::new("lifetime/lazy4", threads, |turn| pinned(turn, lazy::<CpuChanges>)),
            Case::new("lifetime/lazy4_explicit", threads, |turn| pinned(turn, lazy::<Explicit>)),
            Case::new("lifetime/sole_user4", threads, |turn| turn.sample(sole_user)),
        ]);
    }
    let mut cases: Vec<_> = cases.into_iter().map(|case| case.with_baseline(|turn| turn.sample(atomics))).collect();
    // The baseline's own row is the same for all.
    for case in cases.iter_mut().filter(|case| case.rows[0] == "lifetime/set4") {
        case.baseline_row = Some("lifetime/atomic4".into());
    }
    cases
}
