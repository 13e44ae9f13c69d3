//! Chunks mapped page by page, over page tables, frames and TLBs that this file simulates: a frame is a page of a file in memory, a
//! mapping is a `mmap` of it, and the TLB is the worst possible one: it has every translation and forgets none before it is flushed.

// In robust mode chunks are larger than the ranges here have room for.
#![cfg(not(feature = "robust"))]

mod common;

use common::machine;
use core::cell::Cell;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pcpu::alloc::{self, AllocError, AllocFlags, Heap, Paged, PagedError, PagedFailure, Paging, Source};
use pcpu::host::Machine;
use pcpu::{AreaLayout, CpuId, DEFAULT_UNIT_BYTES, PerCpuBox, Zeroable, per_cpu};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard};
use x86_64::structures::paging::mapper::{FlagUpdateError, MapToError, MapperFlush, MapperFlushAll, TranslateError, UnmapError};
use x86_64::structures::paging::page::PageRangeInclusive;
use x86_64::structures::paging::{FrameAllocator, Mapper, Page, PageTableFlags, PhysFrame, Size4KiB};
use x86_64::{PhysAddr, VirtAddr};

const NR_CPUS: usize = 3;
const PAGE_BYTES: usize = 4096;
const NR_FRAMES: usize = 1024;
/// What a freed frame is filled with.
const POISON: u8 = 0xa5;
const DEFAULT_FLAGS: PageTableFlags = PageTableFlags::PRESENT.union(PageTableFlags::WRITABLE).union(PageTableFlags::NO_EXECUTE);

per_cpu! {
    /// Base of template space, for reaching copies of raw objects.
    static ORIGIN: u64 = 0;
}

/// An object's copy on a CPU.
fn copy(handle: NonZeroUsize, cpu: CpuId) -> *mut u8 {
    let delta = (ORIGIN.ptr_on(cpu) as usize).wrapping_sub(ORIGIN.template_address());
    ptr::with_exposed_provenance_mut(handle.get().wrapping_add(delta))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn layout() -> AreaLayout {
    AreaLayout::new(NR_CPUS, DEFAULT_UNIT_BYTES).unwrap()
}

fn nr_pages(layout: &AreaLayout) -> usize {
    layout.size_bytes().div_ceil(PAGE_BYTES)
}

/// What happened, with the numbers of pages and frames.
#[derive(Clone, Copy, Debug)]
enum Event {
    Allocated { frame: u64, near: Option<CpuId>, is_table: bool },
    MadeTable { frame: u64 },
    Mapped { page: u64, frame: u64, flags: PageTableFlags },
    Unmapped { page: u64, frame: u64 },
    Flushed { first: u64, last: u64 },
    Freed { frame: u64 },
}

/// A frame's way from the frame source and back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Unused,
    Table,
    Mapped(u64),
    MaybeInTlbs(u64),
    Flushed,
}

/// Replays what happened, and panics where a frame went another way than it must.
fn check_log(log: &[Event]) {
    let mut frames = BTreeMap::new();
    for &event in log {
        match event {
            Event::Allocated { frame, .. } => assert_eq!(frames.insert(frame, Frame::Unused), None),
            Event::MadeTable { frame } => assert_eq!(frames.insert(frame, Frame::Table), Some(Frame::Unused)),
            Event::Mapped { page, frame, .. } => assert_eq!(frames.insert(frame, Frame::Mapped(page)), Some(Frame::Unused)),
            Event::Unmapped { page, frame } => assert_eq!(frames.insert(frame, Frame::MaybeInTlbs(page)), Some(Frame::Mapped(page))),
            Event::Flushed { first, last } => {
                for frame in frames.values_mut() {
                    if matches!(frame, Frame::MaybeInTlbs(page) if (first..=last).contains(page)) {
                        *frame = Frame::Flushed;
                    }
                }
            }
            Event::Freed { frame } => {
                let before = frames.remove(&frame);
                assert!(matches!(before, Some(Frame::Unused | Frame::Flushed)), "frame {frame} freed while {before:?}");
            }
        }
    }
}

/// Page tables, frames and TLB of a machine.
struct Simulation {
    tables: Mutex<Tables>,
    free: Mutex<VecDeque<u64>>,
    log: Log,
    memory: &'static File,
    /// A multiple of 1 GiB, and not of 512 GiB, in the middle of unused addresses.
    middle: usize,
    /// Calls for frames fail when it reaches 0.
    calls_left: AtomicUsize,
    /// Whenever a page table is missing, another CPU makes it before the one that asks has its frame.
    another_cpu_makes_tables: AtomicBool,
}

struct Tables {
    /// Page and frame.
    entries: BTreeMap<u64, u64>,
    /// Frames of the page tables by level, and by the page number's part that leads to them.
    tables: BTreeMap<(u32, u64), u64>,
    /// The one that could not be made last.
    missing: Option<(u32, u64)>,
    /// Pages that the TLB knows, rightly or no longer.
    in_tlb: BTreeSet<u64>,
    log: Log,
    memory: &'static File,
}

type Log = &'static Mutex<Vec<Event>>;

fn note(log: Log, event: Event) {
    lock(log).push(event);
}

thread_local! {
    static IN_MAPPER: Cell<bool> = const { Cell::new(false) };
}

fn number_of(page: Page) -> u64 {
    page.start_address().as_u64() / PAGE_BYTES as u64
}

fn frame_of(number: u64) -> PhysFrame {
    PhysFrame::containing_address(PhysAddr::new(number * PAGE_BYTES as u64))
}

/// Maps `length` bytes at an address: to the file from `offset` on, or to nothing. Returns the address.
fn host_map(address: usize, length: usize, file: Option<(&File, u64)>) -> usize {
    let (protection, flags, descriptor, offset) = match file {
        Some((file, offset)) => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), offset as libc::off_t),
        None => (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0),
    };
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    // SAFETY: a new range, or a page of one that this function reserved for the simulation.
    let mapped = unsafe { libc::mmap(ptr::with_exposed_provenance_mut(address), length, protection, flags | fixed, descriptor, offset) };
    assert_ne!(mapped, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    mapped.expose_provenance()
}

impl Tables {
    /// What the TLB does when it has no translation of a page.
    fn load_into_tlb(&mut self, page: u64) {
        if let Some(frame) = self.entries.get(&page)
            && self.in_tlb.insert(page)
        {
            host_map(page as usize * PAGE_BYTES, PAGE_BYTES, Some((self.memory, frame * PAGE_BYTES as u64)));
        }
    }

    fn flush(&mut self, page: u64) {
        if self.in_tlb.remove(&page) {
            host_map(page as usize * PAGE_BYTES, PAGE_BYTES, None);
        }
        self.load_into_tlb(page);
    }
}

impl Mapper<Size4KiB> for Tables {
    unsafe fn map_to_with_table_flags<A: FrameAllocator<Size4KiB> + ?Sized>(
        &mut self,
        page: Page,
        frame: PhysFrame,
        flags: PageTableFlags,
        _: PageTableFlags,
        frames: &mut A,
    ) -> Result<MapperFlush<Size4KiB>, MapToError<Size4KiB>> {
        let page_number = number_of(page);
        for level in [3, 2, 1] {
            let place = (level, page_number >> (9 * level));
            if !self.tables.contains_key(&place) {
                self.missing = Some(place);
                let table = frames.allocate_frame().ok_or(MapToError::FrameAllocationFailed)?.start_address().as_u64() / PAGE_BYTES as u64;
                note(self.log, Event::MadeTable { frame: table });
                self.tables.insert(place, table);
            }
        }
        if self.entries.contains_key(&page_number) {
            return Err(MapToError::PageAlreadyMapped(frame));
        }
        let frame = frame.start_address().as_u64() / PAGE_BYTES as u64;
        note(self.log, Event::Mapped { page: page_number, frame, flags });
        self.entries.insert(page_number, frame);
        self.load_into_tlb(page_number);
        Ok(MapperFlush::new(page))
    }

    fn unmap(&mut self, page: Page) -> Result<(PhysFrame, MapperFlush<Size4KiB>), UnmapError> {
        let frame = self.entries.remove(&number_of(page)).ok_or(UnmapError::PageNotMapped)?;
        note(self.log, Event::Unmapped { page: number_of(page), frame });
        Ok((frame_of(frame), MapperFlush::new(page)))
    }

    fn translate_page(&self, page: Page) -> Result<PhysFrame, TranslateError> {
        self.entries.get(&number_of(page)).map(|&frame| frame_of(frame)).ok_or(TranslateError::PageNotMapped)
    }

    unsafe fn update_flags(&mut self, _: Page, _: PageTableFlags) -> Result<MapperFlush<Size4KiB>, FlagUpdateError> {
        unreachable!("chunks keep their flags")
    }

    unsafe fn set_flags_p4_entry(&mut self, _: Page, _: PageTableFlags) -> Result<MapperFlushAll, FlagUpdateError> {
        unreachable!("chunks keep their flags")
    }

    unsafe fn set_flags_p3_entry(&mut self, _: Page, _: PageTableFlags) -> Result<MapperFlushAll, FlagUpdateError> {
        unreachable!("chunks keep their flags")
    }

    unsafe fn set_flags_p2_entry(&mut self, _: Page, _: PageTableFlags) -> Result<MapperFlushAll, FlagUpdateError> {
        unreachable!("chunks keep their flags")
    }
}

impl Simulation {
    fn new() -> &'static Simulation {
        // SAFETY: the name is a C string; the descriptor is this file's alone.
        let memory = unsafe { File::from_raw_fd(libc::memfd_create(c"frames".as_ptr(), libc::MFD_CLOEXEC)) };
        // Frame 0 is nobody's.
        memory.set_len(((1 + NR_FRAMES) * PAGE_BYTES) as u64).unwrap();
        let memory: &File = Box::leak(Box::new(memory));
        let log: Log = Box::leak(Box::default());
        const GIB: usize = 1 << 30;
        let addresses = host_map(0, 4 * GIB, None);
        let middle = (addresses + GIB).next_multiple_of(GIB);
        // A border between page tables of level 2, but of no higher one, so that all chunks need the same number of tables.
        let middle = if middle.is_multiple_of(512 * GIB) { middle + GIB } else { middle };
        let tables = Tables { entries: BTreeMap::new(), tables: BTreeMap::new(), missing: None, in_tlb: BTreeSet::new(), log, memory };
        Box::leak(Box::new(Simulation {
            tables: Mutex::new(tables),
            free: Mutex::new((1..=NR_FRAMES as u64).collect()),
            log,
            memory,
            middle,
            calls_left: AtomicUsize::new(usize::MAX),
            another_cpu_makes_tables: AtomicBool::new(false),
        }))
    }

    /// A source with that many bytes of addresses, which begin that many pages before a border between page tables of level 2.
    fn source(&'static self, pages_before_border: usize, bytes: usize, layout: &AreaLayout) -> Result<TestSource, PagedError> {
        // SAFETY: addresses that are reserved for the simulation.
        unsafe { Paged::new(self.middle - pages_before_border * PAGE_BYTES, bytes, layout, self) }
    }

    fn take_frame(&self, near: Option<CpuId>, is_table: bool) -> Option<PhysFrame> {
        assert!(!IN_MAPPER.get(), "a frame is asked for inside the mapper's lock");
        let calls_left = self.calls_left.load(Ordering::Relaxed);
        self.calls_left.store(calls_left.checked_sub(1)?, Ordering::Relaxed);
        // The one that is free for longest.
        let frame = lock(&self.free).pop_front()?;
        note(self.log, Event::Allocated { frame, near, is_table });
        Some(frame_of(frame))
    }

    fn nr_used_frames(&self) -> usize {
        NR_FRAMES - lock(&self.free).len()
    }

    fn nr_tables(&self) -> usize {
        lock(&self.tables).tables.len()
    }

    /// Gives all page tables back, and begins a new log. Nothing is mapped.
    fn forget_tables(&self) {
        let mut tables = lock(&self.tables);
        assert!(tables.entries.is_empty());
        let freed = core::mem::take(&mut tables.tables);
        lock(&self.free).extend(freed.values());
        check_log(&core::mem::take(&mut *lock(self.log)));
    }

    /// The frame that an address is mapped to by the page tables, whatever the TLB says.
    fn frame_at(&self, address: usize) -> u64 {
        lock(&self.tables).entries[&(address as u64 / PAGE_BYTES as u64)]
    }

    /// The byte of a frame that an address leads to.
    fn byte_in_frame(&self, frame: u64, address: usize) -> u8 {
        let mut byte = [0];
        self.memory.read_exact_at(&mut byte, frame * PAGE_BYTES as u64 + (address % PAGE_BYTES) as u64).unwrap();
        byte[0]
    }
}

// SAFETY: one set of page tables for all CPUs, behind a lock; frames are handed out once; what is flushed leaves the host's only
// mapping.
unsafe impl Paging for &'static Simulation {
    type Mapper = Tables;

    fn with_mapper<R>(&self, f: impl FnOnce(&mut Tables) -> R) -> R {
        let mut tables = lock(&self.tables);
        IN_MAPPER.set(true);
        let result = f(&mut tables);
        IN_MAPPER.set(false);
        result
    }

    fn allocate_frame(&self, near: Option<CpuId>) -> Option<PhysFrame> {
        self.take_frame(near, false)
    }

    fn allocate_table_frame(&self, near: Option<CpuId>) -> Option<PhysFrame> {
        if self.another_cpu_makes_tables.load(Ordering::Relaxed) {
            let frame = self.take_frame(None, true)?.start_address().as_u64() / PAGE_BYTES as u64;
            let mut tables = lock(&self.tables);
            let place = tables.missing.expect("a table is missing");
            tables.tables.insert(place, frame);
            note(self.log, Event::MadeTable { frame });
        }
        self.take_frame(near, true)
    }

    unsafe fn free_frame(&self, frame: PhysFrame) {
        assert!(!IN_MAPPER.get(), "a frame is freed inside the mapper's lock");
        let address = frame.start_address().as_u64();
        self.memory.write_all_at(&[POISON; PAGE_BYTES], address).unwrap();
        note(self.log, Event::Freed { frame: address / PAGE_BYTES as u64 });
        lock(&self.free).push_back(address / PAGE_BYTES as u64);
    }

    fn flush_everywhere(&self, pages: PageRangeInclusive) {
        assert!(!IN_MAPPER.get(), "a flush waits for other CPUs inside the mapper's lock");
        let (first, last) = (number_of(pages.start), number_of(pages.end));
        assert!(last - first < 64);
        let mut tables = lock(&self.tables);
        note(self.log, Event::Flushed { first, last });
        (first..=last).for_each(|page| tables.flush(page));
    }
}

type TestSource = Paged<&'static Simulation>;

/// Gives `f` the machine and a source of `nr_chunks` chunks, one test at a time. The addresses begin 12 pages before a border: the first
/// chunk needs three page tables for its first page, and two more in the middle of CPU 1's unit.
fn with_source(nr_chunks: usize, f: impl FnOnce(Machine, &'static Simulation, &'static TestSource)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = lock(&ALONE);
    let machine = machine(NR_CPUS);
    let simulation = Simulation::new();
    let source = simulation.source(12, nr_chunks * nr_pages(&layout()) * PAGE_BYTES, &layout()).unwrap();
    assert_eq!(source.capacity(), nr_chunks);
    let source: &TestSource = Box::leak(Box::new(source));
    machine.run(1, |_| alloc::set_source(source));
    f(machine, simulation, source);
    machine.run(NR_CPUS, |_| alloc::drain_this_cpu());
    machine.run(1, |_| {
        alloc::set_source(&Heap);
        alloc::reclaim();
        alloc::check();
    });
    assert_eq!(simulation.nr_used_frames(), simulation.nr_tables(), "every frame is back, but those of page tables");
    check_log(&lock(simulation.log));
}

/// The same on the boot CPU alone.
fn on_boot_cpu(nr_chunks: usize, f: impl Fn(&'static Simulation, &'static TestSource) + Sync) {
    with_source(nr_chunks, |machine, simulation, source| {
        machine.run(1, |_| f(simulation, source));
    });
}

/// An object that fills a unit, so that each takes a chunk of its own.
fn allocate_unit() -> Result<NonZeroUsize, AllocError> {
    alloc::allocate(DEFAULT_UNIT_BYTES, 8, AllocFlags::PROCESS)
}

/// Frees it and has its chunk given back.
fn free_unit(handle: NonZeroUsize) {
    // SAFETY: from `allocate_unit`, by the tests' use of it.
    unsafe { alloc::free(handle, DEFAULT_UNIT_BYTES, 8) };
    alloc::reclaim();
}

#[test]
fn objects_of_its_chunks_work_on_several_cpus() {
    struct Large {
        #[expect(dead_code, reason = "makes the object large")]
        rest: [u64; 400],
        last: u64,
    }
    // SAFETY: zero is a value of integers.
    unsafe impl Zeroable for Large {}
    with_source(20, |machine, simulation, _| {
        let allocate = |_| (0..20).map(|_| PerCpuBox::<Large>::zeroed().unwrap()).collect::<Vec<_>>();
        let objects: Vec<_> = machine.run(NR_CPUS, allocate).into_iter().flatten().collect();
        machine.run(NR_CPUS, |cpu| {
            for (index, object) in objects.iter().enumerate() {
                pcpu::field!(object => Large, last).add((1 + cpu.index()) as u64 * index as u64);
            }
        });
        machine.run(1, |_| {
            for (index, object) in objects.iter().enumerate() {
                assert_eq!(pcpu::field!(object => Large, last).sum(), 6 * index as u64);
            }
        });
        let nr_mapped = lock(simulation.log).iter().filter(|event| matches!(event, Event::Mapped { .. })).count();
        assert!(nr_mapped >= 5 * nr_pages(&layout()), "60 objects of a page take at least 5 chunks");
        let objects = Mutex::new(objects);
        machine.run(1, |_| lock(&objects).clear());
    });
}

#[test]
fn each_units_pages_and_page_tables_are_asked_for_its_cpu() {
    on_boot_cpu(1, |simulation, source| {
        let layout = layout();
        let memory = source.allocate(&layout).unwrap();
        let log = lock(simulation.log).clone();
        let first_page = (memory.as_ptr().addr() / PAGE_BYTES) as u64;
        let (mut asked_for, mut tables) = (BTreeMap::new(), Vec::new());
        for event in log {
            match event {
                Event::Allocated { frame, near, is_table } => {
                    asked_for.insert(frame, near);
                    tables.extend(is_table.then_some(near));
                }
                Event::Mapped { page, frame, flags } => {
                    let start = (page - first_page) as usize * PAGE_BYTES;
                    let bytes_of = |cpu: CpuId| {
                        let unit = cpu.index() * layout.stride_bytes()..(cpu.index() + 1) * layout.stride_bytes();
                        unit.end.min(start + PAGE_BYTES).saturating_sub(unit.start.max(start))
                    };
                    let owner = CpuId::possible().find(|&cpu| bytes_of(cpu) > PAGE_BYTES / 2);
                    assert_eq!(asked_for[&frame], owner, "page {} of the chunk", page - first_page);
                    assert_eq!(flags, DEFAULT_FLAGS);
                }
                _ => {}
            }
        }
        let owners: BTreeSet<_> = asked_for.values().copied().collect();
        assert_eq!(owners.len(), NR_CPUS + 1, "each CPU's, and what is nobody's");
        let on = |cpu| Some(CpuId::new(cpu).unwrap());
        assert_eq!(tables, [on(0), on(0), on(0), on(1), on(1)]);
        // SAFETY: allocated above.
        unsafe { source.release(memory, &layout) };
    });
}

#[test]
fn chunks_go_back_in_the_order_unmap_flush_free() {
    on_boot_cpu(1, |simulation, _| {
        let layout = AreaLayout::new(NR_CPUS, 256 << 10).unwrap();
        let source = simulation.source(100, 1 << 20, &layout).unwrap();
        let memory = source.allocate(&layout).unwrap();
        let before = lock(simulation.log).len();
        // SAFETY: allocated above.
        unsafe { source.release(memory, &layout) };
        let first_page = (memory.as_ptr().addr() / PAGE_BYTES) as u64;
        // Unmaps, a flush, frees; and again, until all of the chunk is gone.
        let log = lock(simulation.log).clone();
        let mut log = log[before..].iter().copied().peekable();
        let mut next_page = first_page;
        while log.peek().is_some() {
            let mut unmapped = Vec::new();
            while let Some(Event::Unmapped { page, frame }) = log.next_if(|event| matches!(event, Event::Unmapped { .. })) {
                assert_eq!(page, next_page + unmapped.len() as u64);
                unmapped.push(frame);
            }
            let last_page = next_page + unmapped.len() as u64 - 1;
            assert!(matches!(log.next(), Some(Event::Flushed { first, last }) if (first, last) == (next_page, last_page)));
            for frame in unmapped {
                assert!(matches!(log.next(), Some(Event::Freed { frame: freed }) if freed == frame));
            }
            next_page = last_page + 1;
        }
        assert_eq!(next_page - first_page, nr_pages(&layout) as u64);
        assert!(next_page - first_page > 128, "several batches");
        assert_eq!(source.last_failure(), None);
    });
}

#[test]
fn every_call_for_a_frame_can_fail_and_the_next_one_works() {
    on_boot_cpu(2, |simulation, source| {
        let layout = layout();
        let nr_calls = nr_pages(&layout) + 5;
        let mut failures = Vec::new();
        let before = alloc::stats();
        for fails_at in 0..=nr_calls {
            simulation.forget_tables();
            simulation.calls_left.store(fails_at, Ordering::Relaxed);
            let outcome = allocate_unit();
            assert_eq!(simulation.calls_left.swap(usize::MAX, Ordering::Relaxed), 0, "every call is reached");
            if let Ok(handle) = outcome {
                assert_eq!(fails_at, nr_calls);
                free_unit(handle);
                break;
            }
            assert_eq!(outcome, Err(AllocError::SourceExhausted { chunk_bytes: layout.size_bytes() }));
            failures.push(source.last_failure().unwrap());
            assert_eq!(simulation.nr_used_frames(), simulation.nr_tables(), "call {fails_at}");
            assert_eq!(alloc::stats().chunks, before.chunks);
            alloc::check();
            let handle = allocate_unit().expect("the next call works");
            assert_eq!(simulation.nr_used_frames(), nr_calls);
            free_unit(handle);
            assert_eq!(simulation.nr_used_frames(), simulation.nr_tables());
        }
        let nr = |failure| failures.iter().filter(|&&seen| seen == failure).count();
        assert_eq!((nr(PagedFailure::NoFrame), nr(PagedFailure::NoTableFrame)), (nr_pages(&layout), 5));
    });
}

#[test]
fn an_address_that_got_another_frame_is_seen_right_by_another_cpu() {
    with_source(1, |machine, simulation, _| {
        let mut old_places = None;
        for round in 1..=3 {
            let handle = machine.run(1, |_| allocate_unit().unwrap())[0];
            let places = machine.run(NR_CPUS, |cpu| {
                let address = copy(handle, cpu) as usize;
                // SAFETY: this CPU's copy, which only this CPU touches.
                unsafe {
                    assert_eq!(copy(handle, cpu).read_volatile(), 0, "round {round} on {cpu:?}");
                    copy(handle, cpu).write_volatile(round);
                }
                let frame = simulation.frame_at(address);
                assert_eq!(simulation.byte_in_frame(frame, address), round, "the write reaches the new frame");
                (address, frame)
            });
            for (&(address, frame), &(old_address, old_frame)) in places.iter().zip(old_places.iter().flatten()) {
                assert_eq!(address, old_address);
                assert_ne!(frame, old_frame);
                assert_eq!(simulation.byte_in_frame(old_frame, address), POISON, "nothing reaches the old frame");
            }
            old_places = Some(places);
            machine.run(1, |_| free_unit(handle));
            assert_eq!(simulation.nr_used_frames(), simulation.nr_tables());
        }
    });
}

#[test]
fn several_cpus_map_and_unmap_chunks_at_once() {
    with_source(4, |machine, _, source| {
        let layout = layout();
        machine.run(NR_CPUS, |cpu| {
            for _ in 0..30 {
                let memory = source.allocate(&layout).unwrap();
                // SAFETY: this CPU's chunk.
                unsafe {
                    memory.write_bytes(cpu.index() as u8 + 1, layout.size_bytes());
                    std::thread::yield_now();
                    let bytes = NonNull::slice_from_raw_parts(memory, layout.size_bytes());
                    assert!(bytes.as_ref().iter().all(|&byte| byte == cpu.index() as u8 + 1), "nobody else has this chunk");
                    source.release(memory, &layout);
                }
            }
        });
        assert_eq!(source.last_failure(), None);
    });
}

#[test]
fn a_page_table_that_another_cpu_made_meanwhile_costs_no_frame() {
    on_boot_cpu(1, |simulation, _| {
        simulation.another_cpu_makes_tables.store(true, Ordering::Relaxed);
        let handle = allocate_unit().unwrap();
        assert_eq!(simulation.nr_tables(), 5);
        assert_eq!(simulation.nr_used_frames(), nr_pages(&layout()) + 5);
        free_unit(handle);
    });
}

#[test]
fn a_full_range_is_no_memory() {
    on_boot_cpu(2, |_, source| {
        let (first, second) = (allocate_unit().unwrap(), allocate_unit().unwrap());
        assert_eq!(allocate_unit(), Err(AllocError::SourceExhausted { chunk_bytes: layout().size_bytes() }));
        assert_eq!(source.last_failure(), Some(PagedFailure::RangeFull));
        assert_eq!(source.allocate(&layout()), None);
        free_unit(first);
        free_unit(allocate_unit().expect("there is room again"));
        free_unit(second);
    });
}

#[test]
fn no_more_chunks_than_a_source_can_count_are_mapped() {
    on_boot_cpu(1, |simulation, _| {
        let layout = AreaLayout::new(1, DEFAULT_UNIT_BYTES).unwrap();
        let source = simulation.source(0, 1 << 30, &layout).unwrap();
        assert_eq!(source.capacity(), 4096);
        // 65 is more than a word of the bitmap.
        let chunks: Vec<_> = (0..65).map(|_| source.allocate(&layout).unwrap()).collect();
        let addresses: BTreeSet<_> = chunks.iter().map(|memory| memory.as_ptr().addr()).collect();
        assert_eq!(addresses.len(), 65);
        // SAFETY: allocated above.
        chunks.into_iter().for_each(|memory| unsafe { source.release(memory, &layout) });
    });
}

#[test]
fn what_somebody_else_mapped_is_left_alone() {
    on_boot_cpu(2, |simulation, source| {
        let foreign_page = Page::containing_address(VirtAddr::new((simulation.middle + 5 * PAGE_BYTES) as u64));
        let mut frame = simulation.take_frame(None, true);
        struct Tables(&'static Simulation);
        // SAFETY: the simulation's frames are handed out once.
        unsafe impl FrameAllocator<Size4KiB> for Tables {
            fn allocate_frame(&mut self) -> Option<PhysFrame> {
                IN_MAPPER.set(false);
                self.0.take_frame(None, true)
            }
        }
        simulation.with_mapper(|mapper| {
            // SAFETY: a page of the simulation's, for which nobody has a use.
            unsafe { mapper.map_to(foreign_page, frame.unwrap(), DEFAULT_FLAGS, &mut Tables(simulation)) }.unwrap().ignore();
        });
        assert_eq!(allocate_unit(), Err(AllocError::SourceExhausted { chunk_bytes: layout().size_bytes() }));
        assert_eq!(source.last_failure(), Some(PagedFailure::NotMapped));
        assert_eq!(simulation.nr_used_frames(), simulation.nr_tables() + 1);
        let (unmapped, flush) = simulation.with_mapper(|mapper| mapper.unmap(foreign_page)).unwrap();
        flush.ignore();
        assert_eq!(frame.take(), Some(unmapped));
        simulation.flush_everywhere(Page::range_inclusive(foreign_page, foreign_page));
        // SAFETY: unmapped and flushed.
        unsafe { simulation.free_frame(unmapped) };
        free_unit(allocate_unit().expect("the next call works"));
    });
}

#[test]
fn a_place_that_somebody_else_tampered_with_is_not_used_again() {
    on_boot_cpu(2, |simulation, source| {
        let memory = source.allocate(&layout()).unwrap();
        let stolen_page = Page::containing_address(VirtAddr::new(memory.as_ptr().addr() as u64 + 3 * PAGE_BYTES as u64));
        let (frame, flush) = simulation.with_mapper(|mapper| mapper.unmap(stolen_page)).unwrap();
        flush.ignore();
        // SAFETY: allocated above.
        unsafe { source.release(memory, &layout()) };
        assert_eq!(source.last_failure(), Some(PagedFailure::NotUnmapped));
        assert_eq!(simulation.nr_used_frames(), simulation.nr_tables() + 1, "all others are back");
        // SAFETY: unmapped above, and flushed with the rest of the chunk.
        unsafe { simulation.free_frame(frame) };
        let next = source.allocate(&layout()).unwrap();
        assert_ne!(next, memory);
        assert_eq!(source.allocate(&layout()), None);
        // SAFETY: allocated above.
        unsafe { source.release(next, &layout()) };
    });
}

#[test]
fn page_flags_are_the_embedders_within_reason() {
    on_boot_cpu(1, |simulation, _| {
        let source = || simulation.source(0, 1 << 20, &layout()).unwrap();
        let global = DEFAULT_FLAGS | PageTableFlags::GLOBAL;
        let with_global = source().with_flags(global).unwrap();
        let memory = with_global.allocate(&layout()).unwrap();
        assert!(lock(simulation.log).iter().all(|event| !matches!(event, Event::Mapped { flags, .. } if *flags != global)));
        // SAFETY: allocated above.
        unsafe { with_global.release(memory, &layout()) };
        for bad in [
            PageTableFlags::empty(),
            PageTableFlags::PRESENT,
            PageTableFlags::WRITABLE | PageTableFlags::NO_EXECUTE,
            DEFAULT_FLAGS | PageTableFlags::USER_ACCESSIBLE,
            DEFAULT_FLAGS | PageTableFlags::HUGE_PAGE,
            // Bits of the frame's address.
            DEFAULT_FLAGS | PageTableFlags::from_bits_retain(1 << 12),
            DEFAULT_FLAGS | PageTableFlags::from_bits_retain(1 << 51),
        ] {
            assert_eq!(source().with_flags(bad).err(), Some(PagedError::BadFlags { bits: bad.bits() }));
        }
    });
}

#[test]
fn bad_ranges_are_named_errors() {
    let simulation = Simulation::new();
    let layout = layout();
    let slot_bytes = nr_pages(&layout) * PAGE_BYTES;
    // SAFETY: nothing is allocated from these.
    let new = |start, bytes| unsafe { Paged::new(start, bytes, &layout, simulation) }.map(|source| source.capacity());
    const GIB: usize = 1 << 30;
    const UPPER_HALF: usize = 0xffff_8000_0000_0000;
    const LOWER_END: usize = 0x8000_0000_0000;
    assert_eq!(new(UPPER_HALF, 0), Err(PagedError::Empty));
    for (start, bytes) in [(UPPER_HALF + 1, GIB), (UPPER_HALF + 64, GIB), (UPPER_HALF, GIB + 1), (UPPER_HALF, usize::MAX)] {
        assert_eq!(new(start, bytes), Err(PagedError::Misaligned { start, bytes }));
    }
    let overflowing = usize::MAX - (PAGE_BYTES - 1);
    for (start, bytes) in [
        (LOWER_END, GIB),
        (UPPER_HALF - GIB, 2 * GIB),
        (LOWER_END - GIB, GIB + PAGE_BYTES),
        (GIB, UPPER_HALF),
        (UPPER_HALF, overflowing),
        (overflowing, 2 * PAGE_BYTES),
    ] {
        assert_eq!(new(start, bytes), Err(PagedError::NotCanonical { start, bytes }));
    }
    assert_eq!(new(0, GIB), Err(PagedError::Null));
    assert_eq!(new(overflowing, PAGE_BYTES), Err(PagedError::TooSmall { bytes: PAGE_BYTES, chunk_bytes: slot_bytes }));
    for bytes in [PAGE_BYTES, slot_bytes - PAGE_BYTES] {
        assert_eq!(new(UPPER_HALF, bytes), Err(PagedError::TooSmall { bytes, chunk_bytes: slot_bytes }));
    }
    assert_eq!(new(UPPER_HALF, slot_bytes), Ok(1));
    assert_eq!(new(LOWER_END - slot_bytes, slot_bytes), Ok(1));
    // The last byte of all is the range's last one.
    assert_eq!(new(usize::MAX - (slot_bytes - 1), slot_bytes), Ok(1));
    assert_eq!(new(usize::MAX - (GIB - 1), GIB), Ok((GIB / slot_bytes).min(4096)));
    assert_eq!(new(PAGE_BYTES, 2 * slot_bytes + PAGE_BYTES), Ok(2));
    assert_eq!(new(UPPER_HALF, 1 << 46), Ok(4096));
}

#[test]
fn a_chunk_of_another_layout_is_refused() {
    on_boot_cpu(1, |_, source| {
        assert_eq!(source.allocate(&AreaLayout::new(NR_CPUS, DEFAULT_UNIT_BYTES / 2).unwrap()), None);
        assert_eq!(source.last_failure(), Some(PagedFailure::OtherLayout));
        free_unit(allocate_unit().unwrap());
    });
}
