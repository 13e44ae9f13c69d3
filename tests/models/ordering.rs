//! What memory ordering each protocol needs, tried by loom, with the orderings as parameters: one step weaker must fail.
//!
//! An unlocked read-modify-write is a load and a store to other CPUs. Its store is modelled by a swap whose result is dropped: with a plain
//! store, loom reports losses that neither C11 nor x86 allows, since it does not enforce that a read-modify-write follows directly
//! on the store that it read.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
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
                slot.slot.fetch_or(TAG, tag);
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

/// The orderings around a posting.
#[derive(Clone, Copy)]
struct Posting {
    /// Of the posting, by an add that is pinned.
    post: Ordering,
    /// Of the step of `done`.
    done: Ordering,
    load_done: Ordering,
    load_posted: Ordering,
}

const POSTING: Posting =
    Posting { post: Ordering::Release, done: Ordering::Release, load_done: Ordering::Acquire, load_posted: Ordering::Acquire };

/// A pinned add puts its CPU into the mask, unless somebody has, before it posts, and a reader looks at the mask after it looked at what was
/// posted.
fn masked(Posting { post, load_posted, .. }: Posting) {
    model(move || {
        let words = Arc::new((AtomicUsize::new(0), AtomicIsize::new(0)));
        let adder = || {
            let words = words.clone();
            thread::spawn(move || {
                if words.0.load(Ordering::Acquire) == 0 {
                    words.0.fetch_or(1, Ordering::AcqRel);
                }
                words.1.fetch_add(1, post);
            })
        };
        let adders = [adder(), adder()];
        let posted = words.1.load(load_posted);
        let mask = words.0.load(Ordering::Acquire);
        assert!(posted == 0 || mask == 1, "a posting of a CPU that is not in the mask");
        for adder in adders {
            adder.join().unwrap();
        }
    });
}

#[test]
fn a_posting_that_is_seen_brings_its_cpu_along() {
    masked(POSTING);
}

#[test]
#[should_panic(expected = "not in the mask")]
fn a_posting_without_release_does_not_bring_its_cpu_along() {
    masked(Posting { post: Ordering::Relaxed, ..POSTING });
}

#[test]
#[should_panic(expected = "not in the mask")]
fn a_posting_that_is_seen_without_acquire_does_not_bring_its_cpu_along() {
    masked(Posting { load_posted: Ordering::Relaxed, ..POSTING });
}

/// What all CPUs share of a counter whose batch is 2, and one CPU's slot.
struct Announced {
    begun: AtomicIsize,
    posted: AtomicIsize,
    done: AtomicIsize,
    slot: AtomicIsize,
}

impl Announced {
    /// Adds to the slot, by an instruction that the CPU's others see whole; the multiples that were crossed.
    fn add(&self, amount: isize) -> isize {
        let total = self.slot.fetch_add(amount, Ordering::AcqRel);
        ((total + amount).div_euclid(2) - total.div_euclid(2)) * 2
    }
}

/// From a total of 1, an add of 1 that is announced crosses to 2; another one, pinned, takes that back and crosses to 1. Who sees the
/// second posting and not the first one must see the first one's announcement.
fn announced(Posting { post, done, load_done, load_posted }: Posting, begun_is_last: bool) {
    model(move || {
        let zero = || AtomicIsize::new(0);
        let words = Arc::new(Announced { begun: zero(), posted: zero(), done: zero(), slot: AtomicIsize::new(1) });
        let preempted = {
            let words = words.clone();
            thread::spawn(move || {
                words.begun.fetch_add(1, Ordering::AcqRel);
                let crossed = words.add(1);
                words.posted.fetch_add(crossed, Ordering::AcqRel);
                words.done.fetch_add(1, done);
            })
        };
        let pinned = {
            let words = words.clone();
            thread::spawn(move || {
                let crossed = words.add(-1);
                words.posted.fetch_add(crossed, post);
            })
        };
        let done = words.done.load(load_done);
        let (begun, posted) = if begun_is_last {
            let posted = words.posted.load(load_posted);
            (words.begun.load(Ordering::Acquire), posted)
        } else {
            (words.begun.load(Ordering::Acquire), words.posted.load(load_posted))
        };
        let in_flight = 2 * (begun - done);
        // With none of the adds, with either, and with both.
        let is_possible = |value: isize| (posted - in_flight..=posted + 1 + in_flight).contains(&value);
        assert!((0..=2).any(is_possible), "the value is not within its bounds");
        preempted.join().unwrap();
        pinned.join().unwrap();
    });
}

#[test]
fn a_reader_that_misses_a_posting_sees_that_it_was_announced() {
    announced(POSTING, true);
}

#[test]
#[should_panic(expected = "not within its bounds")]
fn a_posting_without_release_does_not_bring_announcements_along() {
    announced(Posting { post: Ordering::Relaxed, ..POSTING }, true);
}

#[test]
#[should_panic(expected = "not within its bounds")]
fn a_posting_that_is_seen_without_acquire_does_not_bring_announcements_along() {
    announced(Posting { load_posted: Ordering::Relaxed, ..POSTING }, true);
}

#[test]
#[should_panic(expected = "not within its bounds")]
fn an_announcement_that_is_looked_for_before_the_posting_is_found_out() {
    announced(POSTING, false);
}

#[test]
#[should_panic(expected = "not within its bounds")]
fn an_add_that_is_done_without_release_is_found_out() {
    announced(Posting { done: Ordering::Relaxed, ..POSTING }, true);
}

#[test]
#[should_panic(expected = "not within its bounds")]
fn an_add_that_is_seen_done_without_acquire_is_found_out() {
    announced(Posting { load_done: Ordering::Relaxed, ..POSTING }, true);
}

/// A lazy counter's address, the objects that two promoters have allocated, and the shared words.
struct Lazy {
    address: AtomicUsize,
    slots: [AtomicUsize; 2],
    shared: UnsafeCell<usize>,
}

// SAFETY: the shared words are written by who claimed the promotion, then read; loom checks that.
unsafe impl Sync for Lazy {}

const CLAIMED: usize = 1;
/// The address of the first object.
const PUBLISHED: usize = 2;
/// What an object's last owner had in it before it cleaned it.
const DIRTY: usize = 99;

/// Two promoters, and an add that finds the address or not.
fn promotion(publish: Ordering, load: Ordering, is_claimed: bool) {
    model(move || {
        let lazy = Arc::new(Lazy {
            address: AtomicUsize::new(0),
            slots: [AtomicUsize::new(DIRTY), AtomicUsize::new(DIRTY)],
            shared: UnsafeCell::new(0),
        });
        let promoters = [0, 1].map(|object| {
            let lazy = lazy.clone();
            thread::spawn(move || {
                // Whoever frees an object cleans it, which happens before the next owner allocates it.
                lazy.slots[object].store(0, Ordering::Relaxed);
                if is_claimed && lazy.address.compare_exchange(0, CLAIMED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                    return;
                }
                // SAFETY: claimed and not published, so the caller's.
                lazy.shared.with_mut(|shared| unsafe { *shared = 1 });
                lazy.address.store(PUBLISHED + object, publish);
            })
        });
        let address = lazy.address.load(load);
        if address >= PUBLISHED {
            assert_ne!(lazy.slots[address - PUBLISHED].load(Ordering::Relaxed), DIRTY, "an add meets what is left of another counter");
            // SAFETY: published, so nobody writes to them any more.
            assert_eq!(lazy.shared.with(|shared| unsafe { *shared }), 1);
        }
        promoters.into_iter().for_each(|promoter| promoter.join().unwrap());
    });
}

#[test]
fn a_published_address_brings_clean_slots_and_shared_words_along() {
    promotion(Ordering::Release, Ordering::Acquire, true);
}

#[test]
#[should_panic(expected = "an add meets what is left")]
fn an_address_that_is_published_without_release_is_found_out() {
    promotion(Ordering::Relaxed, Ordering::Acquire, true);
}

#[test]
#[should_panic(expected = "an add meets what is left")]
fn an_address_that_is_loaded_without_acquire_is_found_out() {
    promotion(Ordering::Release, Ordering::Relaxed, true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn shared_words_that_are_written_without_a_claim_are_found_out() {
    promotion(Ordering::Release, Ordering::Acquire, false);
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
