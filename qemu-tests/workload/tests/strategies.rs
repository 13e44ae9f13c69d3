//! The strategies on the real per-CPU code, with host threads as CPUs.

use pcpu::Pinned;
use pcpu::host::Machine;
use std::sync::Mutex;
use std::time::Instant;
use workload::lifetime::{Member, Update};
use workload::{
    Atomic, EVENTS_PER_FLUSH, Each, Grouped, Lazy, LinuxEach, LinuxGrouped, LinuxLazy, Orders, Part, Plan, STRATEGIES, SoleUser, Split,
    Stage, Strategy, Workload, clock,
};

const NR_CPUS: usize = 4;

fn machine() -> Machine {
    // SAFETY: these tests touch per-CPU data only inside of `run`, and start no threads there.
    unsafe { Machine::boot(NR_CPUS) }.unwrap()
}

/// Threads of the machine's.
struct Threads(Machine);

impl Stage for Threads {
    fn nr_cpus(&self) -> usize {
        NR_CPUS
    }

    fn is_native(&self) -> bool {
        true
    }

    fn on_one(&self, work: &mut (dyn FnMut(Pinned<'_>) + Send)) {
        let work = Mutex::new(work);
        // SAFETY: a thread is its CPU until it ends.
        self.0.run(1, |_| unsafe { pcpu::assume_pinned(|pin| work.lock().unwrap()(pin)) });
    }

    fn on_all(&self, work: &(dyn Fn(usize, Pinned<'_>) + Sync)) {
        // SAFETY: as above.
        self.0.run(NR_CPUS, |cpu| unsafe { pcpu::assume_pinned(|pin| work(cpu.index(), pin)) });
    }
}

/// Objects of the whole process are counted, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a test on a CPU.
fn on_a_cpu(test: fn(Pinned<'_>)) {
    let _alone = ALONE.lock();
    Threads(machine()).on_one(&mut |pin| test(pin));
}

const FAULT: Update = Update { member: Member::Anon, pages: 1 };

/// Adds to a space that nobody else updates.
fn add<S: Strategy>(counters: &S, pin: Pinned<'_>, update: Update) {
    // SAFETY: the tests that call this have one task.
    unsafe { counters.add(pin, update) };
}

#[test]
fn rounds_of_all_strategies_and_workloads_leave_nothing_behind() {
    let _alone = ALONE.lock();
    clock::set_ticks_per_second(measured_ticks_per_second());
    let stage = Threads(machine());
    for strategy in STRATEGIES {
        for workload in Workload::ALL {
            let orders = Orders { workload, live: 64 * NR_CPUS, folio_order: 1, shares: true };
            let round = workload::run(strategy, &stage, &Plan { orders, part: Part::Whole, seconds: 0.02 }).unwrap();
            assert!(round.is_clean(), "{round}");
            assert!(round.tally().lifetimes > 0 && round.tally().failed_forks == 0, "{round}");
        }
        for part in [Part::Counters, Part::Lifecycle] {
            let orders = Orders { workload: Workload::Exec, live: 64 * NR_CPUS, folio_order: 0, shares: false };
            let round = workload::run(strategy, &stage, &Plan { orders, part, seconds: 0.005 }).unwrap();
            assert!(round.is_clean() && round.tally().lifetimes > 0, "{round}");
        }
    }
    assert!(workload::run("no-such", &stage, &plan_of_nothing()).is_err());
}

fn plan_of_nothing() -> Plan {
    let orders = Orders { workload: Workload::Exec, live: 64, folio_order: 0, shares: false };
    Plan { orders, part: Part::Whole, seconds: 0.0 }
}

fn measured_ticks_per_second() -> u64 {
    let (start, ticks) = (Instant::now(), clock::ticks());
    while start.elapsed().as_millis() < 20 {}
    (clock::ticks() - ticks) * 50
}

#[test]
fn no_read_is_further_off_than_is_guaranteed() {
    let _alone = ALONE.lock();
    clock::set_ticks_per_second(measured_ticks_per_second());
    let stage = Threads(machine());
    // Of one run: whether a lazy counter is promoted, and so what it guarantees, depends on how threads take turns.
    let errors_of = |strategy: &str| -> (u64, u64) {
        let row = workload::run(strategy, &stage, &plan_of_nothing()).unwrap().to_string();
        let value = |key: &str| row.split(' ').find_map(|word| word.strip_prefix(key)).unwrap().parse().unwrap();
        (value("worst_read_error="), value("guaranteed_error="))
    };
    for strategy in STRATEGIES {
        let (worst, guaranteed) = errors_of(strategy);
        assert!(worst <= guaranteed, "{strategy}: {worst} > {guaranteed}");
    }
    // Nothing of what 4 CPUs counted shows yet: one less than the batch, and than the events until a flush.
    assert_eq!(errors_of("linux-grouped").0, 4 * 31);
    assert_eq!(errors_of("split").0, 4 * 63);
    assert_eq!(errors_of("atomic").0, 0);
    assert!(errors_of("grouped").0 > 0);
}

#[test]
fn each_member_has_a_counter_of_its_own() {
    fn check<S: Strategy>(pin: Pinned<'_>) {
        let counters = S::new().unwrap();
        for (member, pages) in [(Member::File, 1), (Member::Anon, -20), (Member::Swap, 300), (Member::Shmem, 4_000)] {
            add(&counters, pin, Update { member, pages });
        }
        assert_eq!(counters.sums(), [1, -20, 300, 4_000], "{}", S::NAME);
    }
    on_a_cpu(check::<Atomic>);
    on_a_cpu(check::<Split>);
    on_a_cpu(check::<LinuxEach>);
    on_a_cpu(check::<LinuxGrouped>);
    on_a_cpu(check::<LinuxLazy>);
    on_a_cpu(check::<Each>);
    on_a_cpu(check::<Grouped>);
    on_a_cpu(check::<Lazy>);
    on_a_cpu(check::<SoleUser>);
}

#[test]
fn sums_are_exact_whoever_added() {
    fn check<S: Strategy>() {
        const NR_ADDS: i64 = 20_000;
        let stage = Threads(machine());
        let mut counters = None;
        stage.on_one(&mut |_| counters = S::new().ok().inspect(S::share));
        let counters = counters.unwrap();
        stage.on_all(&|seat, pin| {
            let mut task = S::Task::default();
            for add in 0..NR_ADDS {
                let update = Update { member: Member::ALL[add as usize % 4], pages: (add % 90) * if seat % 2 == 0 { 1 } else { -2 } };
                // SAFETY: shared.
                unsafe { counters.add_current(pin, &mut task, update) };
            }
            counters.leave(&mut task);
        });
        let expected = [0, 1, 2, 3].map(|member| -2 * (0..NR_ADDS).filter(|add| add % 4 == member).map(|add| add % 90).sum::<i64>());
        let mut counters = Some(counters);
        stage.on_one(&mut |_| assert_eq!(counters.take().unwrap().sums(), expected, "{}", S::NAME));
    }
    let _alone = ALONE.lock();
    clock::set_ticks_per_second(measured_ticks_per_second());
    check::<Atomic>();
    check::<Split>();
    check::<LinuxEach>();
    check::<LinuxGrouped>();
    check::<LinuxLazy>();
    check::<Each>();
    check::<Grouped>();
    check::<Lazy>();
    check::<SoleUser>();
}

#[test]
fn a_linux_counter_tells_at_its_batch() {
    on_a_cpu(|pin| {
        let counters = LinuxGrouped::new().unwrap();
        (0..31).for_each(|_| add(&counters, pin, FAULT));
        assert_eq!(counters.read(FAULT.member), 0);
        add(&counters, pin, FAULT);
        assert_eq!(counters.read(FAULT.member), 32);
        add(&counters, pin, Update { pages: -33, ..FAULT });
        assert_eq!((counters.read(FAULT.member), counters.sums()), (-1, [0, -1, 0, 0]));
    });
}

#[test]
fn a_lazy_linux_counter_is_made_per_cpu_by_256_changes_within_a_second() {
    on_a_cpu(|pin| {
        clock::set_ticks_per_second(measured_ticks_per_second());
        let objects_before = LinuxLazy::live_objects();
        let counters = LinuxLazy::new().unwrap();
        // The first one starts the clock, and the count goes around once.
        (0..256).for_each(|_| add(&counters, pin, Update { pages: -3, ..FAULT }));
        assert_eq!(LinuxLazy::live_objects(), objects_before);
        add(&counters, pin, FAULT);
        assert_eq!(LinuxLazy::live_objects(), objects_before + 1);
        add(&counters, pin, FAULT);
        assert_eq!(counters.sums(), [0, -3 * 256 + 2, 0, 0]);
        drop(counters);
        assert_eq!(LinuxLazy::live_objects(), objects_before);

        clock::set_ticks_per_second(1);
        let slow = LinuxLazy::new().unwrap();
        (0..1_000).for_each(|_| add(&slow, pin, FAULT));
        assert_eq!((LinuxLazy::live_objects(), slow.sums()), (objects_before, [0, 1_000, 0, 0]));
    });
}

#[test]
fn a_task_tells_its_space_after_so_many_events() {
    on_a_cpu(|pin| {
        let (counters, mut task) = (Split::new().unwrap(), Default::default());
        // SAFETY: one task.
        let mut fault = || unsafe { counters.add_current(pin, &mut task, FAULT) };
        (1..EVENTS_PER_FLUSH).for_each(|_| fault());
        assert_eq!(counters.read(FAULT.member), 0);
        fault();
        assert_eq!(counters.read(FAULT.member), i64::from(EVENTS_PER_FLUSH));
        fault();
        counters.leave(&mut task);
        assert_eq!(counters.read(FAULT.member), i64::from(EVENTS_PER_FLUSH) + 1);
    });
}

#[test]
fn a_sole_user_takes_per_cpu_memory_when_a_second_thread_joins() {
    on_a_cpu(|pin| {
        let objects_before = SoleUser::live_objects();
        let counters = SoleUser::new().unwrap();
        (0..1_000).for_each(|_| add(&counters, pin, FAULT));
        assert_eq!(SoleUser::live_objects(), objects_before);
        let bytes_alone = counters.bytes();
        counters.share();
        assert_eq!((SoleUser::live_objects(), counters.bytes()), (objects_before + 1, bytes_alone + NR_CPUS * 32));
        add(&counters, pin, FAULT);
        assert_eq!(counters.sums(), [0, 1_001, 0, 0]);
    });
}

#[test]
fn memory_is_what_the_allocator_says_it_is() {
    fn per_cpu_bytes<S: Strategy>() -> (usize, usize) {
        let live_bytes = || pcpu::alloc::stats().live_bytes as usize;
        let before = live_bytes();
        let counters = S::new().unwrap();
        (counters.bytes() - size_of::<S>(), (live_bytes() - before) * NR_CPUS)
    }
    on_a_cpu(|_| {
        for (told, taken) in [per_cpu_bytes::<Each>(), per_cpu_bytes::<Grouped>(), per_cpu_bytes::<Lazy>(), per_cpu_bytes::<SoleUser>()] {
            assert_eq!(told, taken);
        }
    });
}
