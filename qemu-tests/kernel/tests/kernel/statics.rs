//! Static per-CPU variables: one instruction through GS, on real CPUs, with interrupts in between.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pcpu::CpuId;

use crate::{
    harness::{Case, Outcome, cases, check, check_eq, on_all},
    ticker,
};

pub const CASES: &[Case] = cases![
    adds_on_every_cpu_are_all_counted,
    timer_interrupts_adding_to_the_same_static_lose_nothing,
    timer_interrupts_adding_to_the_same_field_lose_nothing,
    each_operation_does_what_its_name_says,
    compare_exchange_counts_like_add,
    narrow_words_wrap_and_leave_their_neighbours_alone,
    a_remote_read_sees_that_cpus_value,
    a_sum_never_runs_backwards,
];

const ADDS: u64 = 100_000;
/// Adds between two looks at the clock.
const BURST: u64 = 64;

pcpu::per_cpu! {
    static HITS: u64 = 0;
    static SHARED_WITH_TICKS: u64 = 0;
    static LOCAL: CpuLocal = CpuLocal { before: u64::MAX, depth: 0, flag: false, ticks: Ticks { taken: 0, weighted: 0 }, after: u64::MAX };
    static WORD: u64 = 0;
    static EXCHANGED: u64 = 0;
    static NARROW: Narrow = Narrow { below: 1, byte: 2, above: 3 };
    static PUBLISHED: u64 = 0;
    static GROWING: u64 = 0;
}

struct CpuLocal {
    before: u64,
    depth: u32,
    flag: bool,
    ticks: Ticks,
    after: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Narrow {
    below: u8,
    byte: u8,
    above: u8,
}

struct Ticks {
    taken: u64,
    weighted: i64,
}

fn adds_on_every_cpu_are_all_counted() -> Outcome {
    let before = HITS.sum();
    on_all(|_| {
        for _ in 0..ADDS {
            HITS.add(3);
        }
        Ok(())
    })?;
    check_eq!(HITS.sum() - before, 3 * ADDS * CpuId::possible().len() as u64);
    Ok(())
}

fn timer_interrupts_adding_to_the_same_static_lose_nothing() -> Outcome {
    const BY_TICK: u64 = 1 << 32;
    ticker::set_handler(|_| {
        ticker::count();
        SHARED_WITH_TICKS.add(BY_TICK);
    });
    let ticks_before = ticker::taken();
    let added = AtomicU64::new(0);
    on_all(|cpu| {
        let (value_before, ticks_before) = (SHARED_WITH_TICKS.get(), ticker::taken_on(cpu));
        let mut own = 0;
        ticker::repeat_while_ticking(ticker::MANY, || {
            for _ in 0..BURST {
                SHARED_WITH_TICKS.add(1);
            }
            own += BURST;
        });
        added.fetch_add(own, Ordering::Relaxed);
        let ticks = ticker::taken_on(cpu) - ticks_before;
        check_eq!(SHARED_WITH_TICKS.get() - value_before, own + ticks * BY_TICK);
        Ok(())
    })?;
    let ticks = ticker::taken() - ticks_before;
    check!(ticks >= ticker::MANY, "only {ticks} ticks");
    check_eq!(SHARED_WITH_TICKS.sum(), added.into_inner() + ticks * BY_TICK);
    Ok(())
}

fn timer_interrupts_adding_to_the_same_field_lose_nothing() -> Outcome {
    const BY_TICK: i64 = -(1 << 32);
    ticker::set_handler(|_| {
        ticker::count();
        pcpu::field!(LOCAL, depth).inc();
        pcpu::field!(LOCAL, ticks.taken).inc();
        pcpu::field!(LOCAL, ticks.weighted).add(BY_TICK);
        pcpu::field!(LOCAL, depth).dec();
    });
    on_all(|cpu| {
        let ticks_before = ticker::taken_on(cpu);
        let mut own = 0;
        ticker::repeat_while_ticking(ticker::MANY, || {
            for _ in 0..BURST {
                pcpu::field!(LOCAL, depth).inc();
                pcpu::field!(LOCAL, ticks.weighted).add(1);
                pcpu::field!(LOCAL, depth).dec();
            }
            own += BURST as i64;
        });
        let ticks = ticker::taken_on(cpu) - ticks_before;
        check_eq!(pcpu::field!(LOCAL, ticks.taken).get(), ticks);
        check_eq!(pcpu::field!(LOCAL, ticks.weighted).get(), own + ticks as i64 * BY_TICK);
        check_eq!(pcpu::field!(LOCAL, depth).get(), 0);
        check!(!pcpu::field!(LOCAL, flag).swap(true));
        check!(pcpu::field!(LOCAL, flag).get());
        check_eq!(pcpu::field!(LOCAL, before).get(), u64::MAX);
        check_eq!(pcpu::field!(LOCAL, after).get(), u64::MAX);
        pcpu::field!(LOCAL, ticks.taken).set(0);
        pcpu::field!(LOCAL, ticks.weighted).set(0);
        pcpu::field!(LOCAL, flag).set(false);
        Ok(())
    })
}

fn each_operation_does_what_its_name_says() -> Outcome {
    on_all(|cpu| {
        let own = cpu.index() as u64;
        WORD.set(own);
        WORD.add(100);
        WORD.sub(1);
        WORD.inc();
        WORD.dec();
        check_eq!(WORD.get(), own + 99);
        check_eq!(WORD.add_return(1), own + 100);
        check_eq!(WORD.swap(0xff0), own + 100);
        WORD.and(0x0f0);
        WORD.or(0x00f);
        WORD.xor(0x101);
        check_eq!(WORD.get(), 0x1fe);
        check_eq!(WORD.compare_exchange(1, 2), Err(0x1fe));
        check_eq!(WORD.compare_exchange(0x1fe, own), Ok(0x1fe));
        check_eq!(WORD.get_on(cpu), own);
        Ok(())
    })
}

fn compare_exchange_counts_like_add() -> Outcome {
    let count = |amount: u64| {
        let mut found = EXCHANGED.get();
        while let Err(now) = EXCHANGED.compare_exchange(found, found + amount) {
            found = now;
        }
    };
    const BY_TICK: u64 = 1 << 32;
    ticker::set_handler(|_| {
        ticker::count();
        let found = EXCHANGED.get();
        // Nothing interrupts the handler.
        assert!(EXCHANGED.compare_exchange(found, found + BY_TICK).is_ok());
    });
    on_all(|cpu| {
        let ticks_before = ticker::taken_on(cpu);
        EXCHANGED.set(0);
        let mut own = 0;
        ticker::repeat_while_ticking(ticker::MANY, || {
            for _ in 0..BURST {
                count(1);
            }
            own += BURST;
        });
        check_eq!(EXCHANGED.get(), own + (ticker::taken_on(cpu) - ticks_before) * BY_TICK);
        Ok(())
    })
}

fn narrow_words_wrap_and_leave_their_neighbours_alone() -> Outcome {
    on_all(|_| {
        for _ in 0..1000 {
            pcpu::field!(NARROW, byte).inc();
        }
        // SAFETY: this CPU's own bytes, which nobody else uses.
        check_eq!(unsafe { NARROW.this_ptr().read() }, Narrow { below: 1, byte: (1002 % 256) as u8, above: 3 });
        pcpu::field!(NARROW, byte).set(2);
        Ok(())
    })
}

fn a_remote_read_sees_that_cpus_value() -> Outcome {
    on_all(|cpu| {
        PUBLISHED.set(1000 + cpu.index() as u64);
        Ok(())
    })?;
    on_all(|_| {
        for other in CpuId::possible() {
            check_eq!(PUBLISHED.get_on(other), 1000 + other.index() as u64);
        }
        Ok(())
    })
}

fn a_sum_never_runs_backwards() -> Outcome {
    const SUMS: u32 = 2000;
    let done = AtomicBool::new(false);
    on_all(|cpu| {
        if cpu == CpuId::BOOT {
            let mut last = 0;
            let grows = (0..SUMS).all(|_| {
                GROWING.inc();
                let before = core::mem::replace(&mut last, GROWING.sum());
                last > before
            });
            done.store(true, Ordering::Relaxed);
            check!(grows, "a sum without this CPU's latest add, or less than one before: {last}");
        } else {
            while !done.load(Ordering::Relaxed) {
                GROWING.inc();
            }
        }
        Ok(())
    })
}
