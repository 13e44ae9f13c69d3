//! Robust mode: every allocation and free is checked against a record of what is live, with the place in the source that made it.
//!
//! The record lies in the blocks' metadata, behind the lock, so in this mode hits take the lock and allocations look at every CPU's copy:
//! for finding faults, not for measuring. A free that finds the lock taken, in an NMI say, is checked when it is taken in.

use core::fmt;
use core::num::NonZeroUsize;
use core::panic::Location;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::central::Central;
use super::chunk::{Block, MAX_OBJECTS, Use};
use crate::area;
use crate::cpu::CpuId;

type Site = &'static Location<'static>;

/// What robust mode knows of a block's objects.
pub(super) struct Record {
    live: [u64; MAX_OBJECTS / 64],
    /// Where each object was allocated, or freed if it is not live.
    sites: [Option<Site>; MAX_OBJECTS],
    /// A live object's size as it was asked for, in bytes.
    sizes: [u32; MAX_OBJECTS],
}

impl Record {
    pub(super) const fn new() -> Self {
        Record { live: [0; MAX_OBJECTS / 64], sites: [None; MAX_OBJECTS], sizes: [0; MAX_OBJECTS] }
    }

    fn is_live(&self, index: usize) -> bool {
        self.live[index / 64] >> (index % 64) & 1 == 1
    }
}

/// A use of the allocator that its contract forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misuse {
    /// No chunk contains the handle, or no object begins there.
    Foreign,
    /// The object is free already.
    DoubleFree { freed_at: Site },
    /// The object was allocated with another size.
    WrongSize { allocated_bytes: usize, at: Option<Site> },
    /// A free object is not zero.
    WrittenAfterFree { cpu: CpuId, offset_bytes: usize, freed_at: Option<Site> },
    /// An object that was freed as clean is not zero.
    FreedDirty { cpu: CpuId, offset_bytes: usize },
}

impl Misuse {
    /// Ends what cannot go on.
    #[track_caller]
    pub(super) fn report(self, handle: NonZeroUsize, size_bytes: usize) -> ! {
        panic!("per-CPU object {handle:#x} of {size_bytes} B: {self}")
    }
}

struct At(Option<Site>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(site) => write!(f, "at {site}"),
            None => f.write_str("at an unknown place"),
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Misuse::Foreign => f.write_str("freed, but was never allocated"),
            Misuse::DoubleFree { freed_at } => write!(f, "freed twice, first at {freed_at}"),
            Misuse::WrongSize { allocated_bytes, at } => {
                write!(f, "freed with another size than it was allocated with, {allocated_bytes} B {}", At(at))
            }
            Misuse::WrittenAfterFree { cpu, offset_bytes, freed_at } => {
                write!(f, "written to after it was freed {}: CPU {cpu}'s copy, byte {offset_bytes}", At(freed_at))
            }
            Misuse::FreedDirty { cpu, offset_bytes } => {
                write!(f, "freed as clean, but CPU {cpu}'s copy is not zero, byte {offset_bytes}")
            }
        }
    }
}

/// What a trace hook is told.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TraceEvent {
    /// What happened to the object.
    pub kind: TraceKind,
    /// Its handle.
    pub handle: NonZeroUsize,
    /// Its size as it was asked for, in bytes.
    pub size_bytes: usize,
    /// Where that happened; of [`TraceKind::ValueDropped`], where the object was allocated.
    pub at: &'static Location<'static>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceKind {
    /// It was allocated.
    Allocated,
    /// It is about to be freed.
    Freed,
    /// It is a counter or a set of them, of which one is dropped that is not zero. That is legal, and often a fault.
    ValueDropped {
        /// Its place in the set.
        index: usize,
        /// Its exact value.
        value: i64,
    },
}

static TRACE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has `hook` called after each allocation, before each free and for each value that is dropped, in the caller's context, without a lock; `None` ends it. In robust mode
/// only. The hook must not allocate or free per-CPU objects.
pub fn set_trace(hook: Option<fn(TraceEvent)>) {
    TRACE.store(hook.map_or(core::ptr::null_mut(), |hook| hook as *mut ()), Ordering::Release);
}

fn trace(kind: TraceKind, handle: NonZeroUsize, size_bytes: usize, at: Site) {
    let hook = TRACE.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: `set_trace` stores null or such a function.
        let hook = unsafe { core::mem::transmute::<*mut (), fn(TraceEvent)>(hook) };
        hook(TraceEvent { kind, handle, size_bytes, at });
    }
}

/// An object in use, in a leak report.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LiveObject {
    /// Its handle.
    pub handle: NonZeroUsize,
    /// Its size as it was asked for, in bytes.
    pub size_bytes: usize,
    /// Where it was allocated; `None` if that was in a context that could not wait for the lock.
    pub allocated_at: Option<&'static Location<'static>>,
}

impl fmt::Display for LiveObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}: {} B, allocated {}", self.handle, self.size_bytes, At(self.allocated_at))
    }
}

/// Visits every object in use: what has leaked, once everything should be freed. In robust mode only.
///
/// Context: process and interrupt; `visit` runs under the allocator's lock and must not allocate or free.
pub fn for_each_live(mut visit: impl FnMut(LiveObject)) {
    super::CENTRAL.with(|central| {
        central.take_overflows();
        central.for_each_block(|block| {
            let object_bytes = match block.usage {
                Use::Objects(class) => class.bytes(),
                Use::RunHead(_) => 0,
                Use::Free | Use::Static | Use::RunTail => return,
            };
            for index in 0..MAX_OBJECTS {
                if block.record.is_live(index)
                    && let Some(handle) = NonZeroUsize::new(block.handle_at(index * object_bytes))
                {
                    let size_bytes = block.record.sizes[index] as usize;
                    visit(LiveObject { handle, size_bytes, allocated_at: block.record.sites[index] });
                }
            }
        });
    });
}

/// The first byte that is not zero, on any CPU.
fn find_dirt(handle: NonZeroUsize, size_bytes: usize) -> Option<(CpuId, usize)> {
    CpuId::possible().find_map(|cpu| {
        let start = core::ptr::with_exposed_provenance::<u8>(handle.get().wrapping_add(area::delta(cpu)));
        // SAFETY: an object of the allocator's that nobody may use at this moment; volatile, because somebody does if it is misused.
        let dirty = (0..size_bytes).find(|&offset| unsafe { start.add(offset).read_volatile() } != 0)?;
        Some((cpu, dirty))
    })
}

/// The index of the object that begins at a handle.
fn index_in(block: &Block, handle: NonZeroUsize) -> Option<usize> {
    let offset = handle.get().wrapping_sub(block.handle_at(0));
    let object_bytes = match block.usage {
        Use::Objects(class) => class.bytes(),
        Use::RunHead(_) => return (offset == 0).then_some(0),
        Use::Free | Use::Static | Use::RunTail => return None,
    };
    offset.is_multiple_of(object_bytes).then_some(offset / object_bytes)
}

/// How often to try for a lock that an interrupted context may hold; another CPU holds it for less than this.
const MAX_TRIES: usize = 100_000;

/// Runs `f` under the lock, or not at all if it is taken for long.
fn try_long<R>(mut f: impl FnMut(&mut Central) -> R) -> Option<R> {
    (0..MAX_TRIES).find_map(|_| {
        core::hint::spin_loop();
        super::CENTRAL.try_with(&mut f)
    })
}

/// Records an object that is being handed out. `false` if the lock cannot be had.
#[track_caller]
pub(super) fn note_allocated(handle: NonZeroUsize, size_bytes: usize) -> bool {
    let site = Location::caller();
    let dirt = find_dirt(handle, size_bytes);
    let noted = try_long(|central| {
        let note = |block: &mut Block| {
            let index = index_in(block, handle).ok_or(Misuse::Foreign)?;
            if let Some((cpu, offset_bytes)) = dirt {
                return Err(Misuse::WrittenAfterFree { cpu, offset_bytes, freed_at: block.record.sites[index] });
            }
            block.record.live[index / 64] |= 1 << (index % 64);
            block.record.sites[index] = Some(site);
            block.record.sizes[index] = size_bytes as u32;
            Ok(())
        };
        central.with_block_of(handle, note).unwrap_or(Err(Misuse::Foreign))
    });
    match noted {
        Some(Ok(())) => {
            trace(TraceKind::Allocated, handle, size_bytes, site);
            true
        }
        Some(Err(misuse)) => misuse.report(handle, size_bytes),
        None => false,
    }
}

/// Checks and records an object that is being freed; `is_clean` is whether the caller promises that it is zero. If the lock cannot be had,
/// the object stays in the record, and the leak report, until it is allocated again.
#[track_caller]
pub(super) fn note_freed(handle: NonZeroUsize, size_bytes: usize, is_clean: bool) {
    let site = Location::caller();
    let noted = try_long(|central| {
        let note = |block: &mut Block| {
            let index = index_in(block, handle).ok_or(Misuse::Foreign)?;
            if !block.record.is_live(index) {
                return Err(match block.record.sites[index] {
                    Some(freed_at) => Misuse::DoubleFree { freed_at },
                    None => Misuse::Foreign,
                });
            }
            let allocated_bytes = block.record.sizes[index] as usize;
            if allocated_bytes != size_bytes {
                return Err(Misuse::WrongSize { allocated_bytes, at: block.record.sites[index] });
            }
            if is_clean && let Some((cpu, offset_bytes)) = find_dirt(handle, size_bytes) {
                return Err(Misuse::FreedDirty { cpu, offset_bytes });
            }
            block.record.live[index / 64] &= !(1 << (index % 64));
            block.record.sites[index] = Some(site);
            Ok(())
        };
        central.with_block_of(handle, note).unwrap_or(Err(Misuse::Foreign))
    });
    if let Some(Err(misuse)) = noted {
        misuse.report(handle, size_bytes);
    }
    trace(TraceKind::Freed, handle, size_bytes, site);
}

/// Tells the hook that a counter is dropped with a value.
pub(crate) fn report_dropped_value(handle: NonZeroUsize, index: usize, value: i64) {
    let record = |block: &mut Block| {
        let index = index_in(block, handle)?;
        Some((block.record.sizes[index] as usize, block.record.sites[index]?))
    };
    let known = try_long(|central| central.with_block_of(handle, record)).flatten().flatten();
    let (size_bytes, at) = known.unwrap_or((0, Location::caller()));
    trace(TraceKind::ValueDropped { index, value }, handle, size_bytes, at);
}
