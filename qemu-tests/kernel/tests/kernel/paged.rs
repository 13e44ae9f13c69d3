//! Chunks in pages of the kernel's own page tables, with every CPU's TLB flushed by interrupts.

use alloc::{
    alloc::{alloc, alloc_zeroed, dealloc},
    vec::Vec,
};
use core::{
    alloc::Layout,
    hint::spin_loop,
    ptr::{NonNull, with_exposed_provenance_mut},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use pcpu::{
    AreaLayout, CpuId, PerCpuBox, Zeroable,
    alloc::{Heap, Paged, PagedFailure, Paging, Source, reclaim, set_source},
};
use pcpu_boot::{apic, interrupts};
use spin::{Once, mutex::SpinMutex};
use x86_64::{
    PhysAddr, VirtAddr,
    instructions::{interrupts::are_enabled, tlb},
    registers::{
        control::Cr3,
        model_specific::{Efer, EferFlags},
    },
    structures::paging::{Mapper, OffsetPageTable, Page, PageTable, PhysFrame, page::PageRangeInclusive},
};

use crate::{
    harness::{Case, Failure, Outcome, cases, check, check_eq, on_all},
    kernel::UNIT_BYTES,
};

pub const CASES: &[Case] = cases![
    an_address_that_got_another_frame_is_seen_right_by_every_cpu,
    all_cpus_map_and_unmap_chunks_at_once,
    a_chunk_whose_frames_run_out_leaves_none_behind,
];

/// An entry of the level 4 table that nothing else uses.
const START: usize = 0xffff_c000_0000_0000;
const BYTES: usize = 1 << 30;
const FLUSH_VECTOR: u8 = 0x41;
/// What a freed frame is filled with.
const POISON: u64 = 0xa5a5_a5a5_a5a5_a5a5;
const ROUNDS: u64 = 4;

/// The kernel's page tables, and frames from its heap: all RAM is mapped to itself.
struct Kernel;

static TABLES: Once<SpinMutex<OffsetPageTable<'static>>> = Once::new();

/// How many more frames there are for pages.
static NR_FRAMES_LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Frames that were freed, and still are: so an address that is mapped again gets another one.
static FREED: SpinMutex<Vec<PhysFrame>> = SpinMutex::new(Vec::new());
static NR_USED: AtomicUsize = AtomicUsize::new(0);

/// One flush at a time. Whoever waits for it has interrupts on, and takes part in the others' flushes.
static FLUSH: SpinMutex<()> = SpinMutex::new(());
static FLUSH_START: AtomicU64 = AtomicU64::new(0);
static FLUSH_PAGES: AtomicU64 = AtomicU64::new(0);
static NR_TO_FLUSH: AtomicUsize = AtomicUsize::new(0);

fn frame_layout() -> Layout {
    Layout::new::<PageTable>()
}

fn frame_at(memory: *mut u8) -> Option<PhysFrame> {
    (!memory.is_null()).then(|| PhysFrame::containing_address(PhysAddr::new(memory.expose_provenance() as u64)))
}

fn words_of(frame: PhysFrame) -> *mut [u64; 512] {
    with_exposed_provenance_mut(frame.start_address().as_u64() as usize)
}

fn flush_here() {
    let start = VirtAddr::new(FLUSH_START.load(Ordering::Acquire));
    for page in 0..FLUSH_PAGES.load(Ordering::Acquire) {
        tlb::flush(start + page * 4096);
    }
}

// SAFETY: there is one address space, and its tables are behind a lock. Frames come from the heap. A flush returns when every CPU has
// executed `invlpg` for each page.
unsafe impl Paging for Kernel {
    type Mapper = OffsetPageTable<'static>;

    fn with_mapper<R>(&self, f: impl FnOnce(&mut Self::Mapper) -> R) -> R {
        f(&mut TABLES.wait().lock())
    }

    fn allocate_frame(&self, _near: Option<CpuId>) -> Option<PhysFrame> {
        NR_FRAMES_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
        NR_USED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a frame is not empty.
        frame_at(unsafe { alloc(frame_layout()) })
    }

    fn allocate_table_frame(&self, _near: Option<CpuId>) -> Option<PhysFrame> {
        NR_USED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a frame is not empty.
        frame_at(unsafe { alloc_zeroed(frame_layout()) })
    }

    unsafe fn free_frame(&self, frame: PhysFrame) {
        // SAFETY: mapped to itself, and nobody's by the caller's promise.
        unsafe { words_of(frame).write([POISON; 512]) };
        NR_USED.fetch_sub(1, Ordering::Relaxed);
        FREED.lock().push(frame);
    }

    fn flush_everywhere(&self, pages: PageRangeInclusive) {
        assert!(are_enabled(), "two CPUs that flush at once would wait for each other");
        let _alone = FLUSH.lock();
        FLUSH_START.store(pages.start.start_address().as_u64(), Ordering::Release);
        FLUSH_PAGES.store(pages.len(), Ordering::Release);
        NR_TO_FLUSH.store(CpuId::possible().len() - 1, Ordering::Release);
        apic::send_to_all_others(FLUSH_VECTOR);
        flush_here();
        while NR_TO_FLUSH.load(Ordering::Acquire) > 0 {
            spin_loop();
        }
    }
}

/// The source, made by the first call, and the layout of its chunks.
fn source() -> Result<(&'static Paged<Kernel>, AreaLayout), Failure> {
    static SOURCE: Once<Paged<Kernel>> = Once::new();
    let layout = AreaLayout::new(CpuId::possible().len(), UNIT_BYTES)?;
    let source = SOURCE.try_call_once(|| {
        interrupts::set_handler(FLUSH_VECTOR, |_| {
            flush_here();
            NR_TO_FLUSH.fetch_sub(1, Ordering::Release);
        });
        on_all(|_| {
            // SAFETY: no entry of the page tables has the bit whose meaning changes.
            unsafe { Efer::update(|flags| flags.insert(EferFlags::NO_EXECUTE_ENABLE)) };
            Ok(())
        })?;
        let level_4: *mut PageTable = with_exposed_provenance_mut(Cr3::read().0.start_address().as_u64() as usize);
        // SAFETY: the page table in use, to which nothing else refers any more; all RAM is mapped to itself.
        TABLES.call_once(|| SpinMutex::new(unsafe { OffsetPageTable::new(&mut *level_4, VirtAddr::zero()) }));
        // SAFETY: nothing else uses these addresses, there is one address space, and every CPU knows `NO_EXECUTE`.
        Ok::<_, Failure>(unsafe { Paged::new(START, BYTES, &layout, Kernel) }?)
    })?;
    Ok((source, layout))
}

/// Checks that nobody wrote to a freed frame, and gives all of them back to the heap.
fn bury_freed_frames() -> Outcome {
    for frame in core::mem::take(&mut *FREED.lock()) {
        // SAFETY: mapped to itself, and nobody's.
        check!(unsafe { *words_of(frame) } == [POISON; 512], "somebody wrote to a frame that was freed");
        // SAFETY: allocated with this layout.
        unsafe { dealloc(words_of(frame).cast(), frame_layout()) };
    }
    Ok(())
}

/// An object that fills a unit, so that it takes a chunk of its own.
struct Whole(#[expect(dead_code, reason = "used by address")] [u64; UNIT_BYTES / 8]);
// SAFETY: zero is a value of integers.
unsafe impl Zeroable for Whole {}

fn an_address_that_got_another_frame_is_seen_right_by_every_cpu() -> Outcome {
    let (source, _) = source()?;
    reclaim();
    set_source(source);
    let outcome = (1..=ROUNDS).try_for_each(|round| {
        let object = PerCpuBox::<Whole>::zeroed()?;
        check!((START..START + BYTES).contains(&object.ptr_on(CpuId::BOOT).addr()), "round {round}: not from the paged source");
        on_all(|cpu| {
            let words: *mut u64 = object.this_ptr().cast();
            // SAFETY: this CPU's copy, which only this CPU uses.
            let words = unsafe { core::slice::from_raw_parts_mut(words, UNIT_BYTES / 8) };
            check!(words.iter().all(|&word| word == 0), "round {round}: a new object is not zero");
            let value = round << 32 | cpu.index() as u64;
            words.fill(value);
            // What the page tables say, whatever a TLB does.
            let address = VirtAddr::from_ptr(words.as_ptr());
            let frame = Kernel.with_mapper(|mapper| mapper.translate_page(Page::containing_address(address)));
            let frame = frame.map_err(|error| Failure::new(format_args!("{address:?} has no frame: {error:?}")))?;
            let word = u64::from(address.page_offset()) as usize / 8;
            // SAFETY: mapped to itself; written above.
            check_eq!(unsafe { (*words_of(frame))[word] }, value);
            Ok(())
        })?;
        drop(object);
        reclaim();
        Ok(())
    });
    set_source(&Heap);
    outcome?;
    check!(FREED.lock().len() >= ROUNDS as usize * CpuId::possible().len() * UNIT_BYTES / 4096, "chunks were not given back");
    bury_freed_frames()
}

fn all_cpus_map_and_unmap_chunks_at_once() -> Outcome {
    let (source, layout) = source()?;
    let allocate = || source.allocate(&layout).ok_or_else(|| Failure::new(format_args!("no chunk: {:?}", source.last_failure())));
    // As many chunks as there can be at once, so that from now on all page tables are there.
    let chunks = CpuId::possible().map(|_| allocate()).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: allocated above.
    chunks.into_iter().for_each(|memory| unsafe { source.release(memory, &layout) });
    let nr_used = NR_USED.load(Ordering::Relaxed);
    on_all(|cpu| {
        for round in 0..ROUNDS {
            let memory = allocate()?;
            let value = (cpu.index() as u64 * ROUNDS + round) as u8;
            // SAFETY: this CPU's chunk.
            unsafe {
                memory.write_bytes(value, layout.size_bytes());
                let bytes = NonNull::slice_from_raw_parts(memory, layout.size_bytes());
                check!(bytes.as_ref().iter().all(|&byte| byte == value), "another CPU wrote into this CPU's chunk");
                source.release(memory, &layout);
            }
        }
        Ok(())
    })?;
    check_eq!(NR_USED.load(Ordering::Relaxed), nr_used);
    bury_freed_frames()
}

fn a_chunk_whose_frames_run_out_leaves_none_behind() -> Outcome {
    let (source, layout) = source()?;
    let nr_pages = layout.size_bytes().div_ceil(4096);
    let chunk = source.allocate(&layout);
    check!(chunk.is_some(), "there is memory");
    // SAFETY: allocated above.
    chunk.into_iter().for_each(|memory| unsafe { source.release(memory, &layout) });
    let nr_used = NR_USED.load(Ordering::Relaxed);
    for nr_frames in [0, 1, nr_pages / 2, nr_pages - 1] {
        NR_FRAMES_LEFT.store(nr_frames, Ordering::Relaxed);
        let chunk = source.allocate(&layout);
        NR_FRAMES_LEFT.store(usize::MAX, Ordering::Relaxed);
        check_eq!(chunk, None);
        check_eq!(source.last_failure(), Some(PagedFailure::NoFrame));
        check_eq!(NR_USED.load(Ordering::Relaxed), nr_used);
    }
    let chunk = source.allocate(&layout);
    check!(chunk.is_some(), "the next call works");
    // SAFETY: allocated above.
    chunk.into_iter().for_each(|memory| unsafe { source.release(memory, &layout) });
    bury_freed_frames()
}
