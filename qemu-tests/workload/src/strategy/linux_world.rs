//! What all counters of the Linux kind have in common: the allocator, the batch, the list of all counters, and single instructions on a
//! CPU's own copy.

use crate::limit::LINUX_CHUNK_LIMIT;
use crate::linux_like::LinuxLike;
use alloc::vec::Vec;
use core::arch::asm;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use pcpu::{CpuId, Pinned};
use spin::Once;
use spin::mutex::SpinMutex;

/// Each CPU's part of a chunk: what x86 Linux takes.
const UNIT_BYTES: usize = 256 << 10;

/// The allocator has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the allocator that works as Linux's does has no memory")
    }
}

/// One for the system, as in Linux.
#[derive(Debug)]
pub(super) struct World {
    pub(super) allocator: LinuxLike,
    pub(super) batch: i64,
    pub(super) nr_possible: usize,
    /// Every counter, so that a CPU that goes offline could be folded into each.
    pub(super) list: SpinMutex<CounterList>,
    /// Objects that no counter on the list has.
    pub(super) nr_unlisted_objects: AtomicI64,
}

static WORLD: Once<World> = Once::new();

/// The system's world, made by the first use.
#[inline(always)]
pub(super) fn world() -> &'static World {
    WORLD.call_once(World::new)
}

impl World {
    fn new() -> Self {
        let nr_possible = CpuId::possible().len();
        World {
            allocator: LinuxLike::new(nr_possible, UNIT_BYTES).limited(&LINUX_CHUNK_LIMIT),
            batch: (2 * nr_possible as i64).max(32),
            nr_possible,
            list: SpinMutex::new(CounterList::default()),
            nr_unlisted_objects: AtomicI64::new(0),
        }
    }

    /// The caller's CPU's copy of an object, or of a part of it.
    #[inline(always)]
    pub(super) fn this_copy(&self, _: Pinned<'_>, object: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: the allocator has a unit of that size for each possible CPU, one behind the other.
        unsafe { object.add(CpuId::current().index() * UNIT_BYTES) }
    }

    /// All CPUs' copies.
    pub(super) fn copies(&self, object: NonNull<u8>) -> impl Iterator<Item = NonNull<u8>> {
        // SAFETY: as above.
        (0..self.nr_possible).map(move |cpu| unsafe { object.add(cpu * UNIT_BYTES) })
    }

    pub(super) fn live_objects(&self) -> i64 {
        self.list.lock().nr_objects + self.nr_unlisted_objects.load(Ordering::Relaxed)
    }
}

/// Writes `new` if `old` is there, as one instruction without a lock: for a word that only this CPU writes.
///
/// # Safety
///
/// The word is valid, is the caller's CPU's, and whoever else looks at it does so by atomic loads.
#[inline(always)]
pub(super) unsafe fn compare_exchange_local(_: Pinned<'_>, word: &AtomicI32, old: i32, new: i32) -> bool {
    let found: i32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("cmpxchg dword ptr [{word}], {new:e}", word = in(reg) word.as_ptr(), new = in(reg) new, inout("eax") old => found,
            options(nostack));
    }
    found == old
}

/// Adds as one instruction without a lock.
///
/// # Safety
///
/// As for [`compare_exchange_local`].
#[inline(always)]
pub(super) unsafe fn add_local(_: Pinned<'_>, word: &AtomicI64, amount: i64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("add qword ptr [{word}], {amount}", word = in(reg) word.as_ptr(), amount = in(reg) amount, options(nostack)) };
}

/// A place on the list.
pub(super) type Node = u32;

const NONE: Node = Node::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    previous: Node,
    next: Node,
}

/// A doubly linked list of counters. Its links are in a table, since counters here may be moved.
#[derive(Debug)]
pub(super) struct CounterList {
    links: Vec<Links>,
    vacant: Vec<Node>,
    first: Node,
    /// Objects that the counters on the list have.
    pub(super) nr_objects: i64,
}

impl Default for CounterList {
    fn default() -> Self {
        CounterList { links: Vec::new(), vacant: Vec::new(), first: NONE, nr_objects: 0 }
    }
}

impl CounterList {
    pub(super) fn insert(&mut self) -> Node {
        let links = Links { previous: NONE, next: self.first };
        let node = match self.vacant.pop() {
            Some(node) => {
                self.links[node as usize] = links;
                node
            }
            None => {
                self.links.push(links);
                (self.links.len() - 1) as Node
            }
        };
        if self.first != NONE {
            self.links[self.first as usize].previous = node;
        }
        self.first = node;
        node
    }

    pub(super) fn remove(&mut self, node: Node) {
        let Links { previous, next } = self.links[node as usize];
        match previous {
            NONE => self.first = next,
            _ => self.links[previous as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        self.vacant.push(node);
    }
}
