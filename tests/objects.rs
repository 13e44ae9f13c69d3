//! Run-time objects: allocation, construction, references.

mod common;

use common::machine;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use pcpu::{AllocError, AllocFlags, CpuId, Local, PerCpuBox, TryNewError, alloc, with_irqs_off, with_pin};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

const NR_CPUS: usize = 4;

/// Tests that compare the allocator's statistics must not overlap with others of this process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone<R: Send>(f: impl Fn() -> R + Sync) -> R {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = machine(NR_CPUS).run(1, |_| alloc::stats()).remove(0);
    let result = machine(NR_CPUS).run(1, |_| f()).remove(0);
    let after = machine(NR_CPUS).run(1, |_| alloc::stats()).remove(0);
    assert_eq!((after.live_objects, after.live_bytes), (before.live_objects, before.live_bytes), "everything was given back");
    result
}

#[test]
fn a_box_is_zero_on_every_cpu_and_one_word() {
    assert_eq!(size_of::<Option<PerCpuBox<u64>>>(), size_of::<usize>());
    alone(|| {
        for _ in 0..3 {
            let word = PerCpuBox::<u64>::zeroed().unwrap();
            assert!(CpuId::possible().all(|cpu| word.get_on(cpu) == 0));
            word.add(3);
            assert_eq!(word.get_on(CpuId::BOOT), 3);
            assert_eq!(word.sum(), 3);
            // Dirty on another CPU too, so that the next one shows whether a free cleans.
            // SAFETY: only this CPU runs.
            unsafe { *word.ptr_on(CpuId::new(3).unwrap()) = 9 };
        }
    });
}

#[test]
fn a_new_object_overlaps_no_live_one_and_is_aligned_everywhere() {
    alone(|| {
        let sizes = [1usize, 7, 8, 9, 16, 24, 63, 64, 65, 100, 256, 1000, 4096, 20_000, alloc_max()];
        let mut live: Vec<(core::num::NonZeroUsize, usize, usize)> = Vec::new();
        for align in [1usize, 2, 4, 8, 16, 32, 64] {
            for size in sizes {
                let handle = alloc::allocate(size, align, AllocFlags::PROCESS).unwrap();
                assert_eq!(handle.get() % align, 0);
                for &(other, other_size, _) in &live {
                    let apart = handle.get().wrapping_sub(other.get()) >= other_size && other.get().wrapping_sub(handle.get()) >= size;
                    assert!(apart, "{handle:#x}+{size} overlaps {other:#x}+{other_size}");
                }
                live.push((handle, size, align));
            }
        }
        for (handle, size, align) in live {
            // SAFETY: allocated above, nobody used it.
            unsafe { alloc::free(handle, size, align) };
        }
    });
}

fn alloc_max() -> usize {
    pcpu::DEFAULT_UNIT_BYTES
}

#[test]
fn absurd_sizes_and_alignments_are_named_errors() {
    alone(|| {
        let new = |size, align| alloc::allocate(size, align, AllocFlags::PROCESS);
        let max_bytes = alloc_max();
        assert_eq!(new(0, 1), Err(AllocError::ZeroSize));
        assert_eq!(new(max_bytes + 1, 1), Err(AllocError::TooLarge { size_bytes: max_bytes + 1, max_bytes }));
        assert_eq!(new(usize::MAX, 8), Err(AllocError::TooLarge { size_bytes: usize::MAX, max_bytes }));
        for align_bytes in [0, 3, 48, usize::MAX] {
            assert_eq!(new(8, align_bytes), Err(AllocError::AlignNotPowerOfTwo { align_bytes }));
        }
        assert_eq!(new(8, 128), Err(AllocError::AlignTooLarge { align_bytes: 128, max_bytes: 64 }));
        assert_eq!(new(8, 1 << 63), Err(AllocError::AlignTooLarge { align_bytes: 1 << 63, max_bytes: 64 }));
        assert_eq!(PerCpuBox::<[u64; 0]>::zeroed().err(), Some(AllocError::ZeroSize));
        #[repr(align(4096))]
        struct Page;
        // SAFETY: nothing in it.
        unsafe impl pcpu::Zeroable for Page {}
        assert!(PerCpuBox::<(Page, u8)>::new(|_| (Page, 0)).is_err());
    });
}

#[test]
fn chunks_are_added_when_allowed_and_given_back() {
    alone(|| {
        let before = alloc::stats();
        let chunks = before.chunks;
        let mut live = Vec::new();
        let full = loop {
            match alloc::allocate(alloc_max() / 4, 8, AllocFlags::INTERRUPT) {
                Ok(handle) => live.push(handle),
                Err(error) => break error,
            }
        };
        assert_eq!(full, AllocError::ChunksFull);
        assert_eq!(alloc::stats().chunks, chunks, "no source call in an interrupt");
        for _ in 0..20 {
            live.push(alloc::allocate(alloc_max() / 4, 8, AllocFlags::PROCESS).unwrap());
        }
        assert_eq!(alloc::stats().chunks, chunks + 5);
        for handle in live {
            // SAFETY: allocated above, nobody used it.
            unsafe { alloc::free_clean(handle, alloc_max() / 4, 8) };
        }
        // Which chunks other tests' stocks pin depends on their order; of the empty ones, at most one is kept.
        let after = alloc::stats();
        assert_eq!(after.chunks - after.empty_chunks, before.chunks - before.empty_chunks);
        assert!(after.empty_chunks <= 1, "{after}");
    });
}

#[test]
fn objects_of_all_cpus_at_once_stay_apart() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    machine(NR_CPUS).run(NR_CPUS, |cpu| {
        let mut live: Vec<PerCpuBox<[u64; 3]>> = Vec::new();
        for round in 0..3000u64 {
            let object = PerCpuBox::<[u64; 3]>::zeroed().unwrap();
            // SAFETY: this CPU's copy of an object that is its own.
            unsafe {
                assert_eq!(*object.this_ptr(), [0; 3]);
                *object.this_ptr() = [cpu.index() as u64, round, !round];
            }
            live.push(object);
            if round % 3 != 0 {
                let object = live.swap_remove((round as usize * 7919) % live.len());
                // SAFETY: as above.
                let [owner, round, inverse] = unsafe { *object.this_ptr() };
                assert_eq!((owner, !round), (cpu.index() as u64, inverse));
            }
        }
    });
}

#[test]
fn values_are_made_and_dropped_once_on_every_cpu() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counted(CpuId);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1 << (self.0.index() * 4), Ordering::Relaxed);
        }
    }
    alone(|| {
        let make = |cpu| {
            MADE.fetch_add(1, Ordering::Relaxed);
            Local::new(Counted(cpu))
        };
        let object = PerCpuBox::new(make).unwrap();
        assert_eq!((MADE.swap(0, Ordering::Relaxed), DROPPED.load(Ordering::Relaxed)), (4, 0));
        assert_eq!(with_irqs_off(|irqs_off| object.borrow_irqs_off(irqs_off).0), CpuId::BOOT);
        drop(object);
        assert_eq!(DROPPED.swap(0, Ordering::Relaxed), 0x1111);

        // A constructor that fails half-way, and one that panics: what was made is dropped, nothing stays.
        let failed = PerCpuBox::try_new(|cpu| if cpu.index() == 2 { Err("third") } else { Ok(make(cpu)) });
        assert_eq!(failed.err(), Some(TryNewError::Constructor("third")));
        assert_eq!(DROPPED.swap(0, Ordering::Relaxed), 0x0011);
        let panicked = catch_unwind(AssertUnwindSafe(|| PerCpuBox::new(|cpu| if cpu.index() == 3 { panic!("fourth") } else { make(cpu) })));
        assert!(panicked.is_err());
        assert_eq!(DROPPED.swap(0, Ordering::Relaxed), 0x0111);
    });
}

#[test]
fn several_objects_are_made_in_one_call_and_freed_one_by_one() {
    alone(|| {
        let [first, second, third] = PerCpuBox::<u64>::zeroed_each::<3>().unwrap();
        drop(second);
        first.add(1);
        third.add(2);
        assert_eq!((first.sum(), third.sum()), (1, 2));
        assert!(PerCpuBox::<[u64; 5000]>::zeroed_each::<2>().is_err());
    });
}

#[test]
fn a_panicking_destructor_still_frees_the_object() {
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "boom");
        }
    }
    alone(|| {
        let object = PerCpuBox::new(|cpu| Bomb(cpu.index() == 1)).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(object))).is_err());
    });
}

#[test]
fn references_reach_the_copy_that_they_name() {
    alone(|| {
        let cells = PerCpuBox::new(|cpu| Local::new(RefCell::new(vec![cpu.index()]))).unwrap();
        with_irqs_off(|irqs_off| {
            let outer = cells.borrow_irqs_off(irqs_off);
            let nested = with_irqs_off(|irqs_off| cells.borrow_irqs_off(irqs_off) as *const _);
            assert_eq!(outer as *const _, nested);
            outer.borrow_mut().push(7);
            assert_eq!(*outer.borrow(), [0, 7]);
        });
        let shared = PerCpuBox::new(|cpu| Local::new(AtomicU32::new(cpu.as_u32()))).unwrap();
        with_pin(|pin| assert_eq!(shared.borrow(pin).load(Ordering::Relaxed), 0));
        for cpu in CpuId::possible() {
            assert_eq!(shared.borrow_on(cpu).fetch_add(10, Ordering::Relaxed), cpu.as_u32());
        }
        with_pin(|pin| assert_eq!(shared.borrow(pin).load(Ordering::Relaxed), 10));
        let zeroed = PerCpuBox::<Local<Cell<u64>>>::zeroed().unwrap();
        with_irqs_off(|irqs_off| assert_eq!(zeroed.borrow_irqs_off(irqs_off).get(), 0));
    });
}
