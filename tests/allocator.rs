//! The allocator against a model: what is live, what it takes, and the walker's invariants. One test in the file runs at a time, so that
//! the statistics belong to it.

mod common;

use common::machine;
use core::mem::MaybeUninit;
use core::num::NonZeroUsize;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pcpu::alloc::{self, AllocError, AllocFlags, Buffer, Source};
use pcpu::{AreaLayout, CpuId, per_cpu};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

const NR_CPUS: usize = 3;

/// Held by each test that looks at the statistics, from its first run to its last.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn on_boot_cpu(f: impl Fn() + Sync) {
    let _alone = alone();
    run_on_boot_cpu(f);
}

fn run_on_boot_cpu(f: impl Fn() + Sync) {
    machine(NR_CPUS).run(1, |_| {
        alloc::set_source(&SOURCE);
        f();
        alloc::reclaim();
        alloc::check();
    });
}

per_cpu! {
    /// Base of template space, for reaching copies of raw objects.
    static ORIGIN: u64 = 0;
}

/// An object's copy on a CPU.
fn copy(handle: NonZeroUsize, cpu: CpuId) -> *mut u8 {
    let delta = (ORIGIN.ptr_on(cpu) as usize).wrapping_sub(ORIGIN.template_address());
    ptr::with_exposed_provenance_mut(handle.get().wrapping_add(delta))
}

/// The heap, counting, failing on demand, and calling back into the allocator.
struct TestSource {
    chunks: AtomicUsize,
    /// Fails when it reaches 0.
    calls_left: AtomicUsize,
    calls_back: AtomicBool,
}

static SOURCE: TestSource =
    TestSource { chunks: AtomicUsize::new(0), calls_left: AtomicUsize::new(usize::MAX), calls_back: AtomicBool::new(false) };

// SAFETY: the heap's.
unsafe impl Source for TestSource {
    fn allocate(&self, chunk: &AreaLayout) -> Option<ptr::NonNull<u8>> {
        if self.calls_left.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.calls_left.fetch_sub(1, Ordering::Relaxed);
        if self.calls_back.load(Ordering::Relaxed) {
            // Frees and allocations of the source's own, of another size than the one that is asked for.
            if let Ok(handle) = alloc::allocate(24, 8, AllocFlags::INTERRUPT) {
                // SAFETY: allocated above.
                unsafe { alloc::free(handle, 24, 8) };
            }
            alloc::drain_this_cpu();
            let _ = alloc::stats();
        }
        let memory = alloc::Heap.allocate(chunk)?;
        self.chunks.fetch_add(1, Ordering::Relaxed);
        // Dirty memory, as a frame that was used before.
        // SAFETY: just allocated with that size.
        unsafe { memory.write_bytes(0xa5, chunk.size_bytes()) };
        Some(memory)
    }

    unsafe fn release(&self, memory: ptr::NonNull<u8>, chunk: &AreaLayout) {
        self.chunks.fetch_sub(1, Ordering::Relaxed);
        let _ = alloc::stats();
        // SAFETY: as the caller promises.
        unsafe { alloc::Heap.release(memory, chunk) };
    }
}

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// What an object takes, as the allocator's contract rounds it up.
fn rounded(size_bytes: usize, align_bytes: usize) -> u64 {
    if size_bytes <= 2048 { size_bytes.max(align_bytes).next_power_of_two().max(8) as u64 } else { size_bytes as u64 }
}

/// Live objects, by address: size, alignment, and the byte that fills them.
struct Model(BTreeMap<usize, (usize, usize, u8)>);

impl Model {
    fn allocate(&mut self, size: usize, align: usize, fill: u8) -> Result<(), AllocError> {
        let handle = alloc::allocate(size, align, AllocFlags::PROCESS)?;
        assert_eq!(handle.get() % align, 0);
        // By real addresses, which do not wrap.
        let address = copy(handle, CpuId::BOOT) as usize;
        if let Some((&below, &(below_size, ..))) = self.0.range(..=address).next_back() {
            assert!(below + below_size <= address, "overlaps the object below");
        }
        if let Some((&above, _)) = self.0.range(address..).next() {
            assert!(address + size <= above, "overlaps the object above");
        }
        for cpu in CpuId::possible() {
            let start = copy(handle, cpu);
            assert_eq!(start as usize % align, 0);
            // SAFETY: an object that is ours alone.
            unsafe {
                assert!(core::slice::from_raw_parts(start, size).iter().all(|&byte| byte == 0), "new objects are zero on {cpu:?}");
                start.write_bytes(fill, size);
            }
        }
        self.0.insert(address, (size, align, fill));
        Ok(())
    }

    fn free(&mut self, index: usize) {
        let (&address, &(size, align, fill)) = self.0.iter().nth(index).unwrap();
        self.0.remove(&address);
        let delta = copy(NonZeroUsize::MIN, CpuId::BOOT) as usize - 1;
        let handle = NonZeroUsize::new(address.wrapping_sub(delta)).unwrap();
        for cpu in CpuId::possible() {
            // SAFETY: an object that is ours alone.
            let bytes = unsafe { core::slice::from_raw_parts(copy(handle, cpu), size) };
            assert!(bytes.iter().all(|&byte| byte == fill), "nobody else wrote to it on {cpu:?}");
        }
        // SAFETY: allocated with that size and alignment.
        unsafe { alloc::free(handle, size, align) };
    }

    fn agrees(&self) {
        let stats = alloc::stats();
        let live_bytes: u64 = self.0.values().map(|&(size, align, _)| rounded(size, align)).sum();
        assert_eq!((stats.live_objects, stats.live_bytes), (self.0.len() as u64, live_bytes));
        assert!(stats.populated_bytes >= live_bytes.min(stats.live_bytes));
        assert_eq!(stats.chunks as usize, 1 + SOURCE.chunks.load(Ordering::Relaxed));
        assert!(stats.empty_chunks <= 1);
    }
}

#[test]
fn a_random_run_agrees_with_a_model_at_every_step() {
    on_boot_cpu(|| {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut model = Model(BTreeMap::new());
        for step in 0..20_000usize {
            // Grows and shrinks in waves.
            let wants = if (step / 2000) % 2 == 0 { 60 } else { 35 };
            if model.0.is_empty() || random.below(100) < wants {
                let size = match random.below(20) {
                    0 => 1 + random.below(pcpu::DEFAULT_UNIT_BYTES),
                    1..=3 => 1 + random.below(2048),
                    _ => 1 + random.below(96),
                };
                model.allocate(size, 1 << random.below(7), step as u8 | 1).unwrap();
            } else {
                let index = random.below(model.0.len());
                model.free(index);
            }
            model.agrees();
            if step % 500 == 0 {
                alloc::check();
            }
        }
        while !model.0.is_empty() {
            model.free(random.below(model.0.len()));
        }
        model.agrees();
        alloc::check();
        assert!(alloc::stats().empty_chunks <= 1, "at most one empty chunk stays");
        alloc::reclaim();
        let stats = alloc::stats();
        assert_eq!((stats.chunks, stats.live_objects, stats.pinned_bytes, stats.populated_bytes), (1, 0, 0, 0));
        assert_eq!(SOURCE.chunks.load(Ordering::Relaxed), 0, "the source has everything back");
    });
}

#[test]
fn the_statistics_agree_with_a_shadow_model_at_every_step_of_a_million() {
    on_boot_cpu(|| {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let mut live: Vec<(NonZeroUsize, usize)> = Vec::new();
        let mut live_bytes = alloc::stats().live_bytes;
        let base = alloc::stats();
        let (mut allocated, mut freed) = (0u64, 0u64);
        // A debug build is too slow for all of it.
        let steps = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
        for _ in 0..steps {
            if live.is_empty() || random.below(2000) > live.len() {
                let size = 8 << random.below(9);
                live.push((alloc::allocate(size, 8, AllocFlags::PROCESS).unwrap(), size));
                live_bytes += size as u64;
                allocated += 1;
            } else {
                let (handle, size) = live.swap_remove(random.below(live.len()));
                // SAFETY: allocated above, never written.
                unsafe { alloc::free_clean(handle, size, 8) };
                live_bytes -= size as u64;
                freed += 1;
            }
            let stats = alloc::stats();
            assert_eq!((stats.live_objects, stats.live_bytes), (base.live_objects + live.len() as u64, live_bytes));
            let sum = |of: fn(&alloc::ClassStats) -> u64, stats: &alloc::Stats| stats.classes.iter().map(of).sum::<u64>();
            assert_eq!(sum(|class| class.allocated, &stats) - sum(|class| class.allocated, &base), allocated);
            assert_eq!(sum(|class| class.freed, &stats) - sum(|class| class.freed, &base), freed);
            assert!(stats.populated_bytes >= live_bytes + stats.pinned_bytes);
        }
        for (handle, size) in live {
            // SAFETY: as above.
            unsafe { alloc::free_clean(handle, size, 8) };
        }
    });
}

#[test]
fn holes_are_filled_before_a_chunk_is_added() {
    on_boot_cpu(|| {
        let allocate = || alloc::allocate(32, 8, AllocFlags::PROCESS).unwrap();
        // SAFETY: called with what `allocate` returned, once each.
        let free = |handle| unsafe { alloc::free_clean(handle, 32, 8) };
        let all: Vec<_> = (0..100_000).map(|_| allocate()).collect();
        let full = alloc::stats();
        // All but every 128th, in random order.
        let mut random = Random(88172645463325252);
        let (kept, mut freed): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(index, _)| index % 128 == 0);
        for index in (1..freed.len()).rev() {
            freed.swap(index, random.below(index + 1));
        }
        freed.iter().for_each(|&(_, handle)| free(handle));
        alloc::drain_this_cpu();
        let holes = alloc::stats();
        assert_eq!(holes.live_bytes, kept.len() as u64 * 32);
        println!(
            "survivors: {} B live, {} B populated, {} chunks of {}",
            holes.live_bytes, holes.populated_bytes, holes.chunks, full.chunks
        );
        assert!(holes.chunks <= full.chunks);
        let again: Vec<_> = freed.iter().map(|_| allocate()).collect();
        let refilled = alloc::stats();
        assert!(refilled.chunks <= full.chunks, "{} chunks, {} before", refilled.chunks, full.chunks);
        again.into_iter().for_each(free);
        kept.into_iter().for_each(|(_, handle)| free(handle));
    });
}

#[test]
fn every_source_call_can_fail_and_the_next_one_works() {
    on_boot_cpu(|| {
        SOURCE.calls_back.store(true, Ordering::Relaxed);
        for fails_at in 0..6 {
            for (size, align) in [(8, 8), (64, 64), (2048, 8), (20_000, 64), (pcpu::DEFAULT_UNIT_BYTES, 8)] {
                alloc::reclaim();
                let before = (alloc::stats().chunks, SOURCE.chunks.load(Ordering::Relaxed));
                SOURCE.calls_left.store(fails_at, Ordering::Relaxed);
                let mut live = Vec::new();
                let error = loop {
                    match alloc::allocate(size, align, AllocFlags::PROCESS) {
                        Ok(handle) => live.push(handle),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, AllocError::SourceExhausted { chunk_bytes } if chunk_bytes > NR_CPUS * pcpu::DEFAULT_UNIT_BYTES));
                assert_eq!(alloc::stats().chunks as usize, before.0 as usize + fails_at);
                alloc::check();
                // More than there can be: all or nothing.
                let live_objects = alloc::stats().live_objects;
                let mut many = vec![None; 100_000];
                assert_eq!(alloc::allocate_many(&mut many, size, align, AllocFlags::PROCESS), Err(error));
                assert!(many.iter().all(Option::is_none));
                assert_eq!(alloc::stats().live_objects, live_objects);
                SOURCE.calls_left.store(usize::MAX, Ordering::Relaxed);
                live.push(alloc::allocate(size, align, AllocFlags::PROCESS).expect("the next call works"));
                for handle in live {
                    // SAFETY: allocated above, never written.
                    unsafe { alloc::free_clean(handle, size, align) };
                }
                alloc::reclaim();
                assert_eq!((alloc::stats().chunks, SOURCE.chunks.load(Ordering::Relaxed)), before, "everything is back");
                alloc::check();
            }
        }
        SOURCE.calls_back.store(false, Ordering::Relaxed);
    });
}

#[test]
fn the_walker_agrees_after_every_operation() {
    on_boot_cpu(|| {
        let mut random = Random(0xdead_beef_cafe_f00d);
        let mut model = Model(BTreeMap::new());
        for step in 0..600usize {
            match random.below(12) {
                0 => alloc::drain_this_cpu(),
                1 => alloc::reclaim(),
                2 => alloc::prefill(1 << random.below(12), 1, random.below(33)).unwrap(),
                3..=7 => model.allocate(1 + random.below(6000), 1 << random.below(7), step as u8 | 1).unwrap(),
                _ if !model.0.is_empty() => model.free(random.below(model.0.len())),
                _ => {}
            }
            alloc::check();
            model.agrees();
        }
        while !model.0.is_empty() {
            model.free(0);
        }
    });
}

#[test]
fn a_buffer_hands_out_each_piece_to_one_chunk() {
    static BUFFER: Buffer = Buffer::new();
    on_boot_cpu(|| {
        let layout = AreaLayout::new(NR_CPUS, pcpu::DEFAULT_UNIT_BYTES).unwrap();
        assert_eq!(BUFFER.allocate(&layout), None, "no memory yet");
        let memory = vec![MaybeUninit::uninit(); 3 * layout.size_bytes() + 4 * layout.align_bytes()];
        BUFFER.give(memory.leak());
        alloc::set_source(&BUFFER);
        let fill = || {
            let mut live = Vec::new();
            while let Ok(handle) = alloc::allocate(20_000, 8, AllocFlags::PROCESS) {
                live.push(handle);
            }
            live
        };
        for _ in 0..3 {
            let live = fill();
            assert_eq!(alloc::stats().chunks, 4, "three pieces, and the first chunk");
            for handle in live {
                // SAFETY: allocated above, never written.
                unsafe { alloc::free_clean(handle, 20_000, 8) };
            }
            alloc::reclaim();
            assert_eq!(alloc::stats().chunks, 1);
        }
        alloc::set_source(&SOURCE);
    });
}

#[test]
fn a_prefilled_stock_serves_contexts_that_cannot_wait() {
    on_boot_cpu(|| {
        alloc::drain_this_cpu();
        SOURCE.calls_left.store(usize::MAX, Ordering::Relaxed);
        alloc::prefill(100, 4, 20).unwrap();
        SOURCE.calls_left.store(0, Ordering::Relaxed);
        let stock: Vec<_> = (0..20).map(|_| alloc::allocate(100, 4, AllocFlags::NMI).unwrap()).collect();
        for handle in stock {
            // SAFETY: allocated above, never written.
            unsafe { alloc::free_clean(handle, 100, 4) };
        }
        assert_eq!(alloc::prefill(100, 4, 33), Err(AllocError::PrefillTooLong { nr: 33, max: 32 }));
        assert_eq!(alloc::prefill(100, 4, usize::MAX), Err(AllocError::PrefillTooLong { nr: usize::MAX, max: 32 }));
        assert_eq!(alloc::prefill(4096, 4, 1), Err(AllocError::PrefillTooLong { nr: 1, max: 32 }));
        assert_eq!(alloc::prefill(0, 4, 1), Err(AllocError::ZeroSize));
        SOURCE.calls_left.store(usize::MAX, Ordering::Relaxed);
    });
}

#[test]
fn an_offline_cpus_stock_is_taken_by_others() {
    static LIVE: Mutex<Vec<NonZeroUsize>> = Mutex::new(Vec::new());
    let _alone = alone();
    run_on_boot_cpu(|| ());
    let machine = machine(NR_CPUS);
    machine.run(NR_CPUS, |_| {
        let mut objects: Vec<_> = (0..40).map(|_| alloc::allocate(512, 8, AllocFlags::PROCESS).unwrap()).collect();
        // SAFETY: allocated above, never written.
        objects.drain(..3).for_each(|handle| unsafe { alloc::free_clean(handle, 512, 8) });
        LIVE.lock().unwrap().extend(objects);
    });
    run_on_boot_cpu(|| {
        for handle in LIVE.lock().unwrap().drain(..) {
            // SAFETY: allocated above, never written.
            unsafe { alloc::free_clean(handle, 512, 8) };
        }
        alloc::reclaim();
        assert!(alloc::stats().pinned_bytes > 0, "the other CPUs' stocks pin memory");
        for cpu in CpuId::possible().skip(1) {
            // SAFETY: that CPU's thread has ended.
            unsafe { alloc::drain_offline_cpu(cpu) };
        }
        alloc::reclaim();
        let stats = alloc::stats();
        assert_eq!((stats.pinned_bytes, stats.populated_bytes, stats.chunks), (0, 0, 1));
    });
}

fn stocked_16() -> u64 {
    let stats = alloc::stats();
    stats.classes.iter().find(|class| class.object_bytes == 16).expect("a class").stocked
}

/// Allocates on CPU 0 and frees on CPU 1, more than its magazine holds.
fn free_elsewhere(machine: &pcpu::host::Machine, nr: usize) -> Vec<NonZeroUsize> {
    let handles: Vec<_> = machine.run(1, |_| (0..nr).map(|_| alloc::allocate(16, 8, AllocFlags::INTERRUPT).unwrap()).collect()).remove(0);
    machine.run(2, |cpu| {
        if cpu != CpuId::BOOT {
            // SAFETY: allocated above.
            handles.iter().for_each(|&handle| unsafe { alloc::free(handle, 16, 8) });
        }
    });
    handles
}

#[test]
fn what_is_freed_elsewhere_comes_back_without_a_look_at_its_blocks() {
    let _alone = alone();
    let machine = machine(NR_CPUS);
    run_on_boot_cpu(|| ());
    // Twice, since magazines begin short.
    free_elsewhere(&machine, 96);
    let freed = free_elsewhere(&machine, 96);
    let stocked = machine.run(1, |_| stocked_16()).remove(0);
    assert!(stocked > 32, "{stocked} are in one magazine of 32, and in trays");
    // Another CPU, which has none.
    let taken = machine.run(3, |cpu| match cpu.index() {
        2 => (0..30).map(|_| alloc::allocate(16, 8, AllocFlags::INTERRUPT).unwrap()).collect(),
        _ => Vec::new(),
    });
    assert!(taken[2].iter().all(|handle| freed.contains(handle)), "from two trays");
    let after = machine.run(1, |_| stocked_16()).remove(0);
    // What a magazine that is still short has no room for goes to blocks.
    assert!(after + 30 <= stocked, "nothing came from blocks: {stocked}, then {after}");
    // SAFETY: allocated above.
    machine.run(1, |_| taken[2].iter().for_each(|&handle| unsafe { alloc::free(handle, 16, 8) }));
    drain_all(&machine);
}

#[test]
fn what_is_in_trays_is_found_before_memory_runs_out() {
    let _alone = alone();
    let machine = machine(NR_CPUS);
    run_on_boot_cpu(|| ());
    machine.run(1, |_| {
        // Up to the last object of the chunks that are there.
        let nr_free = core::iter::from_fn(|| alloc::allocate(16, 8, AllocFlags::INTERRUPT).ok()).collect::<Vec<_>>();
        // SAFETY: allocated above.
        nr_free.into_iter().for_each(|handle| unsafe { alloc::free(handle, 16, 8) });
        alloc::reclaim();
    });
    for size_bytes in [2048, 8192] {
        free_elsewhere(&machine, 96);
        let fill = |size_bytes: usize| {
            let allocate = || alloc::allocate(size_bytes, 8, AllocFlags::INTERRUPT).ok();
            machine.run(1, |_| core::iter::from_fn(allocate).collect::<Vec<_>>()).remove(0)
        };
        let stocked = machine.run(1, |_| stocked_16()).remove(0);
        let others = fill(size_bytes);
        let left = machine.run(1, |_| stocked_16()).remove(0);
        assert!(left + 45 <= stocked, "trays were emptied before {size_bytes} B were refused: {left} of {stocked} left");
        // SAFETY: allocated above.
        machine.run(1, |_| others.iter().for_each(|&handle| unsafe { alloc::free(handle, size_bytes, 8) }));
        drain_all(&machine);
    }
}

fn drain_all(machine: &pcpu::host::Machine) {
    machine.run(NR_CPUS, |_| alloc::drain_this_cpu());
    machine.run(1, |_| {
        alloc::reclaim();
        alloc::check();
        assert_eq!(stocked_16(), 0);
    });
}

#[test]
fn failures_are_counted_by_reason_and_the_report_has_the_figures() {
    on_boot_cpu(|| {
        let before = alloc::stats().failures;
        assert!(alloc::allocate(0, 8, AllocFlags::PROCESS).is_err());
        SOURCE.calls_left.store(0, Ordering::Relaxed);
        let run = pcpu::DEFAULT_UNIT_BYTES;
        assert!(matches!(alloc::allocate(run, 8, AllocFlags::PROCESS), Err(AllocError::SourceExhausted { .. })));
        assert_eq!(alloc::allocate(run, 8, AllocFlags::INTERRUPT), Err(AllocError::ChunksFull));
        SOURCE.calls_left.store(usize::MAX, Ordering::Relaxed);
        let after = alloc::stats().failures;
        assert_eq!(after.bad_request, before.bad_request + 1);
        assert_eq!(after.source_exhausted, before.source_exhausted + 1);
        assert_eq!(after.chunks_full, before.chunks_full + 1);
        let report = alloc::stats().to_string();
        assert!(report.contains("populated") && report.contains(&format!("{} source exhausted", after.source_exhausted)), "{report}");
    });
}
