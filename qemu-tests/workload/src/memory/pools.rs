//! A worker's stock of everything that spaces are made of.

use super::{Folio, Lru, PageTable};
use crate::crew::Meter;
use crate::strategy::Strategy;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Folios that are put on the list, or taken from it, under one hold of the lock: what Linux collects in a `folio_batch`.
const BATCH: usize = 15;

/// A place for a space's counters, which stays where it is; `None` in the pool.
#[derive(Debug)]
pub(crate) struct Slot<S>(pub(crate) Option<S>);

#[derive(Debug)]
pub(crate) struct Pools<'a, S> {
    lru: &'a Lru,
    folio_order: u32,
    slots: Vec<Arc<Slot<S>>>,
    #[expect(clippy::vec_box, reason = "a space takes the box, and not what is in it")]
    tables: Vec<Box<PageTable>>,
    folios: Vec<Folio>,
    nr_folios_at_start: usize,
    /// In use, and not on the list yet.
    to_insert: Vec<Folio>,
    /// Not in use any more, and still on the list.
    to_remove: Vec<Folio>,
    /// What was not in stock and came from the heap.
    pub(crate) nr_misses: u64,
    pub(crate) meter: Meter,
}

impl<'a, S: Strategy> Pools<'a, S> {
    /// Stock for that many spaces.
    pub(crate) fn new(lru: &'a Lru, folio_order: u32, nr_spaces: usize, nr_folios: usize, meter: Meter) -> Self {
        let mut folios = Vec::with_capacity(2 * nr_folios + BATCH);
        lru.lock().take_spare(&mut folios, nr_folios);
        Pools {
            lru,
            folio_order,
            slots: (0..nr_spaces).map(|_| Arc::new(Slot(None))).collect(),
            tables: (0..nr_spaces).map(|_| Box::new(PageTable::new())).collect(),
            folios,
            nr_folios_at_start: nr_folios,
            to_insert: Vec::with_capacity(BATCH),
            to_remove: Vec::with_capacity(BATCH),
            nr_misses: 0,
            meter,
        }
    }

    pub(crate) fn folio_order(&self) -> u32 {
        self.folio_order
    }

    pub(crate) fn take_slot(&mut self) -> Arc<Slot<S>> {
        self.slots.pop().unwrap_or_else(|| {
            self.nr_misses += 1;
            Arc::new(Slot(None))
        })
    }

    pub(crate) fn give_slot(&mut self, slot: Arc<Slot<S>>) {
        self.slots.push(slot);
    }

    pub(crate) fn take_table(&mut self) -> Box<PageTable> {
        self.tables.pop().unwrap_or_else(|| {
            self.nr_misses += 1;
            Box::new(PageTable::new())
        })
    }

    pub(crate) fn give_table(&mut self, table: Box<PageTable>) {
        self.tables.push(table);
    }

    pub(crate) fn take_folio(&mut self) -> Folio {
        if self.folios.is_empty() {
            self.meter.lru_lock(|| self.lru.lock().take_spare(&mut self.folios, 4 * BATCH));
        }
        let folio = self.folios.pop().expect("there are folios for as many spaces as may live");
        self.to_insert.push(folio);
        if self.to_insert.len() == BATCH {
            self.flush_insertions();
        }
        folio
    }

    pub(crate) fn give_folio(&mut self, folio: Folio) {
        self.to_remove.push(folio);
        if self.to_remove.len() == BATCH {
            self.flush_removals();
        }
    }

    /// Puts everything in use on the list. To be called before a space goes to another worker, which may take it off.
    pub(crate) fn flush_insertions(&mut self) {
        if !self.to_insert.is_empty() {
            self.meter.lru_lock(|| {
                let mut list = self.lru.lock();
                self.to_insert.drain(..).for_each(|folio| list.insert(folio));
            });
        }
    }

    /// Takes what nobody uses any more off the list. To be called when a space is gone.
    pub(crate) fn flush_removals(&mut self) {
        if self.to_remove.is_empty() {
            return;
        }
        let (lru, folios, to_insert, to_remove) = (self.lru, &mut self.folios, &mut self.to_insert, &mut self.to_remove);
        let surplus_from = 2 * self.nr_folios_at_start;
        self.meter.lru_lock(|| {
            let mut list = lru.lock();
            for folio in to_remove.drain(..) {
                // It may never have got there.
                match to_insert.iter().position(|&waiting| waiting == folio) {
                    Some(place) => {
                        to_insert.swap_remove(place);
                    }
                    None => list.remove(folio),
                }
                folios.push(folio);
            }
            if folios.len() > surplus_from {
                list.give_spare(folios.drain(surplus_from / 2..));
            }
        });
    }
}
