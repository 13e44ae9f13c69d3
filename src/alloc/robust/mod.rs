//! Robust mode: every allocation and free is checked against a record of what is in use, with the place in the source that made it.
//!
//! The record lies in the blocks' metadata, behind the allocator's lock, so in this mode hits take the lock and look at every CPU's copy:
//! for finding faults, not for measuring. Where the lock is taken:
//!
//! * An allocation whose flags let it wait for the lock waits. Another one tries for a moment and fails with
//!   [`AllocError::WouldWait`](super::AllocError::WouldWait), even if this CPU has an object in stock.
//! * A free tries for a moment and then leaves the object on the waiting list. Whoever has the lock next checks it, as the free would have
//!   done, and only then gives it to its block.
//!
//! So nothing is handed out again before its free was checked.

mod misuse;
mod record;
mod trace;
mod waiting;

use core::arch::x86_64::_rdtsc;
use core::fmt;
use core::num::NonZeroUsize;
use core::ops::Range;
use core::panic::Location;

use super::AllocFlags;
use super::central::Central;
use super::chunk::{Block, MAX_OBJECTS, Use};
use super::class::{Class, MAX_CLASS_BYTES};
use super::magazine::ThisCpu;
use crate::area;
use crate::cpu::CpuId;
use misuse::{Call, Fault, Misuse};

pub(super) use misuse::CallKind;
pub(super) use record::Record;
use trace::trace;
pub use trace::{TraceEvent, TraceKind, set_trace};

type Site = &'static Location<'static>;

/// How long a caller that must not wait tries to get the lock, which its own interrupted context may hold. In cycles: a number of tries would
/// take forever where each instruction is stepped.
const MOMENT_CYCLES: u64 = 1 << 18;

/// How long a free tries when the waiting list is full: many times as long as anybody holds the lock.
const PATIENCE_CYCLES: u64 = 1 << 28;

/// Runs `f` under the lock, unless it is not to be had within so many cycles.
fn try_for<R>(cycles: u64, mut f: impl FnMut(&mut Central) -> R) -> Option<R> {
    // SAFETY: every x86_64 processor has the counter.
    let now = || unsafe { _rdtsc() };
    let begin = now();
    loop {
        if let Some(result) = super::CENTRAL.try_with(&mut f) {
            return Some(result);
        }
        if now().wrapping_sub(begin) > cycles {
            return None;
        }
        core::hint::spin_loop();
    }
}

/// The first byte in that part of an object that is not zero, on any CPU.
fn find_dirt(handle: NonZeroUsize, bytes: Range<usize>) -> Option<(CpuId, usize)> {
    const WORD_BYTES: usize = size_of::<u64>();
    CpuId::possible().find_map(|cpu| {
        let start = core::ptr::with_exposed_provenance::<u8>(handle.get().wrapping_add(area::delta(cpu)));
        let mut offset = bytes.start;
        while offset < bytes.end {
            let has_word = offset.is_multiple_of(WORD_BYTES) && bytes.end - offset >= WORD_BYTES;
            // SAFETY: in an object of the allocator's, aligned to a word, that nobody may use at this moment; volatile, because somebody
            // does if it is misused.
            let (is_clean, step) = unsafe {
                if has_word && start.add(offset).cast::<u64>().read_volatile() == 0 {
                    (true, WORD_BYTES)
                } else {
                    (start.add(offset).read_volatile() == 0, 1)
                }
            };
            if !is_clean {
                return Some((cpu, offset));
            }
            offset += step;
        }
        None
    })
}

/// The index of the object that begins at a handle, or began there when the block was last in use.
fn index_in(block: &Block, handle: NonZeroUsize) -> Option<usize> {
    let object_bytes = block.record.object_bytes();
    let offset = handle.get().wrapping_sub(block.handle_at(0));
    let index = offset.checked_div(object_bytes)?;
    // A run is one object, with the rest of a block behind its end.
    (offset == index * object_bytes && (index == 0 || object_bytes <= MAX_CLASS_BYTES)).then_some(index)
}

/// Whether the block is one of those that such a request is answered from.
fn serves(block: &Block, size_bytes: usize, align_bytes: usize) -> bool {
    match (block.usage, Class::of(size_bytes, align_bytes)) {
        (Use::Objects(has), Some(wants)) => has == wants,
        (Use::RunHead(_), None) => true,
        _ => false,
    }
}

/// Checks what is handed out and marks it as in use.
fn record_allocated(central: &mut Central, call: Call) -> Result<(), Misuse> {
    let record = |block: &mut Block| {
        let Some(index) = index_in(block, call.handle).filter(|_| serves(block, call.size_bytes, call.align_bytes)) else {
            return Err(call.misuse(None, Fault::Stray));
        };
        let allocated_at = block.record.allocated_at(index);
        if block.record.is_live(index) {
            return Err(call.misuse(allocated_at, Fault::HandedOutTwice));
        }
        if let Some((cpu, offset_bytes)) = find_dirt(call.handle, 0..block.record.object_bytes()) {
            let freed_at = block.record.freed_at(index);
            return Err(call.misuse(allocated_at, Fault::WrittenAfterFree { cpu, offset_bytes, freed_at }));
        }
        block.record.set_allocated(index, call.size_bytes, call.site);
        Ok(())
    };
    central.with_block_of(call.handle, record).unwrap_or(Err(call.misuse(None, Fault::Stray)))
}

/// Checks what is freed and marks it as free.
fn record_freed(central: &mut Central, call: Call) -> Result<(), Misuse> {
    let record = |block: &mut Block| {
        let index = index_in(block, call.handle).ok_or(call.misuse(None, Fault::Foreign))?;
        let allocated_at = block.record.allocated_at(index);
        let found = |fault| Err(call.misuse(allocated_at, fault));
        if !block.record.is_live(index) {
            return found(block.record.freed_at(index).map_or(Fault::Foreign, |freed_at| Fault::DoubleFree { freed_at }));
        }
        let allocated_bytes = block.record.size_bytes(index);
        if allocated_bytes != call.size_bytes {
            return found(Fault::WrongSize { allocated_bytes });
        }
        if !serves(block, call.size_bytes, call.align_bytes) {
            return found(Fault::WrongAlign);
        }
        if let Some((cpu, offset_bytes)) = find_dirt(call.handle, call.size_bytes..block.record.object_bytes()) {
            return found(Fault::Overrun { cpu, offset_bytes });
        }
        if matches!(call.kind, CallKind::FreeClean)
            && let Some((cpu, offset_bytes)) = find_dirt(call.handle, 0..call.size_bytes)
        {
            return found(Fault::FreedDirty { cpu, offset_bytes });
        }
        block.record.set_freed(index, call.site);
        Ok(())
    };
    central.with_block_of(call.handle, record).unwrap_or(Err(call.misuse(None, Fault::Foreign)))
}

/// Records an object that is being handed out. `false` if the flags forbid to wait for the lock and it is not to be had.
#[track_caller]
#[must_use]
pub(super) fn note_allocated(handle: NonZeroUsize, size_bytes: usize, align_bytes: usize, flags: AllocFlags) -> bool {
    let call = Call { kind: CallKind::Allocate, handle, size_bytes, align_bytes, site: Location::caller() };
    let note = |central: &mut Central| {
        waiting::take_in(central)?;
        record_allocated(central, call)
    };
    let noted = if flags.contains(AllocFlags::LOCK) { Some(super::CENTRAL.with(note)) } else { try_for(MOMENT_CYCLES, note) };
    match noted {
        Some(Ok(())) => {
            trace(TraceKind::Allocated, Some(handle), size_bytes, Some(call.site));
            true
        }
        Some(Err(misuse)) => misuse.report(),
        None => false,
    }
}

/// Checks and records an object that is being freed; `kind` tells whether the caller promises that it is zero. If the lock is not to be had,
/// returns what must wait: for [`wait_for_lock`], once the object is clean.
#[track_caller]
#[must_use]
pub(super) fn note_freed(handle: NonZeroUsize, size_bytes: usize, align_bytes: usize, kind: CallKind) -> Option<Call> {
    let call = Call { kind, handle, size_bytes, align_bytes, site: Location::caller() };
    let noted = try_for(MOMENT_CYCLES, |central| {
        waiting::take_in(central)?;
        record_freed(central, call)
    });
    if let Some(Err(misuse)) = noted {
        misuse.report();
    }
    trace(TraceKind::Freed, Some(handle), size_bytes, Some(call.site));
    noted.is_none().then_some(call)
}

/// Checks what waited, records it as free, and gives it to its block.
fn free_waiting(central: &mut Central, call: Call) -> Result<(), Misuse> {
    record_freed(central, call)?;
    match Class::of(call.size_bytes, call.align_bytes) {
        Some(class) => central.put_freed(class, call.handle),
        None => central.free_run_freed(call.handle, call.size_bytes),
    }
    Ok(())
}

/// Leaves a clean object, whose free could not be recorded, to whoever has the lock next.
///
/// If so many wait already that the list is full, it waits for the lock for longer. If that does not help, the lock's holder is the very
/// context that was interrupted, by an NMI that frees hundreds of objects: this one is then never handed out again, and stays in the leak
/// report.
#[cold]
#[track_caller]
pub(super) fn wait_for_lock(call: Call) {
    let freed = || {
        if let Some(class) = Class::of(call.size_bytes, call.align_bytes) {
            ThisCpu::of(class).count_freed();
        }
    };
    if waiting::push(call) {
        return freed();
    }
    let taken_in = try_for(PATIENCE_CYCLES, |central| {
        waiting::take_in(central)?;
        free_waiting(central, call)
    });
    match taken_in {
        Some(Ok(())) => freed(),
        Some(Err(misuse)) => misuse.report(),
        None => {}
    }
}

/// Takes in what waits, if the flags let the caller wait for the lock or it is free. A misuse goes on waiting, for an allocation or a free to
/// report it: statistics and leak reports are wanted while one is being reported.
pub(super) fn settle(flags: AllocFlags) {
    if waiting::is_empty() {
        return;
    }
    let settled = if flags.contains(AllocFlags::LOCK) {
        Some(super::CENTRAL.with(waiting::take_in))
    } else {
        super::CENTRAL.try_with(waiting::take_in)
    };
    if let Some(Err(misuse)) = settled {
        waiting::push(misuse.call());
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
    /// Where it was allocated; `None` if that lies more than 2 GiB away from this crate.
    pub allocated_at: Option<&'static Location<'static>>,
}

impl fmt::Display for LiveObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}: {} B, allocated ", self.handle, self.size_bytes)?;
        match self.allocated_at {
            Some(site) => write!(f, "at {site}"),
            None => f.write_str("at an unknown place"),
        }
    }
}

/// How many objects a leak report looks up at once.
const NR_AT_ONCE: usize = 16;

/// Visits every object in use: what has leaked, once everything should be freed. In robust mode only.
///
/// Context: process and interrupt. `visit` runs without the allocator's lock, so it may be slow, and may allocate and free; objects that
/// are allocated or freed during the report are visited or not.
pub fn for_each_live(mut visit: impl FnMut(LiveObject)) {
    settle(AllocFlags::LOCK);
    // By the addresses of CPU 0's copies, the order that the chunks are in.
    let mut from = 0;
    loop {
        let mut found = [None; NR_AT_ONCE];
        let mut places = found.iter_mut();
        super::CENTRAL.with(|central| {
            central.for_each_block(|block| {
                let record = &block.record;
                for index in (0..MAX_OBJECTS).filter(|&index| record.is_live(index)) {
                    let address = block.handle_at(index * record.object_bytes());
                    let boot_address = address.wrapping_add(area::delta(CpuId::BOOT));
                    if boot_address >= from
                        && let Some(handle) = NonZeroUsize::new(address)
                        && let Some(place) = places.next()
                    {
                        let (size_bytes, allocated_at) = (record.size_bytes(index), record.allocated_at(index));
                        *place = Some((boot_address, LiveObject { handle, size_bytes, allocated_at }));
                    }
                }
            });
        });
        for (boot_address, object) in found.iter().flatten() {
            from = boot_address + 1;
            visit(*object);
        }
        if found.iter().any(Option::is_none) {
            return;
        }
    }
}

/// Tells the hook of the values that a counter or a set of them, which may have an object, is dropped with.
pub(crate) fn report_dropped_values(handle: Option<NonZeroUsize>, values: impl Iterator<Item = i64>) {
    let mut dropped = values.enumerate().filter(|&(_, value)| value != 0).peekable();
    if dropped.peek().is_none() {
        return;
    }
    let known = handle.and_then(|handle| {
        let look_up = |block: &mut Block| {
            let index = index_in(block, handle)?;
            Some((block.record.size_bytes(index), block.record.allocated_at(index)))
        };
        try_for(MOMENT_CYCLES, |central| central.with_block_of(handle, look_up)).flatten().flatten()
    });
    let (size_bytes, at) = known.unwrap_or((0, None));
    for (index, value) in dropped {
        trace(TraceKind::ValueDropped { index, value }, handle, size_bytes, at);
    }
}

#[cfg(all(test, feature = "host"))]
mod tests;
