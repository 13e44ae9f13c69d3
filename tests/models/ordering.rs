//! What memory ordering each protocol needs, tried by loom, with the orderings as parameters: one step weaker must fail.
//!
//! An unlocked read-modify-write is a load and a store to other CPUs. Its store is modelled by a swap whose result is dropped: with a plain
//! store, loom reports losses that neither C11 nor x86 allows, since it does not enforce that a read-modify-write follows directly
//! on the store that it read.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

/// Three preemptions: each model has at most three threads that interfere, and each fault below needs at most two. Complete runs of
/// these models take minutes.
const PREEMPTION_BOUND: usize = 3;

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTION_BOUND);
    builder.check(f);
}

/// The stack of frees that could not wait: links lie in the objects, whose memory passes from the pusher to the taker.
struct Overflow {
    first: AtomicUsize,
    links: [UnsafeCell<usize>; 2],
    push: Ordering,
    take: Ordering,
}

// SAFETY: an object's link is touched by its pusher, then by who took it; loom checks that.
unsafe impl Sync for Overflow {}

impl Overflow {
    fn push(&self, handle: usize) {
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: not pushed yet, so the caller's.
            self.links[handle - 1].with_mut(|link| unsafe { *link = first });
            match self.first.compare_exchange(first, handle, self.push, Ordering::Relaxed) {
                Ok(_) => return,
                Err(changed) => first = changed,
            }
        }
    }

    fn take_all(&self) -> usize {
        let mut taken = 0;
        let mut next = self.first.swap(0, self.take);
        while next > 0 {
            assert_eq!(taken & (1 << next), 0, "taken twice");
            taken |= 1 << next;
            // SAFETY: taken, so the caller's.
            next = self.links[next - 1].with_mut(|link| unsafe { core::mem::take(&mut *link) });
        }
        taken
    }
}

fn overflow(push: Ordering, take: Ordering) {
    model(move || {
        let overflow = Arc::new(Overflow { first: AtomicUsize::new(0), links: [UnsafeCell::new(0), UnsafeCell::new(0)], push, take });
        let pushers = [1, 2].map(|handle| {
            let overflow = overflow.clone();
            thread::spawn(move || overflow.push(handle))
        });
        let early = overflow.take_all();
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        let late = overflow.take_all();
        assert_eq!((early & late, early | late), (0, 0b110), "each object is taken once");
    });
}

#[test]
fn the_overflow_stack_hands_each_object_over_once() {
    overflow(Ordering::Release, Ordering::Acquire);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_overflow_push_without_release_is_found_out() {
    overflow(Ordering::Relaxed, Ordering::Acquire);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_overflow_take_without_acquire_is_found_out() {
    overflow(Ordering::Release, Ordering::Relaxed);
}

const TAG: usize = 1;

/// One CPU's slot of a counter, and the mask.
struct Slot {
    mask: AtomicUsize,
    slot: AtomicUsize,
    /// Set by an adder that has finished, for a sum that begins then.
    finished: AtomicBool,
}

/// One adder is moved away from the CPU between its mask bit and its tag, so that the other one, on the CPU, finds a tag that came from
/// elsewhere; once it has added and finished, a sum must find its value through the mask.
fn touched(tag: Ordering, load: Ordering, mask_first: bool) {
    model(move || {
        let slot = Arc::new(Slot { mask: AtomicUsize::new(0), slot: AtomicUsize::new(0), finished: AtomicBool::new(false) });
        let moved_away = {
            let slot = slot.clone();
            thread::spawn(move || {
                if mask_first {
                    slot.mask.fetch_or(1, Ordering::AcqRel);
                }
                let _ = slot.slot.compare_exchange(0, TAG, tag, Ordering::Relaxed);
                slot.mask.fetch_or(1, Ordering::AcqRel);
            })
        };
        let on_the_cpu = {
            let slot = slot.clone();
            thread::spawn(move || {
                let old = slot.slot.load(load);
                if old & TAG == 0 {
                    return;
                }
                // Nothing else writes to a tagged slot here, so the unlocked compare-exchange finds `old`.
                slot.slot.swap(old + 2, Ordering::Relaxed);
                slot.finished.store(true, Ordering::Release);
            })
        };
        if slot.finished.load(Ordering::Acquire) {
            let sum = if slot.mask.load(Ordering::Acquire) & 1 == 0 { 0 } else { slot.slot.load(Ordering::Relaxed) >> 1 };
            assert_eq!(sum, 1, "a sum misses an add that finished before");
        }
        moved_away.join().unwrap();
        on_the_cpu.join().unwrap();
    });
}

/// The load is an x86 `mov`, which acquires.
#[test]
fn a_tag_that_is_seen_brings_its_mask_bit_along() {
    touched(Ordering::AcqRel, Ordering::Acquire, true);
}

#[test]
#[should_panic(expected = "a sum misses an add")]
fn a_tag_that_is_set_without_release_is_found_out() {
    touched(Ordering::Relaxed, Ordering::Acquire, true);
}

#[test]
#[should_panic(expected = "a sum misses an add")]
fn a_tag_that_is_set_before_the_mask_bit_is_found_out() {
    touched(Ordering::AcqRel, Ordering::Acquire, false);
}

/// One CPU's cell, with the object whose handle is in it; `true`: free and in the cell.
struct Cell {
    cell: AtomicUsize,
    offline: AtomicBool,
    object: UnsafeCell<usize>,
}

// SAFETY: the object is touched by who took its handle; loom checks that.
unsafe impl Sync for Cell {}

const HANDLE: usize = 1;

impl Cell {
    /// The CPU's own unlocked compare-exchange of the handle with 0.
    fn take(&self) -> bool {
        let found = self.cell.load(Ordering::Relaxed);
        self.cell.swap(if found == HANDLE { 0 } else { found }, Ordering::Relaxed);
        found == HANDLE
    }

    fn write_object(&self, value: usize) {
        // SAFETY: the caller took the handle.
        self.object.with_mut(|object| unsafe { *object = value });
    }
}

/// The CPU takes its object, uses and cleans it, puts it back, and goes offline; somebody else drains it.
fn drain(goes_offline: Ordering, waits: bool) {
    model(move || {
        let cell = Arc::new(Cell { cell: AtomicUsize::new(HANDLE), offline: AtomicBool::new(false), object: UnsafeCell::new(0) });
        let owner = {
            let cell = cell.clone();
            thread::spawn(move || {
                if cell.take() {
                    cell.write_object(1);
                    cell.write_object(0);
                    cell.cell.swap(HANDLE, Ordering::Relaxed);
                }
                cell.offline.store(true, goes_offline);
            })
        };
        if !waits || cell.offline.load(Ordering::Acquire) {
            let handle = cell.cell.swap(0, Ordering::AcqRel);
            if handle == HANDLE {
                cell.write_object(2);
            }
        }
        owner.join().unwrap();
    });
}

#[test]
fn an_offline_cpu_can_be_drained() {
    drain(Ordering::Release, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_drain_of_an_online_cpu_is_found_out() {
    drain(Ordering::Release, false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_drain_that_is_not_ordered_after_the_cpus_last_instruction_is_found_out() {
    drain(Ordering::Relaxed, true);
}
