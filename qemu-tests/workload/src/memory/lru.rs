//! The list of anonymous folios, under one lock, as a memory node's LRU list is.

use super::Folio;
use alloc::vec::Vec;
use spin::mutex::{SpinMutex, SpinMutexGuard};

const NONE: Folio = Folio::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    previous: Folio,
    next: Folio,
}

/// All folios of a run.
#[derive(Debug)]
pub(crate) struct Lru(SpinMutex<List>);

#[derive(Debug)]
pub(crate) struct List {
    links: Vec<Links>,
    first: Folio,
    nr_listed: usize,
    /// Folios that no worker's pool has and no space uses.
    spare: Vec<Folio>,
}

impl Lru {
    pub(crate) fn new(nr_folios: usize) -> Self {
        let links = (0..nr_folios).map(|_| Links { previous: NONE, next: NONE }).collect();
        Lru(SpinMutex::new(List { links, first: NONE, nr_listed: 0, spare: (0..nr_folios as Folio).collect() }))
    }

    pub(crate) fn lock(&self) -> SpinMutexGuard<'_, List> {
        self.0.lock()
    }

    /// Folios on the list: 0 when no space is left.
    pub(crate) fn nr_listed(&self) -> usize {
        self.lock().nr_listed
    }
}

impl List {
    pub(crate) fn insert(&mut self, folio: Folio) {
        self.links[folio as usize] = Links { previous: NONE, next: self.first };
        if self.first != NONE {
            self.links[self.first as usize].previous = folio;
        }
        self.first = folio;
        self.nr_listed += 1;
    }

    pub(crate) fn remove(&mut self, folio: Folio) {
        let Links { previous, next } = self.links[folio as usize];
        match previous {
            NONE => self.first = next,
            _ => self.links[previous as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        self.nr_listed -= 1;
    }

    /// Moves up to `nr` spare folios to `pool`.
    pub(crate) fn take_spare(&mut self, pool: &mut Vec<Folio>, nr: usize) {
        let kept = self.spare.len().saturating_sub(nr);
        pool.extend(self.spare.drain(kept..));
    }

    pub(crate) fn give_spare(&mut self, folios: impl Iterator<Item = Folio>) {
        self.spare.extend(folios);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_leave_the_list_in_any_order() {
        let lru = Lru::new(4);
        let mut list = lru.lock();
        (0..4).for_each(|folio| list.insert(folio));
        for folio in [2, 3, 0, 1] {
            list.remove(folio);
        }
        assert_eq!((list.nr_listed, list.first), (0, NONE));
    }
}
