//! Counters: sums are exact, whoever adds from wherever.

use core::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use pcpu::{AllocFlags, Batch, Counter, CounterSet, CpuId, LazyCounterSet, LimitCounter, alloc::stats, named_counters, with_pin};

use crate::{
    harness::{Case, Outcome, cases, check, check_eq, on_all},
    ticker,
};

pub const CASES: &[Case] = cases![
    a_counters_sum_is_exact_after_adds_from_all_cpus_and_their_timers,
    a_counter_sets_sums_are_exact_after_adds_from_all_cpus_and_their_timers,
    a_read_is_within_a_batch_for_each_cpu,
    a_sum_during_adds_counts_every_finished_one,
    counters_made_and_dropped_on_all_cpus_leave_nothing_behind,
    events_in_interrupts_are_in_the_registry_and_none_is_lost_by_a_reset,
    values_are_exact_when_promotion_races_with_adds_and_their_timers,
    bounds_hold_while_all_cpus_and_their_timers_add,
    cpus_that_push_end_at_exactly_the_limit,
];

pcpu::counters! {
    static TICKS: EventCounter = "kernel.ticks";
    static TICKS_EACH: CounterSet<2>;
}

/// Amounts of both signs, some above a batch.
const AMOUNTS: [i64; 8] = [1, 1, 16, -1, 40, -121, 3, -7];
const BY_TICK: i64 = 1 << 20;

fn a_counters_sum_is_exact_after_adds_from_all_cpus_and_their_timers() -> Outcome {
    /// The counter that ticks add to; null between runs.
    static COUNTER: AtomicPtr<Counter> = AtomicPtr::new(core::ptr::null_mut());
    let mut counter = Counter::new(1000)?;
    COUNTER.store(&raw mut counter, Ordering::Release);
    // Not touched by name again before the ticks stop.
    let shared = || {
        // SAFETY: points to `counter`, which outlives the ticks and is only shared.
        unsafe { &*COUNTER.load(Ordering::Acquire) }
    };
    ticker::set_handler(|_| {
        ticker::count();
        // SAFETY: as above.
        unsafe { &*COUNTER.load(Ordering::Acquire) }.add(BY_TICK);
    });
    let ticks_before = ticker::taken();
    let added = AtomicI64::new(0);
    on_all(|_| {
        let mut own = 0;
        ticker::repeat_while_ticking(ticker::MANY, || {
            for amount in AMOUNTS {
                shared().add(amount);
                own += amount;
            }
        });
        added.fetch_add(own, Ordering::Relaxed);
        Ok(())
    })?;
    let ticks = (ticker::taken() - ticks_before) as i64;
    check_eq!(shared().sum(), 1000 + added.into_inner() + ticks * BY_TICK);
    Ok(())
}

fn a_counter_sets_sums_are_exact_after_adds_from_all_cpus_and_their_timers() -> Outcome {
    static SET: AtomicPtr<CounterSet<4>> = AtomicPtr::new(core::ptr::null_mut());
    let mut set = CounterSet::new([0, 10, 20, 30])?;
    SET.store(&raw mut set, Ordering::Release);
    let shared = || {
        // SAFETY: points to `set`, which outlives the ticks and is only shared.
        unsafe { &*SET.load(Ordering::Acquire) }
    };
    ticker::set_handler(|_| {
        ticker::count();
        // SAFETY: as above.
        let set = unsafe { &*SET.load(Ordering::Acquire) };
        set.add(0, BY_TICK);
        set.add(3, -BY_TICK);
    });
    let ticks_before = ticker::taken();
    let added = [const { AtomicI64::new(0) }; 4];
    on_all(|cpu| {
        let mut own = [0; 4];
        ticker::repeat_while_ticking(ticker::MANY, || {
            for (round, amount) in AMOUNTS.into_iter().enumerate() {
                let index = (round + cpu.index()) % 4;
                shared().add(index, amount);
                own[index] += amount;
            }
        });
        for (total, own) in added.iter().zip(own) {
            total.fetch_add(own, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let by_ticks = (ticker::taken() - ticks_before) as i64 * BY_TICK;
    let added = added.map(AtomicI64::into_inner);
    check_eq!(shared().sum_all(), [added[0] + by_ticks, added[1] + 10, added[2] + 20, added[3] + 30 - by_ticks]);
    check_eq!(shared().sum(2), added[2] + 20);
    Ok(())
}

fn a_read_is_within_a_batch_for_each_cpu() -> Outcome {
    let counter = Counter::new(0)?;
    on_all(|cpu| {
        for _ in 0..1000 + cpu.index() {
            counter.add(1);
        }
        Ok(())
    })?;
    let allowed = (Batch::DEFAULT.get() - 1) * CpuId::possible().len() as u64;
    check!(counter.read().abs_diff(counter.sum()) <= allowed, "read {}, sum {}", counter.read(), counter.sum());
    Ok(())
}

fn a_sum_during_adds_counts_every_finished_one() -> Outcome {
    const ADDS: i64 = 20_000;
    let counter = Counter::new(0)?;
    // A lower bound of what is finished: raised after each add.
    let finished = AtomicI64::new(0);
    let begun = AtomicI64::new(0);
    on_all(|cpu| {
        for round in 0..ADDS {
            if cpu == CpuId::BOOT && round % 16 == 0 {
                let at_least = finished.load(Ordering::SeqCst);
                let sum = counter.sum();
                let at_most = begun.load(Ordering::SeqCst);
                check!((at_least..=at_most).contains(&sum), "{sum} is not between {at_least} finished and {at_most} begun");
            }
            begun.fetch_add(1, Ordering::SeqCst);
            counter.add(1);
            finished.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    })?;
    check_eq!(counter.sum(), ADDS * CpuId::possible().len() as i64);
    Ok(())
}

fn counters_made_and_dropped_on_all_cpus_leave_nothing_behind() -> Outcome {
    let before = stats();
    on_all(|_| {
        for _ in 0..200 {
            let (counter, set) = (Counter::new(5)?, CounterSet::<4>::new([1, 2, 3, 4])?);
            counter.add(1);
            set.add(2, -3);
            check_eq!(counter.sum(), 6);
            check_eq!(set.sum_all(), [1, 2, 0, 4]);
        }
        Ok(())
    })?;
    check_eq!(stats().live_objects, before.live_objects);
    check_eq!(stats().live_bytes, before.live_bytes);
    Ok(())
}

fn events_in_interrupts_are_in_the_registry_and_none_is_lost_by_a_reset() -> Outcome {
    let named = named_counters().iter().find(|counter| counter.name() == "kernel.ticks");
    check!(named.is_some(), "not in the registry");
    ticker::set_handler(|_| {
        ticker::count();
        TICKS.inc();
        TICKS_EACH.add(0, 1);
        TICKS_EACH.add(1, -31);
    });
    let (ticks_before, each_before) = (ticker::taken(), TICKS_EACH.sum_all());
    TICKS.reset();
    let (reset, added) = (AtomicI64::new(0), AtomicI64::new(0));
    on_all(|_| {
        let mut own = 0;
        ticker::repeat_while_ticking(ticker::MANY, || {
            TICKS.add(3);
            own += 3;
            if own % 100 == 0 {
                reset.fetch_add(TICKS.reset() as i64, Ordering::Relaxed);
            }
        });
        added.fetch_add(own, Ordering::Relaxed);
        Ok(())
    })?;
    let ticks = (ticker::taken() - ticks_before) as i64;
    check_eq!(reset.into_inner() + named.map_or(0, |named| named.value()) as i64, added.into_inner() + ticks);
    let each = TICKS_EACH.sum_all();
    check_eq!([each[0] - each_before[0], each[1] - each_before[1]], [ticks, -31 * ticks]);
    Ok(())
}

fn values_are_exact_when_promotion_races_with_adds_and_their_timers() -> Outcome {
    static SET: AtomicPtr<LazyCounterSet<2>> = AtomicPtr::new(core::ptr::null_mut());
    let before = stats().live_objects;
    for _ in 0..10 {
        let mut set = LazyCounterSet::<2>::default();
        SET.store(&raw mut set, Ordering::Release);
        let shared = || {
            // SAFETY: points to `set`, which outlives the ticks and is only shared.
            unsafe { &*SET.load(Ordering::Acquire) }
        };
        ticker::set_handler(|_| {
            ticker::count();
            // SAFETY: as above.
            unsafe { &*SET.load(Ordering::Acquire) }.add(1, 33);
        });
        let ticks_before = ticker::taken();
        let added = AtomicI64::new(0);
        on_all(|cpu| {
            let mut own = 0;
            ticker::repeat_while_ticking(ticker::SOME, || {
                shared().add(0, 1);
                with_pin(|pin| shared().add_pinned(pin, 0, -2));
                own -= 1;
                if own % 50 == -(cpu.index() as i64) {
                    let _ = shared().promote(AllocFlags::INTERRUPT);
                }
            });
            added.fetch_add(own, Ordering::Relaxed);
            Ok(())
        })?;
        check_eq!(shared().sum_all(), [added.into_inner(), 33 * (ticker::taken() - ticks_before) as i64]);
        check!(shared().is_promoted(), "somebody promoted it");
    }
    check_eq!(stats().live_objects, before);
    Ok(())
}

fn bounds_hold_while_all_cpus_and_their_timers_add() -> Outcome {
    static COUNTER: AtomicPtr<Counter> = AtomicPtr::new(core::ptr::null_mut());
    /// What has begun and what has finished, of adds of positive amounts only.
    static BEGUN: AtomicI64 = AtomicI64::new(0);
    static FINISHED: AtomicI64 = AtomicI64::new(0);
    fn add(counter: &Counter, amount: i64) {
        BEGUN.fetch_add(amount, Ordering::SeqCst);
        counter.add(amount);
        FINISHED.fetch_add(amount, Ordering::SeqCst);
    }
    let mut counter = Counter::new(0)?;
    COUNTER.store(&raw mut counter, Ordering::Release);
    let shared = || {
        // SAFETY: points to `counter`, which outlives the ticks and is only shared.
        unsafe { &*COUNTER.load(Ordering::Acquire) }
    };
    ticker::set_handler(|_| {
        ticker::count();
        // SAFETY: as above.
        add(unsafe { &*COUNTER.load(Ordering::Acquire) }, 31);
    });
    BEGUN.store(0, Ordering::SeqCst);
    FINISHED.store(0, Ordering::SeqCst);
    on_all(|_| {
        let mut outcome = Ok(());
        ticker::repeat_while_ticking(ticker::MANY, || {
            add(shared(), 17);
            let finished = FINISHED.load(Ordering::SeqCst);
            let bounds = shared().bounds();
            let begun = BEGUN.load(Ordering::SeqCst);
            if *bounds.start() > begun || *bounds.end() < finished {
                outcome = Err((*bounds.start(), *bounds.end(), finished, begun));
            }
        });
        check!(outcome.is_ok(), "{outcome:?}");
        Ok(())
    })?;
    check_eq!(shared().sum(), BEGUN.load(Ordering::SeqCst));
    check!(shared().bounds().contains(&shared().sum()), "{:?}", shared().bounds());
    Ok(())
}

fn cpus_that_push_end_at_exactly_the_limit() -> Outcome {
    let counter = LimitCounter::new(10_007)?;
    let granted = AtomicI64::new(0);
    on_all(|_| {
        let mut step = 7;
        while step > 0 {
            match counter.try_add(step) {
                Ok(()) => {
                    granted.fetch_add(step as i64, Ordering::Relaxed);
                }
                // The rest, bit by bit.
                Err(_) => step /= 2,
            }
        }
        Ok(())
    })?;
    check_eq!(granted.into_inner(), 10_007);
    check_eq!(counter.value(), 10_007);
    counter.sub(10_007);
    Ok(())
}
