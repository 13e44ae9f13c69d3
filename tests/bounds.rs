//! Bounds hold at every moment, while adds of tasks and of nested interrupts are under way.

mod common;
#[path = "common/interrupts.rs"]
mod interrupts;

use common::machine;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use interrupts::Interrupted;
use pcpu::{Batch, Counter, LazyCounter, assume_pinned, with_pin};
use std::sync::OnceLock;

/// CPUs that add, and one that checks.
const NR_ADDING: usize = 3;
const NR_CHECKS: u64 = if cfg!(debug_assertions) { 500_000 } else { 10_000_000 };

/// What is added to, and what is known of its value: the sums of all adds of one sign that have begun, and that have finished.
struct Watched {
    counter: Counter,
    lazy: LazyCounter,
    begun: [AtomicI64; 2],
    finished: [AtomicI64; 2],
}

static WATCHED: OnceLock<&'static Watched> = OnceLock::new();
static NR_INTERRUPTS: AtomicU64 = AtomicU64::new(0);

impl Watched {
    fn add(&self, amount: i64, is_pinned: bool) {
        let sign = usize::from(amount < 0);
        self.begun[sign].fetch_add(amount, Ordering::SeqCst);
        if is_pinned {
            with_pin(|pin| {
                self.counter.add_pinned(pin, amount);
                self.lazy.add_pinned(pin, amount);
            });
        } else {
            self.counter.add(amount);
            self.lazy.add(amount);
        }
        self.finished[sign].fetch_add(amount, Ordering::SeqCst);
    }

    /// Checks that the bounds contain a value that the counters may have.
    fn check(&self) {
        // What has finished before counts, and what has not begun after does not.
        let finished = self.finished.each_ref().map(|sum| sum.load(Ordering::SeqCst));
        let bounds = [self.counter.bounds(), self.lazy.bounds()];
        let sums = [self.counter.sum(), self.lazy.sum()];
        let begun = self.begun.each_ref().map(|sum| sum.load(Ordering::SeqCst));
        let possible = finished[0] + begun[1]..=begun[0] + finished[1];
        for bounds in bounds {
            assert!(bounds.start() <= possible.end() && possible.start() <= bounds.end(), "{bounds:?} have nothing of {possible:?}");
        }
        for sum in sums {
            assert!(possible.contains(&sum), "{sum} is not in {possible:?}");
        }
    }
}

/// Ends the adders, also when a check fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

extern "C" fn on_signal(signal: i32) {
    NR_INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    let watched = WATCHED.get().expect("set before the first signal");
    let amount = if Interrupted::is_inner(signal) { -31 } else { 29 };
    watched.add(amount, true);
    watched.add(-amount, false);
}

#[test]
fn bounds_contain_the_value_at_every_check() {
    let machine = machine(NR_ADDING + 1);
    let made = machine.run(1, |_| {
        let batch = Batch::new(32).unwrap();
        let counter = Counter::with(0, batch, pcpu::AllocFlags::PROCESS).unwrap();
        Watched { counter, lazy: LazyCounter::new(0), begun: Default::default(), finished: Default::default() }
    });
    // Never dropped: a signal may come late.
    let watched: &'static Watched = Box::leak(Box::new(made.into_iter().next().unwrap()));
    assert!(WATCHED.set(watched).is_ok());
    Interrupted::install(on_signal);

    let done = AtomicBool::new(false);
    let adders = Interrupted::default();
    machine.run(NR_ADDING + 1, |cpu| {
        if cpu.index() < NR_ADDING {
            adders.enter();
            let mut random = fastrand::Rng::with_seed(cpu.index() as u64);
            while !done.load(Ordering::Acquire) {
                // SAFETY: the thread is this CPU until it ends.
                unsafe { assume_pinned(|_| watched.add(random.i64(-31..32), random.bool())) };
                if random.u32(..1000) == 0 {
                    watched.add(random.i64(-500..500), false);
                }
            }
            return;
        }
        adders.wait_for(NR_ADDING);
        let _done = SetOnDrop(&done);
        for nr in 0..NR_CHECKS {
            if nr.is_multiple_of(500) {
                // SAFETY: they live until `done`.
                unsafe { adders.interrupt(nr as usize / 500) };
            }
            // By its policy it may be promoted before, or never: that depends on how the threads take turns.
            if nr == NR_CHECKS / 4 {
                watched.lazy.promote(pcpu::AllocFlags::PROCESS).unwrap();
            }
            watched.check();
        }
    });
    machine.run(1, |_| {
        let sum: i64 = watched.begun.iter().map(|sum| sum.load(Ordering::SeqCst)).sum();
        assert_eq!((watched.counter.sum(), watched.lazy.sum()), (sum, sum));
    });
    assert!(watched.lazy.is_promoted());
    println!("{NR_CHECKS} checks, {} interrupts", NR_INTERRUPTS.load(Ordering::Relaxed));
    assert!(NR_INTERRUPTS.load(Ordering::Relaxed) > 100);
}
