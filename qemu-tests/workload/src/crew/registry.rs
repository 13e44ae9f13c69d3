//! All live spaces, for a reader that ranks them: what Linux's out-of-memory killer does.

use crate::lifetime::Member;
use crate::memory::Slot;
use crate::strategy::Strategy;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use spin::mutex::SpinMutex;

/// What counts towards a space's rank.
const RANKED: [Member; 2] = [Member::File, Member::Anon];

/// Where a reader may find a space.
type Place<S> = SpinMutex<Option<Arc<Slot<S>>>>;

/// Places for live spaces. A reader holds a place's lock while it looks, and a space is not torn down before it left its place.
#[derive(Debug)]
pub(crate) struct Registry<S> {
    places: Box<[Place<S>]>,
    vacant: SpinMutex<Vec<usize>>,
}

/// What a look at all spaces took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) spaces: u64,
    pub(crate) exact_sums: u64,
    /// The largest space's pages.
    pub(crate) most_pages: i64,
}

impl<S: Strategy> Registry<S> {
    pub(crate) fn new(nr_places: usize) -> Self {
        Registry { places: (0..nr_places).map(|_| SpinMutex::new(None)).collect(), vacant: SpinMutex::new((0..nr_places).collect()) }
    }

    /// Enters a space; `None` when all places are taken.
    pub(crate) fn enter(&self, space: &Arc<Slot<S>>) -> Option<usize> {
        let place = self.vacant.lock().pop()?;
        *self.places[place].lock() = Some(space.clone());
        Some(place)
    }

    pub(crate) fn leave(&self, place: usize) {
        *self.places[place].lock() = None;
        self.vacant.lock().push(place);
    }

    /// Finds the largest space: approximately first, then exactly among those that may be it.
    pub(crate) fn scan(&self) -> Scan {
        let mut scan = Scan::default();
        let mut least_of_largest = i64::MIN;
        self.for_each(|counters| {
            scan.spaces += 1;
            least_of_largest = least_of_largest.max(bounds(counters).0);
        });
        self.for_each(|counters| {
            if bounds(counters).1 >= least_of_largest {
                scan.exact_sums += 1;
                let sums = counters.sums();
                scan.most_pages = scan.most_pages.max(RANKED.iter().map(|member| sums[member.index()]).sum());
            }
        });
        scan
    }

    fn for_each(&self, mut look: impl FnMut(&S)) {
        for place in &self.places {
            if let Some(counters) = place.lock().as_ref().and_then(|space| space.0.as_ref()) {
                look(counters);
            }
        }
    }
}

/// Between which numbers a space's pages are.
fn bounds<S: Strategy>(counters: &S) -> (i64, i64) {
    RANKED.iter().fold((0, 0), |(least, most), &member| {
        let (read, error) = (counters.read(member), counters.max_error(member, 1) as i64);
        (least + read - error, most + read + error)
    })
}
