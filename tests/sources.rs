//! Memory sources that give what an allocator does not expect: memory around handle 0, their last chunk, another layout.

mod common;

use common::machine;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pcpu::alloc::{Buffer, Heap, Source, check, drain_this_cpu, reclaim, set_source, stats};
use pcpu::{AllocError, AllocFlags, AreaLayout, CpuId, alloc, per_cpu};
use std::sync::{Barrier, LazyLock, Mutex};

const NR_CPUS: usize = 4;

static ALONE: Mutex<()> = Mutex::new(());

per_cpu! {
    static LANDMARK: u64 = 0;
}

/// Where handle 0 would be on the boot CPU.
fn handle_zero() -> usize {
    (LANDMARK.ptr_on(CpuId::BOOT).expose_provenance()).wrapping_sub(LANDMARK.template_address())
}

/// Its first chunk has handle 0 at that offset; the others come from the heap.
struct AroundZero {
    offset: AtomicUsize,
    is_given: AtomicBool,
}

static AROUND_ZERO: AroundZero = AroundZero { offset: AtomicUsize::new(0), is_given: AtomicBool::new(false) };

impl AroundZero {
    fn mapping(&self, chunk: &AreaLayout) -> (usize, usize) {
        let start = handle_zero() - self.offset.load(Ordering::Relaxed);
        (start / 4096 * 4096, (start + chunk.size_bytes()).next_multiple_of(4096) - start / 4096 * 4096)
    }
}

// SAFETY: fresh, private memory each time.
unsafe impl Source for AroundZero {
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>> {
        if self.is_given.swap(true, Ordering::Relaxed) {
            return Heap.allocate(chunk);
        }
        let (start, bytes) = self.mapping(chunk);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
        // SAFETY: new memory where there was none.
        let memory = unsafe { libc::mmap(core::ptr::without_provenance_mut(start), bytes, protection, flags, -1, 0) };
        assert_eq!(memory.addr(), start, "the addresses around handle 0 are free");
        NonNull::new(memory.cast::<u8>().wrapping_add(handle_zero() - self.offset.load(Ordering::Relaxed) - start))
    }

    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout) {
        if memory.addr().get() != handle_zero() - self.offset.load(Ordering::Relaxed) {
            // SAFETY: it came from there.
            return unsafe { Heap.release(memory, chunk) };
        }
        let (start, bytes) = self.mapping(chunk);
        // SAFETY: mapped by `allocate`.
        assert_eq!(unsafe { libc::munmap(core::ptr::without_provenance_mut(start), bytes) }, 0);
        self.is_given.store(false, Ordering::Relaxed);
    }
}

/// Such a chunk can be empty and still have no room for a run, so it stays empty while others behind it are used.
#[test]
fn a_chunk_around_handle_zero_never_hands_it_out_and_no_chunk_in_use_is_given_back() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    machine(NR_CPUS).run(1, |_| {
        set_source(&AROUND_ZERO);
        // Nothing large is left in the first chunk.
        let full: Vec<_> = core::iter::from_fn(|| alloc::allocate(4096, 8, AllocFlags::INTERRUPT).ok()).collect();
        for offset in [0, 64, 4096, 4096 + 64, 8192 - 64, 16384, 32768 - 64] {
            AROUND_ZERO.offset.store(offset, Ordering::Relaxed);
            for size_bytes in [8usize, 64, 2048, 4096, 8192, 20000, 32768] {
                let objects: Vec<_> =
                    (0..150_000 / size_bytes + 2).map(|_| alloc::allocate(size_bytes, 8, AllocFlags::PROCESS).unwrap()).collect();
                check();
                reclaim();
                check();
                for object in &objects {
                    assert!(object.get().checked_add(size_bytes - 1).is_some(), "handle 0 lies inside");
                    let copy = core::ptr::with_exposed_provenance_mut::<u8>(object.get().wrapping_add(handle_zero()));
                    // SAFETY: the boot CPU's copy of an object in use.
                    unsafe { copy.write_bytes(1, size_bytes) };
                }
                // SAFETY: allocated above.
                objects.into_iter().for_each(|object| unsafe { alloc::free(object, size_bytes, 8) });
                drain_this_cpu();
                check();
                reclaim();
                assert_eq!(stats().chunks, 1);
            }
        }
        // SAFETY: allocated above.
        full.into_iter().for_each(|block| unsafe { alloc::free(block, 4096, 8) });
        set_source(&Heap);
    });
}

/// Has one chunk left when two CPUs ask at the same time.
struct OneLeft {
    is_left: AtomicBool,
    both_ask: Barrier,
    chunk_is_used: Barrier,
}

static ONE_LEFT: LazyLock<OneLeft> =
    LazyLock::new(|| OneLeft { is_left: AtomicBool::new(true), both_ask: Barrier::new(2), chunk_is_used: Barrier::new(2) });

struct LastChunk;

// SAFETY: the heap's.
unsafe impl Source for LastChunk {
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>> {
        ONE_LEFT.both_ask.wait();
        if ONE_LEFT.is_left.swap(false, Ordering::AcqRel) {
            return Heap.allocate(chunk);
        }
        ONE_LEFT.chunk_is_used.wait();
        None
    }

    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout) {
        // SAFETY: the caller's promise.
        unsafe { Heap.release(memory, chunk) }
    }
}

#[test]
fn who_finds_the_source_empty_uses_the_chunk_that_another_cpu_added() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let machine = machine(NR_CPUS);
    let full = machine.run(1, |_| {
        let mut full = Vec::new();
        while let Ok(object) = alloc::allocate(2048, 8, AllocFlags::INTERRUPT) {
            full.push(object);
        }
        set_source(&LastChunk);
        full
    });
    let objects = machine.run(2, |_| {
        let object = alloc::allocate(2048, 8, AllocFlags::PROCESS);
        // Whoever got the chunk is back first; the other one waits in the source for that.
        static IS_FIRST: AtomicBool = AtomicBool::new(true);
        if IS_FIRST.swap(false, Ordering::AcqRel) {
            ONE_LEFT.chunk_is_used.wait();
        }
        object
    });
    machine.run(1, |_| {
        assert!(objects.iter().all(Result::is_ok), "{objects:?}");
        for object in full.iter().flatten().chain(objects.iter().flatten()) {
            // SAFETY: allocated above.
            unsafe { alloc::free_clean(*object, 2048, 8) };
        }
        set_source(&Heap);
    });
}

#[test]
fn allocations_that_fail_are_no_misses() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    machine(NR_CPUS).run(1, |_| {
        let of_class = || stats().classes[7];
        assert_eq!(of_class().object_bytes, 1024);
        let mut objects = Vec::new();
        while let Ok(object) = alloc::allocate(1024, 8, AllocFlags::INTERRUPT) {
            objects.push(object);
        }
        let (hits, misses) = (of_class().hits(), of_class().misses);
        for _ in 0..200 {
            assert_eq!(alloc::allocate(1024, 8, AllocFlags::INTERRUPT), Err(AllocError::ChunksFull));
        }
        assert_eq!((of_class().hits(), of_class().misses), (hits, misses));
        // SAFETY: allocated above.
        objects.into_iter().for_each(|object| unsafe { alloc::free_clean(object, 1024, 8) });
    });
}

#[test]
fn a_buffer_is_cut_for_one_layout_only() {
    static BUFFER: Buffer = Buffer::new();
    BUFFER.give(Box::leak(vec![MaybeUninit::uninit(); 1 << 20].into_boxed_slice()));
    let (large, small) = (AreaLayout::new(4, 32768).unwrap(), AreaLayout::new(1, 8192).unwrap());
    let first = BUFFER.allocate(&large).unwrap();
    assert_eq!(BUFFER.allocate(&small), None, "its pieces would overlap");
    let second = BUFFER.allocate(&large).unwrap();
    assert!(first.addr().get().abs_diff(second.addr().get()) >= large.size_bytes());
}

/// After an unplug, or a sleep.
#[test]
fn a_cpu_that_was_offline_can_be_installed_again_with_what_it_held() {
    use pcpu::{InstallError, install, uninstall};
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    machine(NR_CPUS).run(1, |boot_cpu| {
        let other = CpuId::new(1).unwrap();
        // SAFETY: this thread is one CPU after the other, and the others have none.
        unsafe {
            install(other).unwrap();
            LANDMARK.set(7);
            assert_eq!(install(other), Err(InstallError::AlreadyInstalled));
            uninstall(other);
            install(other).unwrap();
            assert_eq!((CpuId::current(), LANDMARK.get()), (other, 7));
            uninstall(other);
            uninstall(boot_cpu);
            install(boot_cpu).unwrap();
        }
        assert_eq!(CpuId::current(), boot_cpu);
    });
}
