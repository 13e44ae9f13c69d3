//! A simulated address space: its resident-set counters and its page table.

use crate::crew::{Registry, Tally};
use crate::lifetime::Update;
use crate::memory::{PageTable, Pools, Slot};
use crate::strategy::Strategy;
use alloc::boxed::Box;
use alloc::sync::Arc;
use pcpu::Pinned;

/// An address space. Whoever has it is the only one that updates its counters; readers may be many.
#[derive(Debug)]
pub(crate) struct AddressSpace<S> {
    counters: Arc<Slot<S>>,
    pages: Box<PageTable>,
    /// Where readers find it.
    place: Option<usize>,
}

impl<S: Strategy> AddressSpace<S> {
    /// An empty address space.
    pub(crate) fn new(pools: &mut Pools<'_, S>, registry: Option<&Registry<S>>) -> Result<Self, S::Error> {
        let mut slot = pools.take_slot();
        match pools.meter.counters(S::new) {
            Ok(counters) => Arc::get_mut(&mut slot).expect("what is in the pool is nobody's").0 = Some(counters),
            Err(error) => {
                pools.give_slot(slot);
                return Err(error);
            }
        }
        let place = registry.and_then(|registry| registry.enter(&slot));
        Ok(Self { counters: slot, pages: pools.take_table(), place })
    }

    pub(crate) fn counters(&self) -> &S {
        self.counters.0.as_ref().expect("a space has counters")
    }

    /// Applies `updates` in order, of whoever this space is not the current one.
    pub(crate) fn apply(&mut self, pin: Pinned<'_>, pools: &mut Pools<'_, S>, updates: &[Update]) {
        let counters = self.counters.0.as_ref().expect("a space has counters");
        pools.meter.counters(|| {
            for &update in updates {
                // SAFETY: all updates are made by `&mut self`, which is there once.
                unsafe { counters.add(pin, update) };
            }
        });
        self.pages.change(updates, pools);
    }

    /// Applies `updates` in order, of the task that runs in it.
    pub(crate) fn run(&mut self, pin: Pinned<'_>, pools: &mut Pools<'_, S>, task: &mut S::Task, updates: &[Update]) {
        let counters = self.counters.0.as_ref().expect("a space has counters");
        pools.meter.counters(|| {
            for &update in updates {
                // SAFETY: all updates are made by `&mut self`, which is there once.
                unsafe { counters.add_current(pin, task, update) };
            }
            counters.settle();
        });
        self.pages.change(updates, pools);
    }

    /// Applies `updates` and frees the space. Counts how many of its counters did not end at exactly 0; kernels make the same check.
    pub(crate) fn tear_down(
        mut self,
        pin: Pinned<'_>,
        pools: &mut Pools<'_, S>,
        registry: Option<&Registry<S>>,
        updates: &[Update],
        tally: &mut Tally,
    ) {
        self.apply(pin, pools, updates);
        if let (Some(registry), Some(place)) = (registry, self.place) {
            registry.leave(place);
        }
        let counters = Arc::get_mut(&mut self.counters).expect("readers look at a space only where they found it").0.take();
        tally.nonzero_counters += pools.meter.counters(move || nonzero(&counters.expect("a space has counters")));
        pools.flush_removals();
        pools.give_slot(self.counters);
        pools.give_table(self.pages);
    }
}

/// How many counters are not at 0.
pub(crate) fn nonzero<S: Strategy>(counters: &S) -> u64 {
    counters.sums().iter().filter(|&&sum| sum != 0).count() as u64
}
