//! Lazy counters: exact in every state, and while it changes.

#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/interrupts.rs"]
mod interrupts;

use common::machine;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use interrupts::Interrupted;
use pcpu::{
    AllocError, AllocFlags, Batch, CpuChanges, CpuId, Explicit, LazyCounter, LazyCounterSet, PromotionPolicy, Verdict, alloc, with_pin,
};
use std::sync::{Barrier, Mutex};

const NR_CPUS: usize = 4;

fn on_boot_cpu(f: impl Fn() + Sync) {
    alone::on_boot_cpu(NR_CPUS, f);
}

#[test]
fn values_are_exact_inline_promoted_and_demoted() {
    on_boot_cpu(|| {
        let mut set = LazyCounterSet::new([5, -5, 0]);
        let mut expected = [5i64, -5, 0];
        for round in 0..2000usize {
            let (index, amount) = (round % 3, [1, -1, 16, 31, -33, 1 << 40, -7][round % 7]);
            match round % 4 {
                0 | 1 => set.add(index, amount),
                2 => with_pin(|pin| set.add_pinned(pin, index, amount)),
                _ => set.add_exclusive(index, amount),
            }
            expected[index] = expected[index].wrapping_add(amount);
            assert_eq!(set.sum_all(), expected);
            assert_eq!(set.sum(index), expected[index]);
            assert!(set.bounds(index).contains(&expected[index]));
            if !set.is_promoted() {
                assert_eq!(set.read_all(), expected, "exact while inline");
                assert_eq!(set.max_error(index), 0);
            }
            match round % 100 {
                40 => set.promote(AllocFlags::PROCESS).unwrap(),
                41 => assert!(set.is_promoted()),
                90 => set.demote(),
                91 => assert!(!set.is_promoted()),
                _ => {}
            }
        }
    });
}

#[test]
fn the_whole_range_of_i64_is_there_in_every_state() {
    on_boot_cpu(|| {
        for initial in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX] {
            let mut counter = LazyCounter::new(initial);
            for is_promoted in [false, true, false] {
                assert_eq!(counter.is_promoted(), is_promoted);
                assert_eq!((counter.read(), counter.sum()), (initial, initial));
                counter.add(i64::MAX);
                counter.inc();
                counter.sub(i64::MIN);
                assert_eq!(counter.sum(), initial);
                counter.set(i64::MIN);
                assert_eq!(counter.sum(), i64::MIN);
                counter.set(initial);
                assert_eq!(counter.sum(), initial);
                if is_promoted { counter.demote() } else { counter.promote(AllocFlags::PROCESS).unwrap() }
            }
        }
    });
}

#[test]
fn an_inline_counter_has_no_per_cpu_memory() {
    on_boot_cpu(|| {
        let before = alloc::stats().live_objects;
        let sets: Vec<_> = (0..100).map(|_| LazyCounterSet::<4>::default()).collect();
        sets.iter().for_each(|set| set.add_all([1, 2, 3, 4]));
        assert_eq!(alloc::stats().live_objects, before);
    });
}

type Raced = LazyCounterSet<2, Explicit>;

pcpu::per_cpu! {
    /// What this CPU adds to, or 0, for its interrupts.
    static RACED: usize = 0;
}

static NR_INTERRUPTS: AtomicUsize = AtomicUsize::new(0);

/// A loss of either add would show in the sum.
extern "C" fn add_in_interrupt(signal: i32) {
    let Some(raced) = core::ptr::NonNull::new(core::ptr::with_exposed_provenance_mut::<Raced>(RACED.get())) else { return };
    // SAFETY: lives longer than the run, and is only shared while it is there.
    let set = unsafe { raced.as_ref() };
    let amount = if Interrupted::is_inner(signal) { -17 } else { 29 };
    with_pin(|pin| set.add_pinned(pin, 0, amount));
    set.add(0, -amount);
    NR_INTERRUPTS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn values_are_exact_when_promotion_races_with_adds_and_interrupts_of_all_cpus() {
    let _alone = alone::alone();
    let machine = machine(NR_CPUS);
    const NR_SETS: usize = 1000;
    const NR_ADDS: i64 = 3;
    let (min_rounds, min_interrupts) = if cfg!(debug_assertions) { (10, 100) } else { (100, 1000) };
    let (start, end) = (Barrier::new(NR_CPUS), Barrier::new(NR_CPUS));
    let sets: Vec<_> = (0..NR_SETS).map(|_| Mutex::new(Raced::default())).collect();
    // Shared without the lock during a round; the locks are for the time between rounds.
    let shared: Vec<_> = sets.iter().map(|set| (&raw const *set.lock().unwrap()).expose_provenance()).collect();
    let (nr_rounds, nr_promoted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (has_ended, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    // A panic would leave the others waiting.
    let faults = Mutex::new(Vec::new());
    let fail = |fault| faults.lock().unwrap().push(fault);
    let cpus = Interrupted::default();
    Interrupted::install(add_in_interrupt);

    let race = |cpu: CpuId, address: usize| {
        // SAFETY: lives longer than the run, and is only shared until the barrier at the round's end.
        let set = unsafe { &*core::ptr::with_exposed_provenance::<Raced>(address) };
        RACED.set(address);
        for nr in 0..NR_ADDS {
            set.add(0, 1);
            if nr == cpu.index() as i64 % NR_ADDS && cpu.index() < 2 {
                // Two at once: one of them gives its slots back.
                set.promote(AllocFlags::PROCESS).unwrap();
            }
            with_pin(|pin| set.add_pinned(pin, 1, -40));
        }
        RACED.set(0);
        let sum = set.sum(1);
        let mine = NR_ADDS * -40;
        if !(NR_CPUS as i64 * mine..=mine).contains(&sum) {
            fail(format!("{sum} misses an add of this CPU, or has one twice"));
        }
    };
    let check = |set: &Mutex<Raced>| {
        let mut set = set.lock().unwrap();
        let all = NR_CPUS as i64 * NR_ADDS;
        let promoted = set.sum_all();
        nr_promoted.fetch_add(usize::from(set.is_promoted()), Ordering::Relaxed);
        set.demote();
        let demoted = set.sum_all();
        if [promoted, demoted] != [[all, -40 * all]; 2] {
            fail(format!("{promoted:?} promoted and {demoted:?} demoted, and not {:?}", [all, -40 * all]));
        }
        set.set(0, 0);
        set.set(1, 0);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cpus.wait_for(NR_CPUS);
            for index in 0.. {
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                // SAFETY: no CPU leaves the run before it is over.
                unsafe { cpus.interrupt(index) };
            }
            has_ended.store(true, Ordering::Release);
        });
        machine.run(NR_CPUS, |cpu| {
            cpus.enter();
            while !is_over.load(Ordering::Acquire) {
                start.wait();
                shared.iter().for_each(|&set| race(cpu, set));
                end.wait();
                if cpu == CpuId::BOOT {
                    sets.iter().for_each(check);
                    let nr_rounds = nr_rounds.fetch_add(1, Ordering::Relaxed) + 1;
                    let has_enough = nr_rounds >= min_rounds && NR_INTERRUPTS.load(Ordering::Relaxed) >= min_interrupts;
                    is_over.store(has_enough || !faults.lock().unwrap().is_empty(), Ordering::Release);
                }
                end.wait();
            }
            while !has_ended.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(faults.into_inner().unwrap(), [""; 0]);
    let nr_promoted = nr_promoted.into_inner();
    assert_eq!(nr_promoted, nr_rounds.into_inner() * NR_SETS);
    println!("{nr_promoted} promotions, {} interrupts in the middle of adds", NR_INTERRUPTS.load(Ordering::Relaxed));
    machine.run(1, |_| assert_eq!(alloc::stats().live_objects, 0, "the slots of who came second were given back"));
}

/// Every add wants a promotion.
struct Eager;

impl PromotionPolicy for Eager {
    const NEW: Self = Eager;

    fn observe(&self) -> Verdict {
        Verdict::Promote
    }
}

#[test]
fn without_memory_a_counter_stays_inline_and_exact_and_tries_again() {
    on_boot_cpu(|| {
        let counter = LazyCounter::with(0, Batch::DEFAULT, Eager);
        // Every slot of that class that there is without a source; an add must not ask for more.
        let mut taken = Vec::new();
        while let Ok(handle) = alloc::allocate(8, 8, AllocFlags::INTERRUPT) {
            taken.push(handle);
        }
        for nr in 1..=10 {
            counter.inc();
            assert_eq!((counter.read(), counter.sum()), (nr, nr));
            assert!(!counter.is_promoted() && counter.wants_promotion());
        }
        assert_eq!(counter.promote(AllocFlags::INTERRUPT), Err(AllocError::ChunksFull));
        // SAFETY: allocated above.
        taken.into_iter().for_each(|handle| unsafe { alloc::free_clean(handle, 8, 8) });
        counter.inc();
        assert!(counter.is_promoted() && !counter.wants_promotion(), "the next add had memory");
        counter.inc();
        assert_eq!(counter.sum(), 12);
    });
}

#[test]
fn a_policy_that_asks_leaves_the_promotion_to_others() {
    struct Asking;
    impl PromotionPolicy for Asking {
        const NEW: Self = Asking;

        fn observe(&self) -> Verdict {
            Verdict::Ask
        }
    }
    on_boot_cpu(|| {
        let set = LazyCounterSet::<4, Asking>::default();
        assert!(!set.wants_promotion());
        set.inc(1);
        assert!(set.wants_promotion() && !set.is_promoted());
        set.promote(AllocFlags::PROCESS).unwrap();
        assert!(!set.wants_promotion() && set.is_promoted());
        assert_eq!(set.sum_all(), [0, 1, 0, 0]);
    });
}

#[test]
fn a_counter_of_one_cpu_is_never_promoted() {
    on_boot_cpu(|| {
        let set = LazyCounterSet::new([0; 4]);
        for round in 0..100_000 {
            set.add(round % 4, 1);
        }
        assert!(!set.is_promoted() && !set.wants_promotion());
    });
}

#[test]
fn two_cpus_in_turns_promote_at_the_eighth_change() {
    let _alone = alone::alone();
    let turn = AtomicUsize::new(0);
    let set = Mutex::new(LazyCounterSet::<4>::default());
    let promoted_at = Mutex::new(None);
    machine(NR_CPUS).run(2, |cpu| {
        for round in 0..20 {
            while turn.load(Ordering::Acquire) != 2 * round + cpu.index() {
                std::thread::yield_now();
            }
            let set = set.lock().unwrap();
            set.inc(0);
            if set.is_promoted() {
                promoted_at.lock().unwrap().get_or_insert(2 * round + cpu.index());
            }
            turn.fetch_add(1, Ordering::Release);
        }
        if cpu == CpuId::BOOT {
            while turn.load(Ordering::Acquire) < 40 {
                std::thread::yield_now();
            }
            let mut set = set.lock().unwrap();
            assert_eq!(set.sum(0), 40);
            set.demote();
        }
    });
    let nr_changes = (CpuChanges::<false>::LIMIT / CpuChanges::<false>::STEP) as usize;
    assert_eq!(*promoted_at.lock().unwrap(), Some(nr_changes));
}

/// In a proposal for Linux, counters joined the list of those to be folded only after they had become per-CPU.
#[test]
fn a_cpu_that_goes_offline_around_a_promotion_loses_nothing() {
    let _alone = alone::alone();
    let machine = machine(NR_CPUS);
    for nr_online_at_promotion in 1..=NR_CPUS {
        let set = Mutex::new(LazyCounterSet::<2, Explicit>::default());
        let shared = {
            let set = set.lock().unwrap();
            &raw const *set as usize
        };
        // SAFETY: lives longer than the runs, and is only shared in them.
        let shared = || unsafe { &*core::ptr::with_exposed_provenance::<LazyCounterSet<2, Explicit>>(shared) };
        let mut expected = 0;
        for (nr_online, promotes) in [(NR_CPUS, false), (nr_online_at_promotion, true), (1, false), (NR_CPUS, false)] {
            machine.run(nr_online, |cpu| {
                (0..9).for_each(|_| shared().add(1, 5));
                if promotes && cpu.index() == nr_online - 1 {
                    shared().promote(AllocFlags::PROCESS).unwrap();
                }
                (0..8).for_each(|_| shared().add(1, 5));
            });
            expected += 85 * nr_online as i64;
            machine.run(1, |_| assert_eq!(shared().sum_all(), [0, expected]));
        }
        machine.run(1, |_| set.lock().unwrap().demote());
        assert_eq!(set.lock().unwrap().read_all(), [0, expected]);
    }
}

#[test]
fn a_set_that_is_too_large_stays_inline_and_asks_nobody() {
    const NR: usize = 5000;
    on_boot_cpu(|| {
        let set = Box::new(LazyCounterSet::<NR, Eager>::default());
        set.inc(NR - 1);
        assert!(!set.wants_promotion() && !set.is_promoted());
        assert!(matches!(set.promote(AllocFlags::PROCESS), Err(AllocError::TooLarge { .. })));
        assert_eq!((set.sum(NR - 1), set.batch()), (1, Batch::DEFAULT));
    });
}

#[test]
fn all_are_added_to_in_every_state() {
    on_boot_cpu(|| {
        let set = LazyCounterSet::<3, Explicit>::default();
        for round in 1..=2 {
            set.add_all([1, 0, -7]);
            with_pin(|pin| set.add_all_pinned(pin, [0, 2, 1 << 40]));
            assert_eq!(set.sum_all(), [1, 2, (1 << 40) - 7].map(|sum| sum * round));
            set.promote(AllocFlags::PROCESS).unwrap();
        }
    });
}
