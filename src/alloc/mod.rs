//! Allocation of per-CPU objects at run time.
//!
//! A *chunk* is one unit of memory for each possible CPU, at one stride. An object is the same range in each of them; its *handle* is an
//! address in template space, a number just like a static variable's address, so `gs:[handle]` is this CPU's copy:
//!
//! ```text
//!            | static variables | objects ...        |   the first chunk, made by `init`
//!   cpu 0    |                  |   [o]              |   at delta(0) + template
//!   cpu 1    |                  |   [o]              |   one stride further
//!   ...
//!            | objects ...                           |   further chunks, from the memory source, may lie anywhere
//!   cpu 0    |        [p]                            |   handle(p) = address of CPU 0's copy - delta(0)
//!   cpu 1    |        [p]                            |
//! ```
//!
//! Objects come in size classes, powers of two from 8 B to 2 KiB; larger ones are runs of 4 KiB blocks. From the top down:
//!
//! ```text
//!   allocate, free                      no lock, no interrupt flag, no line that another CPU writes
//!      |  hit
//!   magazines   [h][h][h][0][0] ...     one for each class and CPU: cells, each 0 or the handle of a free object
//!      |  miss: half a magazine at once, one short lock, interrupts off
//!   depot       [hhhhhhhh][hhhhhhhh]    trays of half a magazine, on their way from CPUs that free to CPUs that allocate
//!      |  no full tray, or this CPU's is full
//!   blocks      10110111...             a bitmap of each block's free objects; blocks with free ones are on their class's list
//!      |  no free object, no free block
//!   source                              another chunk, asked for without the lock
//! ```
//!
//! What is free is zero on every CPU, so an allocation touches no CPU's memory: whoever frees has cleaned, all CPUs' copies or those
//! that were written. A handle is good for all CPUs, so there is no remote free: whoever frees puts it into its own magazine.
//!
//! The magazines are Bonwick and Adams's ("Magazines and Vmem", 2001); the cells, instead of their arrays with a count, are what lets a
//! hit be interrupted and migrated at any instruction.

mod central;
mod chunk;
mod class;
mod depot;
mod directory;
mod error;
mod list;
mod magazine;
mod overflow;
#[cfg(feature = "paged")]
mod paged;
#[cfg(feature = "robust")]
mod robust;
mod source;
mod stats;

use core::num::NonZeroUsize;
use core::ptr::NonNull;

pub(crate) use chunk::metadata_bytes;
pub use error::{AllocError, AllocFlags};
#[cfg(feature = "paged")]
pub use paged::{Paged, PagedError, PagedFailure, Paging};
#[cfg(feature = "robust")]
pub(crate) use robust::report_dropped_values;
#[cfg(feature = "robust")]
pub use robust::{LiveObject, TraceEvent, TraceKind, for_each_live, set_trace};
#[cfg(feature = "alloc")]
pub use source::Heap;
pub use source::{Buffer, Source};
pub use stats::{ClassStats, FailureStats, Stats};

use crate::arch;
use crate::area::{self, AreaLayout, LINE_BYTES};
use crate::cpu::CpuId;
use crate::lock::LinedLock;
use central::{Central, OVERFLOWS};
use chunk::Chunk;
use class::Class;
use magazine::{CELLS, ThisCpu};
use stats::failed;

static CENTRAL: LinedLock<Central> = LinedLock::new(Central::new());

/// Makes the rest of the areas available for objects. Called by `init`, once, with memory laid out by `layout`.
pub(crate) fn adopt_first_chunk(memory: NonNull<u8>, layout: &AreaLayout, template_start: usize, static_bytes: usize) {
    let first_delta = (memory.as_ptr() as usize).wrapping_sub(template_start);
    // SAFETY: `init` checked the memory against the layout and cleared the units behind the static variables.
    let chunk = unsafe { Chunk::create(memory, layout, first_delta, static_bytes, None) };
    // SAFETY: made above.
    CENTRAL.with(|central| unsafe { central.insert(chunk) });
}

/// Names the source of further chunks. Without one, only the first chunk is there. Chunks go back to the source that they came from.
pub fn set_source(source: &'static dyn Source) {
    CENTRAL.with(|central| central.set_source(source));
}

/// A snapshot of the allocator. O(possible CPUs); takes the lock for a moment. Context: process and interrupt.
pub fn stats() -> Stats {
    #[cfg(feature = "robust")]
    robust::settle(AllocFlags::LOCK);
    let of_central = CENTRAL.with(|central| {
        central.take_overflows();
        central.stats()
    });
    stats::with_magazines(of_central)
}

/// Allocates an object on every possible CPU, all zero, and returns its handle.
///
/// Typed objects are made with [`PerCpuBox`](crate::PerCpuBox) and the counters; this is what they stand on, for data whose size is
/// not known when the kernel is built. The handle is an address in template space: `gs:[handle]` is this CPU's copy, and CPU c's lies at the
/// same distance from it as a static variable's [`ptr_on`](crate::Var::ptr_on) from its
/// [`template_address`](crate::Var::template_address).
///
/// Sizes go from 1 B to a unit, alignments up to 64 B, and further if a static variable is aligned to more.
///
/// Context: process with [`AllocFlags::PROCESS`], interrupt with [`AllocFlags::INTERRUPT`], NMI with [`AllocFlags::NMI`]. Cost: on a hit
/// about a dozen instructions, none of them locked; the same for any number of CPUs.
///
/// # Errors
/// Size or alignment that cannot be, no areas yet, or what ran out: chunks, their source, or the right to wait for the lock. Nothing
/// changed.
///
/// ```
/// use pcpu::{AllocFlags, CpuId, alloc};
///
/// pcpu::per_cpu! {
///     static LANDMARK: u8 = 0;
/// }
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// let handle = alloc::allocate(24, 8, AllocFlags::PROCESS)?;
/// for cpu in CpuId::possible() {
///     let delta = LANDMARK.ptr_on(cpu).expose_provenance().wrapping_sub(LANDMARK.template_address());
///     let copy = core::ptr::with_exposed_provenance_mut::<[u64; 3]>(handle.get().wrapping_add(delta));
///     // SAFETY: that CPU's copy of the object, which nobody else knows.
///     unsafe { assert_eq!(*copy, [0; 3]) };
/// }
/// // SAFETY: allocated above, and still zero.
/// unsafe { alloc::free_clean(handle, 24, 8) };
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
#[inline]
#[cfg_attr(feature = "robust", track_caller)]
pub fn allocate(size_bytes: usize, align_bytes: usize, flags: AllocFlags) -> Result<NonZeroUsize, AllocError> {
    let handle = allocate_unrecorded(size_bytes, align_bytes, flags)?;
    #[cfg(feature = "robust")]
    if !robust::note_allocated(handle, size_bytes, align_bytes, flags) {
        free_unrecorded(handle, size_bytes, align_bytes);
        return Err(failed(AllocError::WouldWait));
    }
    Ok(handle)
}

#[inline(always)]
fn allocate_unrecorded(size_bytes: usize, align_bytes: usize, flags: AllocFlags) -> Result<NonZeroUsize, AllocError> {
    match Class::of(size_bytes, align_bytes) {
        // Beyond a line the units may not be aligned enough.
        Some(_) if align_bytes > LINE_BYTES => allocate_overaligned(size_bytes, align_bytes, flags),
        Some(class) => match ThisCpu::of(class).take() {
            Some(handle) => Ok(handle),
            None => allocate_missed(class, flags),
        },
        None => allocate_run(size_bytes, align_bytes, flags),
    }
}

/// Cleans an object on every possible CPU and frees it. O(possible CPUs).
///
/// Never fails and never waits. Context: process, interrupt and NMI. With interrupts on, chunks that became empty may go back to their
/// source.
///
/// # Safety
///
/// The handle came from [`allocate`] with that size and alignment, is freed once, and nobody uses the object any more.
#[cfg_attr(feature = "robust", track_caller)]
pub unsafe fn free(handle: NonZeroUsize, size_bytes: usize, align_bytes: usize) {
    #[cfg(feature = "robust")]
    let must_wait = robust::note_freed(handle, size_bytes, align_bytes, robust::CallKind::Free);
    for cpu in CpuId::possible() {
        let copy = core::ptr::with_exposed_provenance_mut::<u8>(handle.get().wrapping_add(area::delta(cpu)));
        // SAFETY: the object is the caller's alone, on every CPU.
        unsafe { copy.write_bytes(0, size_bytes) };
    }
    #[cfg(feature = "robust")]
    if let Some(call) = must_wait {
        return robust::wait_for_lock(call);
    }
    free_unrecorded(handle, size_bytes, align_bytes);
}

/// Frees an object that is zero on every possible CPU already. The cost does not depend on the number of CPUs.
///
/// Never fails and never waits. Context: process, interrupt and NMI. With interrupts on, chunks that became empty may go back to their
/// source.
///
/// # Safety
///
/// As for [`free`], and every byte of the object is zero on every possible CPU.
#[inline]
#[cfg_attr(feature = "robust", track_caller)]
pub unsafe fn free_clean(handle: NonZeroUsize, size_bytes: usize, align_bytes: usize) {
    #[cfg(feature = "robust")]
    if let Some(call) = robust::note_freed(handle, size_bytes, align_bytes, robust::CallKind::FreeClean) {
        return robust::wait_for_lock(call);
    }
    free_unrecorded(handle, size_bytes, align_bytes);
}

#[inline(always)]
fn free_unrecorded(handle: NonZeroUsize, size_bytes: usize, align_bytes: usize) {
    match Class::of(size_bytes, align_bytes) {
        Some(class) => {
            if !ThisCpu::of(class).put(handle) {
                free_missed(class, handle);
            }
        }
        None => free_run(handle, size_bytes),
    }
}

/// Whether this image has areas, and the request makes sense.
fn check_request(size_bytes: usize, align_bytes: usize) -> Result<AreaLayout, AllocError> {
    let layout = area::layout().ok_or(AllocError::NotInitialised)?;
    if size_bytes == 0 {
        return Err(AllocError::ZeroSize);
    }
    if !align_bytes.is_power_of_two() {
        return Err(AllocError::AlignNotPowerOfTwo { align_bytes });
    }
    if align_bytes > layout.align_bytes() {
        return Err(AllocError::AlignTooLarge { align_bytes, max_bytes: layout.align_bytes() });
    }
    if size_bytes > layout.unit_bytes() {
        return Err(AllocError::TooLarge { size_bytes, max_bytes: layout.unit_bytes() });
    }
    Ok(layout)
}

/// Tries under the lock, if the flags let the caller wait for it or it is free; `Ok(None)` if the chunks are full.
fn attempt<R>(flags: AllocFlags, mut f: impl FnMut(&mut Central) -> Option<R>) -> Result<Option<R>, AllocError> {
    #[cfg(feature = "robust")]
    robust::settle(flags);
    let with_overflows = |central: &mut Central| {
        central.take_overflows();
        let result = f(central);
        // What is stocked for other CPUs, or is of another class, is memory too.
        if result.is_none() && central.empty_depot() { f(central) } else { result }
    };
    if flags.contains(AllocFlags::LOCK) {
        Ok(CENTRAL.with(with_overflows))
    } else {
        CENTRAL.try_with(with_overflows).ok_or(AllocError::WouldWait)
    }
}

/// Tries under the lock, and with another chunk if that is what it takes and the flags allow it.
fn attempt_or_grow<R>(layout: &AreaLayout, flags: AllocFlags, mut f: impl FnMut(&mut Central) -> Option<R>) -> Result<R, AllocError> {
    loop {
        if let Some(result) = attempt(flags, &mut f)? {
            return Ok(result);
        }
        if !flags.contains(AllocFlags::GROW) {
            return Err(AllocError::ChunksFull);
        }
        let source = CENTRAL.with(|central| central.source()).ok_or(AllocError::NoSource)?;
        let Some(memory) = source.allocate(layout) else {
            // The source's last memory may be a chunk that another CPU added meanwhile.
            return attempt(flags, &mut f)?.ok_or(AllocError::SourceExhausted { chunk_bytes: layout.size_bytes() });
        };
        memory.as_ptr().expose_provenance();
        // SAFETY: the source promises memory of that layout, which nobody else uses yet.
        let chunk = unsafe {
            memory.write_bytes(0, layout.units_bytes());
            Chunk::create(memory, layout, area::delta(CpuId::BOOT), 0, Some(source))
        };
        // SAFETY: made above.
        CENTRAL.with(|central| unsafe { central.insert(chunk) });
    }
}

#[cold]
#[inline(never)]
fn allocate_overaligned(size_bytes: usize, align_bytes: usize, flags: AllocFlags) -> Result<NonZeroUsize, AllocError> {
    check_request(size_bytes, align_bytes).map_err(failed)?;
    // The class is aligned to its size, which is at least the alignment.
    allocate_unrecorded(size_bytes.max(align_bytes), 1, flags)
}

#[cold]
#[inline(never)]
fn allocate_missed(class: Class, flags: AllocFlags) -> Result<NonZeroUsize, AllocError> {
    let magazine = ThisCpu::of(class);
    let handle = match magazine.unstock() {
        Some(handle) => handle,
        None => check_request(class.bytes(), 1)
            .and_then(|layout| {
                attempt_or_grow(&layout, flags, |central| {
                    // Interrupts are off from here to the end of the refill, so this is one CPU's magazine.
                    let magazine = ThisCpu::of(class);
                    let count_miss = || magazine.count_miss(class, layout.nr_cpus());
                    central.exchange(class, magazine, count_miss).or_else(|| {
                        central.refill(class, magazine, || {
                            count_miss();
                            magazine.capacity() / 2
                        })
                    })
                })
            })
            .map_err(failed)?,
    };
    magazine.count_allocated();
    Ok(handle)
}

#[cold]
#[inline(never)]
fn free_missed(class: Class, handle: NonZeroUsize) {
    let magazine = ThisCpu::of(class);
    magazine.count_freed();
    if magazine.stock(handle) {
        return;
    }
    let interrupts_were_on = arch::irqs_are_on();
    let flushed = CENTRAL.try_with(|central| {
        central.take_overflows();
        // Interrupts are off, so this is one CPU's magazine.
        let magazine = ThisCpu::of(class);
        magazine.count_flush(class, CpuId::possible().len());
        let mut left = magazine.capacity() / 2;
        let mut next = || {
            left = left.checked_sub(1)?;
            magazine.unstock()
        };
        if !central.depot.fill(class, &mut next) {
            core::iter::from_fn(next).for_each(|stocked| central.put_freed(class, stocked));
        }
        if !magazine.stock(handle) {
            central.put_freed(class, handle);
        }
        // Sources are not to be called in interrupt context.
        interrupts_were_on.then(|| central.take_empty(1))
    });
    match flushed {
        Some(Some(released)) => released.give_back(),
        Some(None) => {}
        // SAFETY: the object is the caller's and clean; whoever holds the lock next takes it in.
        None => unsafe { OVERFLOWS.classes[class.index()].push(handle) },
    }
}

#[cold]
#[inline(never)]
fn allocate_run(size_bytes: usize, align_bytes: usize, flags: AllocFlags) -> Result<NonZeroUsize, AllocError> {
    check_request(size_bytes, align_bytes)
        .and_then(|layout| attempt_or_grow(&layout, flags, |central| central.allocate_run(size_bytes, align_bytes)))
        .map_err(failed)
}

#[cold]
#[inline(never)]
fn free_run(handle: NonZeroUsize, size_bytes: usize) {
    let interrupts_were_on = arch::irqs_are_on();
    let freed = CENTRAL.try_with(|central| {
        central.take_overflows();
        central.free_run_freed(handle, size_bytes);
        interrupts_were_on.then(|| central.take_empty(1))
    });
    match freed {
        Some(Some(released)) => released.give_back(),
        Some(None) => {}
        // SAFETY: the object is the caller's and clean; whoever holds the lock next takes it in.
        None => unsafe { OVERFLOWS.runs.push_sized(handle, size_bytes) },
    }
}

/// Allocates `handles.len()` objects of one size, or none: fills `handles`.
///
/// Context and cost: as so many calls of [`allocate`].
///
/// # Errors
/// Says what ran out or what was wrong; what was allocated so far is freed again.
#[cfg_attr(feature = "robust", track_caller)]
pub fn allocate_many(
    handles: &mut [Option<NonZeroUsize>],
    size_bytes: usize,
    align_bytes: usize,
    flags: AllocFlags,
) -> Result<(), AllocError> {
    for index in 0..handles.len() {
        match allocate(size_bytes, align_bytes, flags) {
            Ok(handle) => handles[index] = Some(handle),
            Err(error) => {
                for handle in handles[..index].iter_mut().filter_map(Option::take) {
                    // SAFETY: allocated above, and never used.
                    unsafe { free_clean(handle, size_bytes, align_bytes) };
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Stocks this CPU's magazine with `nr` objects of that size and alignment, for contexts that cannot wait: until they are used up, an
/// allocation on this CPU with any flags succeeds. The caller should stay on its CPU, and keep others from using the stock.
///
/// Context: process.
///
/// # Errors
/// [`AllocError::PrefillTooLong`] if a magazine does not hold so many or the objects are too large for magazines, or what ran out;
/// what was stocked so far stays.
pub fn prefill(size_bytes: usize, align_bytes: usize, nr: usize) -> Result<(), AllocError> {
    let layout = check_request(size_bytes, align_bytes).map_err(failed)?;
    let class = Class::of(size_bytes, align_bytes).filter(|_| nr <= CELLS);
    let Some(class) = class else { return Err(failed(AllocError::PrefillTooLong { nr, max: CELLS })) };
    attempt_or_grow(&layout, AllocFlags::PROCESS, |central| {
        let magazine = ThisCpu::of(class);
        magazine.reserve(nr);
        loop {
            // Once, since an NMI may take and put in between.
            let stocked = magazine.stocked();
            if stocked >= nr {
                return Some(());
            }
            let handle = central.refill(class, magazine, || nr - stocked - 1)?;
            if !magazine.stock(handle) {
                central.put_freed(class, handle);
            }
        }
    })
    .map_err(failed)
}

/// Gives all objects in this CPU's magazines, and in all CPUs' trays, back to their blocks, so that they pin no memory. For an
/// IPI, or a CPU that goes idle.
///
/// Context: process and interrupt.
pub fn drain_this_cpu() {
    #[cfg(feature = "robust")]
    robust::settle(AllocFlags::LOCK);
    CENTRAL.with(|central| {
        central.take_overflows();
        for class in Class::all() {
            while let Some(handle) = ThisCpu::of(class).unstock() {
                central.put_freed(class, handle);
            }
        }
        central.empty_depot();
    });
}

/// The same for a CPU that is offline.
///
/// # Safety
///
/// `cpu` executes nothing, not even NMIs, until this returns, and what it executed last happened before the call.
pub unsafe fn drain_offline_cpu(cpu: CpuId) {
    CENTRAL.with(|central| {
        for class in Class::all() {
            // SAFETY: the caller's promise.
            while let Some(handle) = unsafe { magazine::take_from_offline(class, cpu) } {
                central.put_freed(class, handle);
            }
        }
    });
}

/// Gives every empty chunk back to its source. Drains this CPU's magazines first; other CPUs' stocks still pin their chunks: have each
/// call [`drain_this_cpu`] before.
///
/// Context: process.
pub fn reclaim() {
    drain_this_cpu();
    let released = CENTRAL.with(|central| central.take_empty(0));
    released.give_back();
}

/// Walks over all of the allocator's structures and panics where an invariant does not hold. For tests, and slow: looks at every free
/// byte on every CPU. Nothing else may run.
#[cfg(any(debug_assertions, feature = "host"))]
#[doc(hidden)]
pub fn check() {
    #[cfg(feature = "robust")]
    robust::settle(AllocFlags::LOCK);
    CENTRAL.with(|central| {
        central.take_overflows();
        central.check();
    });
}
