//! A page table's lowest level, as far as a small program fills it.

use super::{Folio, Pools};
use crate::lifetime::{Member, Update};
use crate::strategy::Strategy;

/// More than the traced program ever maps at once.
const NR_ENTRIES: usize = 192;
/// More than the anonymous pages that it ever has at once.
const MAX_FOLIOS: usize = 16;

/// What an entry of a file's page holds; anonymous entries hold their folio.
const FILE_PAGE: u64 = 1 << 62;
const PRESENT: u64 = 1;

/// Entries of files from the bottom, anonymous ones from the top.
#[derive(Debug)]
pub(crate) struct PageTable {
    entries: [u64; NR_ENTRIES],
    nr_file: usize,
    nr_anon: usize,
    folios: [Folio; MAX_FOLIOS],
    nr_folios: usize,
}

impl PageTable {
    pub(crate) fn new() -> Self {
        PageTable { entries: [0; NR_ENTRIES], nr_file: 0, nr_anon: 0, folios: [0; MAX_FOLIOS], nr_folios: 0 }
    }

    /// A parent's, which forks look through.
    pub(crate) fn of_a_parent() -> Self {
        let mut table = Self::new();
        table.entries.fill(FILE_PAGE | PRESENT);
        table
    }

    /// What fork does besides mapping: it looks at every entry of the parent's.
    pub(crate) fn scan(&self) -> usize {
        core::hint::black_box(self).entries.iter().filter(|&&entry| entry & PRESENT != 0).count()
    }

    /// Maps or unmaps what `updates` say. Swapped and shared pages have no entry here.
    pub(crate) fn change<S: Strategy>(&mut self, updates: &[Update], pools: &mut Pools<'_, S>) {
        for update in updates {
            let nr = update.pages.unsigned_abs() as usize;
            match (update.member, update.pages > 0) {
                (Member::File, true) => {
                    self.entries[self.nr_file..self.nr_file + nr].fill(FILE_PAGE | PRESENT);
                    self.nr_file += nr;
                }
                (Member::File, false) => {
                    self.nr_file -= nr;
                    self.entries[self.nr_file..self.nr_file + nr].fill(0);
                }
                (Member::Anon, true) => self.map_anon(nr, pools),
                (Member::Anon, false) => self.unmap_anon(nr, pools),
                _ => {}
            }
        }
    }

    fn map_anon<S: Strategy>(&mut self, nr: usize, pools: &mut Pools<'_, S>) {
        for _ in 0..nr {
            // A folio of several pages is taken with its first one.
            if self.nr_anon >> pools.folio_order() >= self.nr_folios {
                self.folios[self.nr_folios] = pools.take_folio();
                self.nr_folios += 1;
            }
            self.nr_anon += 1;
            self.entries[NR_ENTRIES - self.nr_anon] = u64::from(self.folios[self.nr_folios - 1]) << 12 | PRESENT;
        }
    }

    fn unmap_anon<S: Strategy>(&mut self, nr: usize, pools: &mut Pools<'_, S>) {
        for _ in 0..nr {
            self.entries[NR_ENTRIES - self.nr_anon] = 0;
            self.nr_anon -= 1;
        }
        while self.nr_folios > self.nr_anon.div_ceil(1 << pools.folio_order()) {
            self.nr_folios -= 1;
            pools.give_folio(self.folios[self.nr_folios]);
        }
    }
}
