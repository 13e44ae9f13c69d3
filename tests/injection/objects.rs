//! The world of the library's operations: objects in use, counters, words, and what they must be.

use core::cell::Cell;
use core::num::NonZeroUsize;
use core::ptr;
use pcpu::{
    AllocError, AllocFlags, Counter, CounterSet, CpuId, DEFAULT_UNIT_BYTES, EventCounter, HighWater, LazyCounter, LazyCounterSet,
    LimitCounter, alloc, per_cpu,
};

use crate::cpus::{NR_CPUS, copy_on, migrate_to};
use crate::explorer::World;
use crate::pool::POOL;

/// The class that most cases work on.
pub const SIZE: usize = 16;

/// What the counter with a limit must not exceed: a few batches.
pub const LIMIT: u64 = 200;

/// Objects in use at a time, at most.
const MAX_LIVE: usize = 256;

/// In one of how many schedules the allocator's invariants are walked over.
const WALK_EVERY: usize = 32;

per_cpu! {
    /// A word that is only added to.
    pub static TOTAL: u64 = 0;
    /// A word that is taken and put as a whole.
    pub static PURSE: u64 = 0;
}

unsafe extern "C" {
    static __start_pcpu_template: u8;
    static __stop_pcpu_template: u8;
}

#[derive(Clone, Copy)]
pub struct Object {
    pub handle: NonZeroUsize,
    pub size_bytes: usize,
}

impl Object {
    fn copy_on(&self, cpu: CpuId) -> *mut u8 {
        copy_on(cpu, self.handle.get())
    }

    /// Marks the object as used on every CPU.
    fn soil(&self) {
        for cpu in CpuId::possible() {
            // SAFETY: the world's own object.
            unsafe { self.copy_on(cpu).cast::<usize>().write(self.handle.get()) };
        }
    }

    /// Takes the mark away again, and checks that it was still there.
    pub fn clean(&self) {
        for cpu in CpuId::possible() {
            // SAFETY: as above.
            let mark = unsafe { self.copy_on(cpu).cast::<usize>().replace(0) };
            assert_eq!(mark, self.handle.get(), "somebody wrote to an object in use");
        }
    }

    fn assert_clean(&self) {
        for cpu in CpuId::possible() {
            assert_zero(self.copy_on(cpu), self.size_bytes);
        }
    }
}

fn assert_zero(memory: *const u8, bytes: usize) {
    static ZERO: [u8; DEFAULT_UNIT_BYTES] = [0; DEFAULT_UNIT_BYTES];
    // SAFETY: both are that long; what is compared is per-CPU memory that nobody writes to meanwhile.
    let difference = unsafe { libc::memcmp(memory.cast(), ptr::from_ref(&ZERO).cast(), bytes) };
    assert_eq!(difference, 0, "what is free is zero on every CPU");
}

pub struct Objects {
    live: [Cell<Option<Object>>; MAX_LIVE],
    nr_live: Cell<usize>,
    pub counter: Counter,
    pub set: CounterSet<3>,
    pub lazy: LazyCounterSet<2>,
    /// Promoted from the start.
    pub promoted: LazyCounter,
    pub events: EventCounter,
    pub mark: HighWater,
    pub limit: LimitCounter,
    /// What the counters must sum up to.
    pub expected: Cell<i64>,
    pub expected_set: [Cell<i64>; 3],
    pub expected_lazy: [Cell<i64>; 2],
    pub expected_promoted: Cell<i64>,
    pub expected_events: Cell<u64>,
    pub expected_limit: Cell<u64>,
    /// The highest value recorded.
    pub highest: Cell<u64>,
    /// What the operation under way adds to the counter.
    pub pending: Cell<i64>,
    pub expected_total: Cell<u64>,
    pub expected_purse: Cell<u64>,
}

impl World for Objects {
    fn new() -> Self {
        alloc::set_source(&POOL);
        // Magazines of full length on every CPU, all empty.
        for cpu in CpuId::possible() {
            migrate_to(cpu);
            for size_bytes in [8, SIZE, 32] {
                alloc::prefill(size_bytes, 8, 32).expect("room");
            }
            alloc::drain_this_cpu();
        }
        migrate_to(CpuId::BOOT);
        let promoted = LazyCounter::new(0);
        promoted.promote(AllocFlags::PROCESS).expect("room");
        Objects {
            live: [const { Cell::new(None) }; MAX_LIVE],
            nr_live: Cell::new(0),
            counter: Counter::new(0).expect("room"),
            set: CounterSet::new([0; 3]).expect("room"),
            lazy: LazyCounterSet::new([0; 2]),
            promoted,
            events: EventCounter::new().expect("room"),
            mark: HighWater::new().expect("room"),
            limit: LimitCounter::new(LIMIT).expect("room"),
            expected: Cell::new(0),
            expected_set: [const { Cell::new(0) }; 3],
            expected_lazy: [const { Cell::new(0) }; 2],
            expected_promoted: Cell::new(0),
            expected_events: Cell::new(0),
            expected_limit: Cell::new(0),
            highest: Cell::new(0),
            pending: Cell::new(0),
            expected_total: Cell::new(0),
            expected_purse: Cell::new(0),
        }
    }

    fn finish(self, nr: usize) {
        migrate_to(CpuId::BOOT);
        assert!(pcpu::host::irqs_are_on(), "interrupts are as they were");
        assert_eq!(self.counter.sum(), self.expected.get(), "the sum is exact");
        let not_posted = self.counter.sum() - self.counter.read();
        assert!((0..32 * NR_CPUS as i64).contains(&not_posted), "less than a batch is not posted on each CPU");
        assert_eq!(self.set.sum_all(), self.expected_set.each_ref().map(Cell::get), "the sums are exact");
        assert_eq!(TOTAL.sum(), self.expected_total.get(), "a word's sum is exact");
        assert_eq!(PURSE.sum(), self.expected_purse.get(), "nothing was taken twice or lost");
        assert_eq!(self.lazy.sum_all(), self.expected_lazy.each_ref().map(Cell::get), "the sums are exact");
        assert_eq!(self.promoted.sum(), self.expected_promoted.get(), "the sum is exact");
        assert_eq!(self.events.sum(), self.expected_events.get(), "no event is lost");
        assert_eq!(self.mark.max(), self.highest.get(), "the highest value stays");
        assert_eq!(self.limit.value(), self.expected_limit.get(), "what is left is somewhere");
        let nr_counters = 6 + usize::from(self.lazy.is_promoted());
        assert_eq!(alloc::stats().live_objects, (self.nr_live.get() + nr_counters) as u64, "the statistics agree");
        while self.nr_live.get() > 0 {
            self.free_last();
        }
        drop((self.counter, self.set, self.lazy, self.promoted, self.events, self.mark, self.limit));
        for cpu in CpuId::possible() {
            // SAFETY: words that only this thread uses.
            unsafe { (*TOTAL.ptr_on(cpu), *PURSE.ptr_on(cpu)) = (0, 0) };
            migrate_to(cpu);
            alloc::drain_this_cpu();
        }
        migrate_to(CpuId::BOOT);
        alloc::reclaim();
        let stats = alloc::stats();
        assert_eq!(stats.live_objects, 0, "the statistics agree");
        assert_eq!(stats.populated_bytes, 0, "an object was lost: it is neither in use nor free");
        assert_eq!(stats.chunks, 1, "further chunks were given back");
        let (start, stop) = (&raw const __start_pcpu_template, &raw const __stop_pcpu_template);
        let static_bytes = stop.addr() - start.addr();
        for cpu in CpuId::possible() {
            assert_zero(copy_on(cpu, stop.addr()), DEFAULT_UNIT_BYTES - static_bytes);
        }
        // The walk takes longer than all the rest, and the structures behind the lock are few.
        if nr.is_multiple_of(WALK_EVERY) {
            alloc::check();
        }
    }
}

impl Objects {
    /// Writes an object down as in use: it must be new, and clean.
    pub fn remember(&self, handle: NonZeroUsize, size_bytes: usize) {
        let object = Object { handle, size_bytes };
        for other in self.live().iter().filter_map(Cell::get) {
            let apart = handle.get().wrapping_sub(other.handle.get()) >= other.size_bytes
                && other.handle.get().wrapping_sub(handle.get()) >= size_bytes;
            assert!(apart, "an object was handed out twice");
        }
        object.assert_clean();
        object.soil();
        self.live[self.nr_live.replace(self.nr_live.get() + 1)].set(Some(object));
    }

    fn live(&self) -> &[Cell<Option<Object>>] {
        &self.live[..self.nr_live.get()]
    }

    /// Gives up the object that was allocated last; it is clean.
    pub fn forget(&self) -> Option<Object> {
        let object = self.live().last()?.take();
        self.nr_live.set(self.nr_live.get() - 1);
        object.inspect(Object::clean)
    }

    /// Allocates an object unless the flags forbid what it takes.
    pub fn allocate(&self, flags: AllocFlags) -> bool {
        self.allocate_of(SIZE, flags)
    }

    pub fn allocate_of(&self, size_bytes: usize, flags: AllocFlags) -> bool {
        if self.nr_live.get() == MAX_LIVE {
            return false;
        }
        match alloc::allocate(size_bytes, 8, flags) {
            Ok(handle) => {
                self.remember(handle, size_bytes);
                true
            }
            Err(AllocError::WouldWait) if !flags.contains(AllocFlags::LOCK) => false,
            Err(AllocError::ChunksFull) if !flags.contains(AllocFlags::GROW) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Frees the object that was allocated last, if there is one.
    pub fn free_last(&self) {
        if let Some(object) = self.forget() {
            object.soil();
            // SAFETY: allocated with that size, and forgotten.
            unsafe { alloc::free(object.handle, object.size_bytes, 8) };
        }
    }

    /// Gives a CPU exactly that many objects of the class in stock, and the world `nr_live` more to free.
    pub fn stock(&self, size_bytes: usize, nr_by_cpu: [usize; NR_CPUS], nr_live: usize) {
        for _ in 0..nr_live {
            self.allocate_of(size_bytes, AllocFlags::PROCESS);
        }
        for (cpu, nr) in CpuId::possible().zip(nr_by_cpu) {
            migrate_to(cpu);
            alloc::drain_this_cpu();
            alloc::prefill(size_bytes, 8, nr).expect("room");
        }
        migrate_to(CpuId::BOOT);
    }

    /// Adds to all counters and words, and looks at a sum.
    pub fn count(&self) {
        let sum = self.counter.sum();
        assert!(sum == self.expected.get() || sum == self.expected.get() + self.pending.get(), "the sum has all adds that finished");
        self.counter.add(3);
        self.expected.set(self.expected.get() + 3);
        for (index, amount) in [(0, 40), (1, -31), (2, 1)] {
            self.set.add(index, amount);
            self.expected_set[index].set(self.expected_set[index].get() + amount);
        }
        self.lazy.add(0, 1);
        self.lazy.add(1, -40);
        for (index, amount) in [(0, 1), (1, -40)] {
            self.expected_lazy[index].set(self.expected_lazy[index].get() + amount);
        }
        self.promoted.add(31);
        self.expected_promoted.set(self.expected_promoted.get() + 31);
        self.events.add(2);
        self.expected_events.set(self.expected_events.get() + 2);
        self.record(self.highest.get() + 1);
        TOTAL.add(5);
        self.expected_total.set(self.expected_total.get() + 5);
        PURSE.add(7);
        self.expected_purse.set(self.expected_purse.get() + 7);
    }

    /// Records a value in the high-water mark.
    pub fn record(&self, value: u64) {
        self.mark.record(value);
        self.highest.set(self.highest.get().max(value));
    }

    /// Adds to the counter with a limit, or gives everything back if that would exceed it.
    pub fn spend(&self, amount: u64) {
        if self.limit.try_add(amount).is_ok() {
            self.expected_limit.set(self.expected_limit.get() + amount);
            assert!(self.expected_limit.get() <= LIMIT, "above the limit");
        } else {
            self.limit.sub(self.expected_limit.replace(0));
        }
    }
}
