//! A limit on the memory for per-CPU chunks, reached while a bomb grows. A process of its own, since a process has one source.

use core::ptr::NonNull;
use pcpu::AreaLayout;
use pcpu::alloc::{Heap, Source};
use pcpu::host::Machine;
use std::sync::atomic::{AtomicUsize, Ordering};
use workload::{Crew, Each, Grouped, Orders, Strategy, Tally, Workload};

const NR_CPUS: usize = 2;
const MAX_CHUNKS: usize = 2;

/// So many chunks and no more.
struct Limited {
    nr_chunks: AtomicUsize,
}

static LIMITED: Limited = Limited { nr_chunks: AtomicUsize::new(0) };

// SAFETY: the heap's chunks.
unsafe impl Source for Limited {
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>> {
        let more = |nr| (nr < MAX_CHUNKS).then_some(nr + 1);
        self.nr_chunks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Heap.allocate(chunk)
    }

    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout) {
        // SAFETY: the caller's promise.
        unsafe { Heap.release(memory, chunk) };
        self.nr_chunks.fetch_sub(1, Ordering::Relaxed);
    }
}

fn bomb<S: Strategy>(machine: Machine, live: usize, steps: usize) -> Tally {
    let orders = Orders { workload: Workload::Bomb, live, folio_order: 0, shares: false };
    let crew = Crew::<S>::new(NR_CPUS, orders).unwrap();
    let tallies = machine.run(NR_CPUS, |cpu| {
        let mut asked = 0;
        let time_is_up = || {
            asked += 1;
            asked > steps
        };
        // SAFETY: a thread is its CPU until it ends.
        unsafe { pcpu::assume_pinned(|pin| crew.work(pin, cpu.index(), time_is_up)) }
    });
    assert_eq!(crew.finish(), (0, 0));
    let mut total = Tally::default();
    tallies.into_iter().for_each(|tally| total += tally);
    total
}

#[test]
fn forks_fail_at_the_limit_and_the_system_goes_on() {
    // SAFETY: this test touches per-CPU data only inside of `run`, and starts no threads there.
    let machine = unsafe { Machine::boot(NR_CPUS) }.unwrap();
    pcpu::alloc::set_source(&LIMITED);
    let objects = || machine.run(1, |_| pcpu::alloc::stats().live_objects)[0];
    let objects_before = objects();

    // More spaces than all chunks have room for: 32 B on each CPU for each of them, and four times 8 B.
    let live = 4 * (MAX_CHUNKS + 1) * pcpu::DEFAULT_UNIT_BYTES / 32;
    for tally in [bomb::<Grouped>(machine, live, live), bomb::<Each>(machine, live, live)] {
        assert!(tally.failed_forks > 0);
        assert!(tally.lifetimes > tally.failed_forks);
        assert_eq!(tally.nonzero_counters, 0);
        assert_eq!(objects(), objects_before);
    }

    let after = bomb::<Grouped>(machine, 256, 5_000);
    assert_eq!((after.failed_forks, after.nonzero_counters), (0, 0));
    assert!(after.lifetimes > 1_000);
    assert_eq!(objects(), objects_before);
}
