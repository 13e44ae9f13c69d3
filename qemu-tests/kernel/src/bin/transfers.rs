//! Every operation between marks, on all CPUs at once, for the plugin that counts how often cache lines change hands.
//!
//! Words of the command line: `op=NAME` for the operations whose names contain NAME (several words: any of them), `rounds=256` on each CPU,
//! `interleave=N` to let the next CPU run after every N instructions inside operations too.
//!
//! QEMU runs all CPUs on one thread and goes on to the next CPU at each operation's end, so that every execution finds the lines where the
//! other CPUs have left them. No timer ticks. What hands objects from CPU to CPU, and waits, is outside of the marks.

#![cfg_attr(pcpu_kernel, no_std, no_main)]

#[cfg(not(pcpu_kernel))]
fn main() {
    println!("a kernel: run it with `cargo xtask transfers`");
}

#[cfg(pcpu_kernel)]
extern crate alloc;

#[cfg(pcpu_kernel)]
mod kernel {
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::hint::{black_box, spin_loop};
    use core::num::NonZeroUsize;
    use core::ops::Deref;
    use core::ptr::NonNull;
    use core::str::FromStr;
    use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use pcpu::{
        AllocFlags, Counter, CounterSet, CpuId, EventCounter, Explicit, LazyCounterSet, LimitCounter, Pinned, assume_pinned, marked, marker,
    };
    use pcpu_boot::{BootInfo, CommandLine, Exit, exit, interrupts, smp};
    use spin::mutex::SpinMutex;
    use workload::lifetime::{FORK_COPY, FORK_EXIT, FORK_RUN, Update};
    use workload::linux_like::LinuxLike;
    use workload::{Atomic, Each, Grouped, Lazy, LinuxEach, LinuxGrouped, LinuxLazy, SoleUser, Split, Strategy, replay_exec};
    use x86_64::registers::rflags::{self, RFlags};

    pcpu_boot::entry!(main);

    /// Each CPU's part of a chunk.
    const UNIT_BYTES: usize = 128 * 1024;

    /// Executions on each CPU: a multiple of the batch, so that each counter posts equally often.
    const DEFAULT_ROUNDS: usize = 256;

    /// Executions on each CPU that are not counted: enough for a batch, and for magazines to get as large as they will.
    const WARM_UP_ROUNDS: usize = 128;

    /// Operations that show that the plugin counts right: not of the library, and only on request.
    const CHECK: &str = "check/";

    /// The vector of the exception after a single step.
    const DEBUG_EXCEPTION: u8 = 1;

    fn main(boot: &'static BootInfo) -> ! {
        let words = boot.command_line;
        let rounds = option(&words, "rounds").unwrap_or(DEFAULT_ROUNDS);
        let steps_per_turn = option(&words, "interleave").unwrap_or(0);
        STEPS_PER_TURN.store(steps_per_turn, Ordering::Relaxed);
        smp::start(boot, UNIT_BYTES);
        interrupts::set_handler(DEBUG_EXCEPTION, stepped);
        pcpu::alloc::set_source(&pcpu::alloc::Heap);
        let is_chosen = |name: &str| {
            if words.value("op").is_none() { !name.starts_with(CHECK) } else { words.values("op").any(|part| name.contains(part)) }
        };
        let chosen: Vec<_> = OPERATIONS.iter().filter(|(name, _)| is_chosen(name)).collect();
        let all_cpus = AllCpus { nr_cpus: boot.nr_cpus, rounds, is_stepped: steps_per_turn > 0, arrived: Apart(AtomicUsize::new(0)) };
        for (step, (name, operation)) in chosen.iter().enumerate() {
            defmt::println!("@progress {=usize} {=usize} {=str}", step, chosen.len(), name);
            operation(&all_cpus);
        }
        defmt::println!("@progress {=usize} {=usize} done", chosen.len(), chosen.len());
        exit(Exit::Success)
    }

    /// The value of `key=value`, if there is one.
    fn option<T: FromStr>(words: &CommandLine, key: &str) -> Option<T> {
        words.value(key).map(|value| value.parse().unwrap_or_else(|_| panic!("{key}={value} is not a number")))
    }

    /// Two lines of its own: processors prefetch lines in pairs.
    #[repr(align(128))]
    struct Apart<T>(T);

    impl<T> Deref for Apart<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    /// In the heap, and not on the boot CPU's stack, whose lines that CPU writes.
    fn apart<T>(value: T) -> Box<Apart<T>> {
        Box::new(Apart(value))
    }

    /// All CPUs, which do the same at the same time.
    struct AllCpus {
        nr_cpus: usize,
        rounds: usize,
        is_stepped: bool,
        arrived: Apart<AtomicUsize>,
    }

    impl AllCpus {
        /// Executes `body` in rounds on each CPU; `NUMBER` is the operation's that it contains. It is copied to each CPU's stack.
        fn repeat<const NUMBER: u16>(&self, body: impl Fn(CpuId, usize) + Copy + Sync) {
            self.repeat_for::<NUMBER>(WARM_UP_ROUNDS, self.rounds, body);
        }

        /// The same for operations of thousands of instructions, which have nothing to do once in a batch.
        fn repeat_less<const NUMBER: u16>(&self, body: impl Fn(CpuId, usize) + Copy + Sync) {
            self.repeat_for::<NUMBER>(WARM_UP_ROUNDS / 4, self.rounds.div_ceil(4), body);
        }

        fn repeat_for<const NUMBER: u16>(&self, warm_up_rounds: usize, rounds: usize, body: impl Fn(CpuId, usize) + Copy + Sync) {
            smp::run_on_all(|cpu| {
                let body = black_box(body);
                step(self.is_stepped);
                (0..warm_up_rounds).for_each(|round| body(cpu, round));
                self.wait();
                if cpu == CpuId::BOOT {
                    marker::forget::<NUMBER>();
                }
                self.wait();
                (0..rounds).for_each(|round| body(cpu, round));
                step(false);
            });
        }

        /// Returns when all CPUs have called it as often as this one.
        fn wait(&self) {
            let last = self.arrived.fetch_add(1, Ordering::AcqRel) / self.nr_cpus * self.nr_cpus + self.nr_cpus;
            while self.arrived.load(Ordering::Acquire) < last {
                spin_loop();
            }
        }
    }

    /// Instructions until the next CPU has its turn, in the middle of an operation; 0: operations are not interrupted.
    static STEPS_PER_TURN: AtomicU64 = AtomicU64::new(0);

    pcpu::per_cpu! {
        static STEPS: u64 = 0;
    }

    /// Makes this CPU take an exception after every instruction, or not.
    fn step(on: bool) {
        let flags = rflags::read();
        // SAFETY: the exception's handler changes nothing that the interrupted code sees.
        unsafe { rflags::write(if on { flags | RFlags::TRAP_FLAG } else { flags - RFlags::TRAP_FLAG }) };
    }

    fn stepped(_: &interrupts::Frame) {
        marker::suspend();
        if STEPS.add_return(1).is_multiple_of(STEPS_PER_TURN.load(Ordering::Relaxed).max(1)) {
            spin_loop();
        }
        marker::resume();
    }

    type Operation = fn(&AllCpus);

    const OPERATIONS: &[(&str, Operation)] = &[
        ("static_add", static_add),
        ("event_add", event_add),
        ("counter_add", counter_add),
        ("counter_add/posting", counter_add_posting),
        ("counter_add_pinned", counter_add_pinned),
        ("counter_add_pinned/posting", counter_add_pinned_posting),
        ("set4_add", set4_add),
        ("set4_add/posting", set4_add_posting),
        ("set4_add_pinned", set4_add_pinned),
        ("lazy4_add_inline", lazy4_add_inline),
        ("lazy4_add_promoted", lazy4_add_promoted),
        ("lazy4_add_promoted/posting", lazy4_add_promoted_posting),
        ("limit_add", limit_add),
        ("read", read),
        ("bounds", bounds),
        ("read_all", read_all),
        ("sum/touched_2", sum_touched_2),
        ("sum/touched_all", sum_touched_all),
        ("alloc_free/16", alloc_free_16),
        ("allocate/16", allocate_16),
        ("free/16", free_16),
        ("alloc_here_free_there/16", alloc_here_free_there_16),
        ("set4_new_drop", set4_new_drop),
        ("lazy4_new_drop", lazy4_new_drop),
        ("fork_exit", fork_exit),
        ("fork_exit/lazy", fork_exit_lazy),
        ("fork_exit/linux-grouped", fork_exit_linux_grouped),
        ("exec/atomic", exec_atomic),
        ("exec/split", exec_split),
        ("exec/linux-each", exec_linux_each),
        ("exec/linux-grouped", exec_linux_grouped),
        ("exec/linux-lazy", exec_linux_lazy),
        ("exec/each", exec_each),
        ("exec/grouped", exec_grouped),
        ("exec/lazy", exec_lazy),
        ("exec/sole-user", exec_sole_user),
        ("linux_like_alloc_free", linux_like_alloc_free),
        ("atomic_add", atomic_add),
        ("sharded_atomic_add", sharded_atomic_add),
        ("check/contended", check_contended),
        ("check/private", check_private),
        ("check/read_mostly", check_read_mostly),
        ("check/false_sharing", check_false_sharing),
        ("check/spin_lock", check_spin_lock),
        ("check/spin_lock_held", check_spin_lock_held),
    ];

    pcpu::per_cpu! {
        static HITS: u64 = 0;
    }

    /// No add reaches it.
    const LIMIT: u64 = 1 << 40;

    const OBJECT_BYTES: usize = 16;

    /// Objects that are handed over at once: two magazines' worth.
    const BUFFER: usize = 64;

    /// Until magazines have their size, and what they exchange among them goes round.
    const WARM_UP_BUFFERS: usize = 8;

    const NR_SHARDS: usize = 64;

    /// What to add so that nothing is ever posted: 1 and -1 in turns.
    fn hit(round: usize) -> i64 {
        black_box(if round.is_multiple_of(2) { 1 } else { -1 })
    }

    fn pinned(operation: impl for<'p> FnOnce(Pinned<'p>)) {
        // SAFETY: a task of `run_on_all` stays on its CPU.
        unsafe { assume_pinned(operation) }
    }

    fn promoted() -> LazyCounterSet<4, Explicit> {
        let counters = LazyCounterSet::default();
        counters.promote(AllocFlags::PROCESS).expect("memory for counters");
        counters
    }

    fn allocate() -> NonZeroUsize {
        pcpu::alloc::allocate(OBJECT_BYTES, 8, AllocFlags::PROCESS).expect("memory for an object")
    }

    fn free(object: NonZeroUsize) {
        // SAFETY: from `allocate`, freed once, and never written to.
        unsafe { pcpu::alloc::free_clean(object, OBJECT_BYTES, 8) };
    }

    fn linux_like_pair(allocator: &LinuxLike) {
        let object: NonNull<u8> = allocator.allocate(OBJECT_BYTES, 8).expect("memory for an object");
        // SAFETY: allocated above.
        unsafe { allocator.free(black_box(object)) };
    }

    fn counters<S: Strategy>() -> S {
        S::new().unwrap_or_else(|error| panic!("{} counters: {error}", S::NAME))
    }

    fn apply<S: Strategy>(pin: Pinned<'_>, counters: &S, phases: &[&[Update]]) {
        for &update in phases.iter().copied().flatten() {
            // SAFETY: the counters are this CPU's alone.
            unsafe { black_box(counters).add(pin, update) };
        }
    }

    fn drop_checked<S: Strategy>(counters: S) {
        assert!(counters.sums().iter().all(|&sum| sum == 0), "{} counters did not end at zero", S::NAME);
    }

    /// The counters' part of a child's life that exits without exec.
    fn fork_and_exit<S: Strategy>(pin: Pinned<'_>) {
        let copy = counters::<S>();
        apply(pin, &copy, &[FORK_COPY, FORK_RUN, FORK_EXIT]);
        drop_checked(copy);
    }

    /// The counters' part of a whole process.
    fn fork_exec_and_exit<S: Strategy>(pin: Pinned<'_>) {
        let nonzero = replay_exec::<S>(pin).unwrap_or_else(|error| panic!("{} counters: {error}", S::NAME));
        assert_eq!(nonzero, 0, "{} counters did not end at zero", S::NAME);
    }

    fn static_add(all_cpus: &AllCpus) {
        all_cpus.repeat::<1>(|_, _| marked!(1, "static_add", HITS.add(1)));
    }

    fn event_add(all_cpus: &AllCpus) {
        let counter = apart(EventCounter::new().expect("memory for a counter"));
        let counter = &**counter;
        all_cpus.repeat::<2>(move |_, _| marked!(2, "event_add", counter.add(1)));
    }

    fn counter_add(all_cpus: &AllCpus) {
        let counter = apart(Counter::new(0).expect("memory for a counter"));
        let counter = &**counter;
        all_cpus.repeat::<3>(move |_, round| {
            let amount = hit(round);
            marked!(3, "counter_add", counter.add(amount))
        });
    }

    fn counter_add_posting(all_cpus: &AllCpus) {
        let counter = apart(Counter::new(0).expect("memory for a counter"));
        let counter = &**counter;
        all_cpus.repeat::<4>(move |_, _| marked!(4, "counter_add/posting", counter.add(1)));
    }

    fn counter_add_pinned(all_cpus: &AllCpus) {
        let counter = apart(Counter::new(0).expect("memory for a counter"));
        let counter = &**counter;
        all_cpus.repeat::<5>(move |_, round| {
            let amount = hit(round);
            pinned(|pin| marked!(5, "counter_add_pinned", counter.add_pinned(pin, amount)))
        });
    }

    fn counter_add_pinned_posting(all_cpus: &AllCpus) {
        let counter = apart(Counter::new(0).expect("memory for a counter"));
        let counter = &**counter;
        all_cpus.repeat::<6>(move |_, _| pinned(|pin| marked!(6, "counter_add_pinned/posting", counter.add_pinned(pin, 1))));
    }

    fn set4_add(all_cpus: &AllCpus) {
        let counter = apart(CounterSet::new([0; 4]).expect("memory for counters"));
        let counter = &**counter;
        all_cpus.repeat::<7>(move |_, round| {
            let amount = hit(round);
            marked!(7, "set4_add", counter.add(2, amount))
        });
    }

    fn set4_add_posting(all_cpus: &AllCpus) {
        let counter = apart(CounterSet::new([0; 4]).expect("memory for counters"));
        let counter = &**counter;
        all_cpus.repeat::<8>(move |_, _| marked!(8, "set4_add/posting", counter.add(2, 1)));
    }

    fn set4_add_pinned(all_cpus: &AllCpus) {
        let counter = apart(CounterSet::new([0; 4]).expect("memory for counters"));
        let counter = &**counter;
        all_cpus.repeat::<9>(move |_, round| {
            let amount = hit(round);
            pinned(|pin| marked!(9, "set4_add_pinned", counter.add_pinned(pin, 2, amount)))
        });
    }

    fn lazy4_add_inline(all_cpus: &AllCpus) {
        let counters: Vec<_> = (0..all_cpus.nr_cpus).map(|_| apart(LazyCounterSet::<4>::default())).collect();
        let counters = &*counters;
        all_cpus.repeat::<10>(move |cpu, round| {
            let (own, amount) = (&**counters[cpu.index()], hit(round));
            marked!(10, "lazy4_add_inline", own.add(2, amount))
        });
    }

    fn lazy4_add_promoted(all_cpus: &AllCpus) {
        let counter = apart(promoted());
        let counter = &**counter;
        all_cpus.repeat::<11>(move |_, round| {
            let amount = hit(round);
            marked!(11, "lazy4_add_promoted", counter.add(2, amount))
        });
    }

    fn lazy4_add_promoted_posting(all_cpus: &AllCpus) {
        let counter = apart(promoted());
        let counter = &**counter;
        all_cpus.repeat::<12>(move |_, _| marked!(12, "lazy4_add_promoted/posting", counter.add(2, 1)));
    }

    fn limit_add(all_cpus: &AllCpus) {
        let counter = apart(LimitCounter::new(LIMIT).expect("memory for a counter"));
        counter.try_add(LIMIT / 2).expect("below the limit");
        let counter = &**counter;
        all_cpus.repeat::<13>(move |_, round| {
            if hit(round) > 0 {
                marked!(13, "limit_add", counter.try_add(1)).expect("below the limit");
            } else {
                marked!(13, "limit_add", counter.sub(1));
            }
        });
    }

    fn read(all_cpus: &AllCpus) {
        let counter = apart(Counter::new(0).expect("memory for a counter"));
        let counter = &**counter;
        all_cpus.repeat::<14>(move |_, _| {
            counter.inc();
            black_box(marked!(14, "read", counter.read()));
        });
    }

    fn bounds(all_cpus: &AllCpus) {
        let counter = apart(Counter::new(0).expect("memory for a counter"));
        let counter = &**counter;
        all_cpus.repeat::<15>(move |_, _| {
            counter.inc();
            black_box(marked!(15, "bounds", counter.bounds()));
        });
    }

    fn read_all(all_cpus: &AllCpus) {
        let counters = apart(CounterSet::new([0; 4]).expect("memory for counters"));
        let counters = &**counters;
        all_cpus.repeat::<44>(move |_, _| {
            counters.add(2, 1);
            black_box(marked!(44, "read_all", counters.read_all()));
        });
    }

    fn sum_touched_2(all_cpus: &AllCpus) {
        sum::<16>(all_cpus, 2, |counter| marked!(16, "sum/touched_2", counter.sum()));
    }

    fn sum_touched_all(all_cpus: &AllCpus) {
        sum::<45>(all_cpus, all_cpus.nr_cpus, |counter| marked!(45, "sum/touched_all", counter.sum()));
    }

    /// The boot CPU sums what so many CPUs, it among them, have added to since it did so last.
    fn sum<const NUMBER: u16>(all_cpus: &AllCpus, nr_touched: usize, sum: impl Fn(&Counter) -> i64 + Copy + Sync) {
        let counter = apart(Counter::new(0).expect("memory for a counter"));
        let counter = &**counter;
        all_cpus.repeat::<NUMBER>(|cpu, round| {
            if cpu.index() < nr_touched {
                counter.add(hit(round));
            }
            all_cpus.wait();
            if cpu == CpuId::BOOT {
                black_box(sum(counter));
            }
            all_cpus.wait();
        });
    }

    fn alloc_free_16(all_cpus: &AllCpus) {
        all_cpus.repeat::<17>(|_, _| marked!(17, "alloc_free/16", free(black_box(allocate()))));
    }

    fn allocate_16(all_cpus: &AllCpus) {
        all_cpus.repeat::<18>(|_, _| free(marked!(18, "allocate/16", allocate())));
    }

    fn free_16(all_cpus: &AllCpus) {
        all_cpus.repeat::<19>(|_, _| {
            let object = allocate();
            marked!(19, "free/16", free(object))
        });
    }

    /// Each CPU allocates a buffer of objects, which the next one frees: an execution is an allocation and a free.
    fn alloc_here_free_there_16(all_cpus: &AllCpus) {
        let buffers: Vec<_> = (0..all_cpus.nr_cpus).map(|_| apart([const { AtomicUsize::new(0) }; BUFFER])).collect();
        let buffers = &*buffers;
        all_cpus.repeat_for::<20>(WARM_UP_BUFFERS, all_cpus.rounds.div_ceil(BUFFER), |cpu, _| {
            for cell in buffers[cpu.index()].iter() {
                cell.store(marked!(20, "alloc_here_free_there/16", allocate()).get(), Ordering::Relaxed);
            }
            all_cpus.wait();
            for cell in buffers[(cpu.index() + 1) % all_cpus.nr_cpus].iter() {
                let object = NonZeroUsize::new(cell.load(Ordering::Relaxed)).expect("an object");
                marked!(part 20, free(object));
            }
            all_cpus.wait();
        });
    }

    fn set4_new_drop(all_cpus: &AllCpus) {
        all_cpus.repeat::<21>(|_, _| {
            marked!(21, "set4_new_drop", {
                black_box(&CounterSet::new([0; 4]).expect("memory for counters"));
            })
        });
    }

    fn lazy4_new_drop(all_cpus: &AllCpus) {
        all_cpus.repeat::<22>(|_, _| {
            marked!(22, "lazy4_new_drop", {
                black_box(&LazyCounterSet::new([0; 4]));
            })
        });
    }

    fn fork_exit(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<23>(|_, _| pinned(|pin| marked!(23, "fork_exit", fork_and_exit::<Grouped>(pin))));
    }

    fn fork_exit_lazy(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<25>(|_, _| pinned(|pin| marked!(25, "fork_exit/lazy", fork_and_exit::<Lazy>(pin))));
    }

    fn fork_exit_linux_grouped(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<27>(|_, _| pinned(|pin| marked!(27, "fork_exit/linux-grouped", fork_and_exit::<LinuxGrouped>(pin))));
    }

    fn exec_atomic(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<24>(|_, _| pinned(|pin| marked!(24, "exec/atomic", fork_exec_and_exit::<Atomic>(pin))));
    }

    fn exec_split(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<26>(|_, _| pinned(|pin| marked!(26, "exec/split", fork_exec_and_exit::<Split>(pin))));
    }

    fn exec_linux_each(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<28>(|_, _| pinned(|pin| marked!(28, "exec/linux-each", fork_exec_and_exit::<LinuxEach>(pin))));
    }

    fn exec_linux_grouped(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<38>(|_, _| pinned(|pin| marked!(38, "exec/linux-grouped", fork_exec_and_exit::<LinuxGrouped>(pin))));
    }

    fn exec_linux_lazy(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<39>(|_, _| pinned(|pin| marked!(39, "exec/linux-lazy", fork_exec_and_exit::<LinuxLazy>(pin))));
    }

    fn exec_each(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<40>(|_, _| pinned(|pin| marked!(40, "exec/each", fork_exec_and_exit::<Each>(pin))));
    }

    fn exec_grouped(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<41>(|_, _| pinned(|pin| marked!(41, "exec/grouped", fork_exec_and_exit::<Grouped>(pin))));
    }

    fn exec_lazy(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<42>(|_, _| pinned(|pin| marked!(42, "exec/lazy", fork_exec_and_exit::<Lazy>(pin))));
    }

    fn exec_sole_user(all_cpus: &AllCpus) {
        all_cpus.repeat_less::<43>(|_, _| pinned(|pin| marked!(43, "exec/sole-user", fork_exec_and_exit::<SoleUser>(pin))));
    }

    fn linux_like_alloc_free(all_cpus: &AllCpus) {
        let allocator = apart(LinuxLike::new(all_cpus.nr_cpus, UNIT_BYTES));
        let allocator = &**allocator;
        all_cpus.repeat_less::<29>(move |_, _| marked!(29, "linux_like_alloc_free", linux_like_pair(allocator)));
    }

    fn atomic_add(all_cpus: &AllCpus) {
        let counter = apart(AtomicU64::new(0));
        let counter = &**counter;
        all_cpus.repeat::<30>(move |_, _| {
            marked!(30, "atomic_add", counter.fetch_add(1, Ordering::Relaxed));
        });
    }

    /// A counter of as many words as there were threads when it was written, each in lines of its own.
    fn sharded_atomic_add(all_cpus: &AllCpus) {
        let shards: Vec<_> = (0..NR_SHARDS).map(|_| Apart(AtomicU64::new(0))).collect();
        let shards = &*shards;
        all_cpus.repeat::<31>(move |cpu, _| {
            let shard = &shards[cpu.index() % NR_SHARDS];
            marked!(31, "sharded_atomic_add", shard.fetch_add(1, Ordering::Relaxed));
        });
    }

    fn check_contended(all_cpus: &AllCpus) {
        let word = apart(AtomicU64::new(0));
        let word = &**word;
        all_cpus.repeat::<32>(move |_, _| {
            marked!(32, "check/contended", word.fetch_add(1, Ordering::Relaxed));
        });
    }

    fn check_private(all_cpus: &AllCpus) {
        let words: Vec<_> = (0..all_cpus.nr_cpus).map(|_| Apart(AtomicU64::new(0))).collect();
        let words = &*words;
        all_cpus.repeat::<33>(move |cpu, _| {
            let word = &words[cpu.index()];
            marked!(33, "check/private", word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
        });
    }

    /// The boot CPU writes what the others read.
    fn check_read_mostly(all_cpus: &AllCpus) {
        let word = apart(AtomicUsize::new(0));
        let word = &**word;
        all_cpus.repeat::<34>(move |cpu, round| {
            if cpu == CpuId::BOOT {
                marked!(34, "check/read_mostly", word.store(round, Ordering::Relaxed));
            } else {
                black_box(marked!(34, "check/read_mostly", word.load(Ordering::Relaxed)));
            }
        });
    }

    /// Each CPU has a field of its own, without a lock, in a line that it shares with others.
    fn check_false_sharing(all_cpus: &AllCpus) {
        let fields = apart([const { AtomicU64::new(0) }; 8]);
        let fields = &**fields;
        all_cpus.repeat::<35>(move |cpu, _| {
            let field = &fields[cpu.index() % fields.len()];
            marked!(35, "check/false_sharing", write_own_field(field));
        });
    }

    #[inline(never)]
    fn write_own_field(field: &AtomicU64) {
        field.store(1, Ordering::Relaxed);
    }

    fn check_spin_lock(all_cpus: &AllCpus) {
        let word = apart(SpinMutex::<u64>::new(0));
        let word = &**word;
        all_cpus.repeat::<36>(move |_, _| marked!(36, "check/spin_lock", *word.lock() += 1));
    }

    /// The next CPU has its turn while the lock is held.
    fn check_spin_lock_held(all_cpus: &AllCpus) {
        let word = apart(SpinMutex::<u64>::new(0));
        let word = &**word;
        all_cpus.repeat::<37>(move |_, _| {
            marked!(37, "check/spin_lock_held", {
                let mut word = word.lock();
                *word += 1;
                spin_loop();
            })
        });
    }
}
