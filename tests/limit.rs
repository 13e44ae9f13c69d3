//! A counter with a limit: never above, and no false refusal.

mod common;

use common::machine;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use pcpu::{AllocFlags, Batch, CpuId, LimitCounter, LimitExceeded, alloc};
use std::sync::Mutex;

const NR_CPUS: usize = 4;

static ALONE: Mutex<()> = Mutex::new(());

/// A counter that is made and dropped on a CPU, used on all.
fn with_counter(limit: u64, batch: Batch, f: impl Fn(CpuId, &LimitCounter) + Sync) -> u64 {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let machine = machine(NR_CPUS);
    let counter = machine.run(1, |_| LimitCounter::with(limit, batch, AllocFlags::PROCESS).unwrap()).remove(0);
    machine.run(NR_CPUS, |cpu| f(cpu, &counter));
    let counter = Mutex::new(Some(counter));
    let value = machine.run(1, |_| counter.lock().unwrap().take().map(|counter| counter.value()).unwrap()).remove(0);
    machine.run(1, |_| assert_eq!(alloc::stats().live_objects, 0));
    value
}

#[test]
fn cpus_that_push_end_at_exactly_the_limit() {
    for (limit, step) in [(1, 1), (10, 1), (10_000, 1), (10_000, 7), (99_999, 64), (100_000, 33)] {
        let granted = AtomicU64::new(0);
        let value = with_counter(limit, Batch::DEFAULT, |_, counter| {
            let mut step = step;
            while step > 0 {
                match counter.try_add(step) {
                    Ok(()) => {
                        granted.fetch_add(step, Ordering::Relaxed);
                    }
                    // The rest, bit by bit: nobody is left with credit.
                    Err(_) => step /= 2,
                }
                assert!(counter.value() <= limit);
            }
        });
        assert_eq!((value, granted.into_inner()), (limit, limit), "in steps of {step}");
    }
}

#[test]
fn what_is_granted_never_exceeds_the_limit_while_others_give_back() {
    const LIMIT: u64 = 500;
    let in_use = AtomicU64::new(0);
    let value = with_counter(LIMIT, Batch::new(16).unwrap(), |cpu, counter| {
        let mut random = fastrand::Rng::with_seed(cpu.index() as u64);
        let mut own = Vec::new();
        for _ in 0..50_000 {
            let amount = random.u64(0..40);
            if random.bool() {
                if counter.try_add(amount).is_ok() {
                    let before = in_use.fetch_add(amount, Ordering::AcqRel);
                    assert!(before + amount <= LIMIT, "{before} + {amount}");
                    own.push(amount);
                }
            } else if let Some(amount) = own.pop() {
                in_use.fetch_sub(amount, Ordering::AcqRel);
                counter.sub(amount);
            }
        }
        for amount in own {
            in_use.fetch_sub(amount, Ordering::AcqRel);
            counter.sub(amount);
        }
    });
    assert_eq!(value, 0);
}

#[test]
fn a_refusal_means_that_too_little_is_left_wherever_it_lies() {
    // Others' credits are swept up, by one caller at a time.
    let turn = AtomicUsize::new(0);
    let value = with_counter(1000, Batch::new(128).unwrap(), |cpu, counter| {
        while turn.load(Ordering::Acquire) != cpu.index() {
            std::thread::yield_now();
        }
        if cpu.index() < NR_CPUS - 1 {
            counter.try_add(1).unwrap();
        } else {
            assert_eq!(counter.value(), 3);
            assert_eq!(counter.try_add(998), Err(LimitExceeded { amount: 998, limit: counter.limit() }));
            assert_eq!(counter.value(), 3, "a refusal changes nothing");
            counter.try_add(997).unwrap();
            assert_eq!(counter.try_add(1), Err(LimitExceeded { amount: 1, limit: counter.limit() }));
            counter.try_add(0).unwrap();
            counter.sub(1000);
        }
        turn.fetch_add(1, Ordering::Release);
    });
    assert_eq!(value, 0);
}

#[test]
fn absurd_amounts_and_limits_are_refused_or_cut() {
    with_counter(u64::MAX, Batch::MAX, |cpu, counter| {
        if cpu == CpuId::BOOT {
            assert_eq!(counter.limit(), LimitCounter::MAX_LIMIT);
            assert_eq!(counter.try_add(u64::MAX), Err(LimitExceeded { amount: u64::MAX, limit: counter.limit() }));
            assert_eq!(
                counter.try_add(LimitCounter::MAX_LIMIT + 1),
                Err(LimitExceeded { amount: LimitCounter::MAX_LIMIT + 1, limit: counter.limit() })
            );
            counter.try_add(LimitCounter::MAX_LIMIT).unwrap();
            assert_eq!(counter.value(), LimitCounter::MAX_LIMIT);
            assert!(counter.try_add(1).is_err());
            counter.sub(LimitCounter::MAX_LIMIT);
        }
    });
    with_counter(0, Batch::DEFAULT, |_, counter| assert!(counter.try_add(1).is_err() && counter.try_add(0).is_ok()));
}
