//! All chunks, filed in slots by their longest free run.

use super::chunk::{Chunk, GRANULE_BYTES};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::NonNull;

/// A chunk's name, which is also its place in the table.
pub(super) type Id = u32;

/// Chunks that nothing fits into, or that were tried in vain.
const FULL: usize = 0;

/// Chunks in slots below this go to slot `FULL` when they were tried in vain.
const FAIL_THRESHOLD: usize = 3;

/// A chunk's place in the list of its slot.
#[derive(Debug, Default)]
pub(super) struct Links {
    slot: usize,
    previous: Option<Id>,
    next: Option<Id>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    first: Option<Id>,
    last: Option<Id>,
}

#[derive(Debug)]
pub(super) struct Index {
    chunks: Vec<Option<Box<Chunk>>>,
    /// Places in the table that are vacant.
    vacant: Vec<Id>,
    /// The last one has the empty chunks.
    slots: Vec<Slot>,
}

/// The slot of runs of that size: one for each power of two, but for the smallest sizes, which share one.
fn slot_of(bytes: usize) -> usize {
    const BASE_SHIFT: usize = 5;
    (bytes.ilog2() as usize + 3).saturating_sub(BASE_SHIFT).max(1)
}

impl Index {
    pub(super) fn new(unit_bytes: usize) -> Self {
        Index { chunks: Vec::new(), vacant: Vec::new(), slots: vec![Slot::default(); slot_of(unit_bytes) + 2] }
    }

    fn empty_slot(&self) -> usize {
        self.slots.len() - 1
    }

    fn chunk(&mut self, id: Id) -> &mut Chunk {
        self.chunks[id as usize].as_mut().expect("a listed chunk is in the table")
    }

    /// Takes a new chunk in.
    pub(super) fn insert(&mut self, mut chunk: Chunk) {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            (self.chunks.len() - 1) as Id
        });
        chunk.set_id(id);
        self.chunks[id as usize] = Some(Box::new(chunk));
        self.push_first(self.empty_slot(), id);
    }

    /// Takes `nr` granules with that alignment, from the first chunk that has them.
    pub(super) fn take(&mut self, nr: usize, align: usize) -> Option<NonNull<u8>> {
        for slot in slot_of(nr * GRANULE_BYTES)..self.slots.len() {
            let mut next = self.slots[slot].first;
            while let Some(id) = next {
                let chunk = self.chunk(id);
                next = chunk.links.next;
                let Some(search_start) = chunk.find_fit(nr, align) else {
                    if slot < FAIL_THRESHOLD {
                        self.relink(id, FULL);
                    }
                    continue;
                };
                if let Some(start) = chunk.take(search_start, nr, align) {
                    let object = chunk.object_at(start);
                    self.file(id);
                    return Some(object);
                }
            }
        }
        None
    }

    /// Frees the object that begins there. A chunk that is empty then is returned if another one is empty.
    pub(super) fn give_back(&mut self, id: Id, start: usize) -> Option<Box<Chunk>> {
        let chunk = self.chunk(id);
        chunk.give_back(start);
        let is_empty = chunk.is_empty();
        if is_empty && self.slots[self.empty_slot()].first.is_some() {
            self.unlink(id);
            self.vacant.push(id);
            return self.chunks[id as usize].take();
        }
        self.file(id);
        None
    }

    /// Moves a chunk to the slot where it belongs.
    fn file(&mut self, id: Id) {
        let empty_slot = self.empty_slot();
        let chunk = self.chunk(id);
        let slot = if chunk.is_empty() {
            empty_slot
        } else if chunk.hints.contig.len == 0 {
            FULL
        } else {
            slot_of(chunk.hints.contig.len * GRANULE_BYTES)
        };
        if slot != chunk.links.slot {
            self.relink(id, slot);
        }
    }

    /// Moves a chunk to a slot: to the front if it got more free memory, else to the end.
    fn relink(&mut self, id: Id, slot: usize) {
        let got_more = slot > self.chunk(id).links.slot;
        self.unlink(id);
        if got_more {
            self.push_first(slot, id);
        } else {
            self.push_last(slot, id);
        }
    }

    fn push_first(&mut self, slot: usize, id: Id) {
        let second = self.slots[slot].first.replace(id);
        self.chunk(id).links = Links { slot, previous: None, next: second };
        match second {
            Some(second) => self.chunk(second).links.previous = Some(id),
            None => self.slots[slot].last = Some(id),
        }
    }

    fn push_last(&mut self, slot: usize, id: Id) {
        let before = self.slots[slot].last.replace(id);
        self.chunk(id).links = Links { slot, previous: before, next: None };
        match before {
            Some(before) => self.chunk(before).links.next = Some(id),
            None => self.slots[slot].first = Some(id),
        }
    }

    fn unlink(&mut self, id: Id) {
        let Links { slot, previous, next } = core::mem::take(&mut self.chunk(id).links);
        match previous {
            Some(previous) => self.chunk(previous).links.next = next,
            None => self.slots[slot].first = next,
        }
        match next {
            Some(next) => self.chunk(next).links.previous = previous,
            None => self.slots[slot].last = previous,
        }
    }

    pub(super) fn nr_chunks(&self) -> usize {
        self.chunks.len() - self.vacant.len()
    }

    /// All chunks, each with the slot whose list it is on.
    #[cfg(test)]
    pub(super) fn listed(&self) -> Vec<(usize, &Chunk)> {
        let mut listed = Vec::new();
        for (slot, list) in self.slots.iter().enumerate() {
            let mut next = list.first;
            while let Some(chunk) = next.and_then(|id| self.chunks[id as usize].as_deref()) {
                assert_eq!(chunk.links.slot, slot);
                listed.push((slot, chunk));
                next = chunk.links.next;
            }
        }
        listed
    }
}
