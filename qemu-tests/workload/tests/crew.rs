//! Workers and their processes, with counters that are known to be right, wrong, or out of memory.

use pcpu::Pinned;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::thread;
use workload::lifetime::{Member, Update};
use workload::{Crew, CrewError, Orders, Strategy, Tally, Workload};

fn orders(workload: Workload, live: usize) -> Orders {
    Orders { workload, live, folio_order: 0, shares: false }
}

/// Runs a crew on a thread for each CPU until that CPU's clock has been asked `steps` times.
fn work<S: Strategy>(nr_cpus: usize, orders: Orders, steps: usize) -> Tally {
    let crew = Crew::<S>::new(nr_cpus, orders).unwrap();
    let on_cpu = |seat| {
        let mut asked = 0;
        let time_is_up = || {
            asked += 1;
            asked > steps
        };
        // SAFETY: the strategies of these tests have nothing that is a CPU's.
        unsafe { pcpu::assume_pinned(|pin| crew.work(pin, seat, time_is_up)) }
    };
    let mut total = thread::scope(|scope| {
        let workers: Vec<_> = (0..nr_cpus).map(|seat| scope.spawn(move || on_cpu(seat))).collect();
        let mut total = Tally::default();
        workers.into_iter().for_each(|worker| total += worker.join().unwrap());
        total
    });
    let (nonzero_counters, nr_folios) = crew.finish();
    assert_eq!(nr_folios, 0, "folios on the list that no space has");
    total.nonzero_counters += nonzero_counters;
    total
}

/// Counters as plain words, of which another strategy is made by changing what `new` or `add` does.
#[derive(Default)]
struct Plain([AtomicI64; Member::COUNT]);

impl Plain {
    fn add(&self, update: Update) {
        self.0[update.member.index()].fetch_add(update.pages, Ordering::Relaxed);
    }
}

macro_rules! strategy {
    ($name:ident, $error:ty, $new:expr, |$counters:ident, $update:ident| $add:expr) => {
        impl Strategy for $name {
            type Error = $error;
            type Task = ();
            const NAME: &'static str = stringify!($name);

            fn new() -> Result<Self, $error> {
                $new
            }

            unsafe fn add(&self, _: Pinned<'_>, $update: Update) {
                let $counters = self;
                $add
            }

            fn read(&self, member: Member) -> i64 {
                self.sums()[member.index()]
            }

            fn max_error(&self, _: Member, _: usize) -> u64 {
                0
            }

            fn sums(&self) -> [i64; Member::COUNT] {
                self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
            }

            fn bytes(&self) -> usize {
                size_of::<Self>()
            }

            fn live_objects() -> i64 {
                0
            }
        }
    };
}

strategy!(Plain, &'static str, Ok(Self::default()), |counters, update| counters.add(update));

#[test]
fn every_counter_of_every_workload_ends_at_zero_on_one_and_on_several_cpus() {
    for workload in Workload::ALL {
        for nr_cpus in [1, 2, 3, 4] {
            let tally = work::<Plain>(nr_cpus, orders(workload, 64 * nr_cpus), 2_000);
            assert_eq!((tally.failed_forks, tally.nonzero_counters), (0, 0), "{workload} on {nr_cpus} CPUs");
            assert!(tally.lifetimes >= 300 * (nr_cpus as u64 - 1).max(1), "{workload} on {nr_cpus} CPUs: {} lifetimes", tally.lifetimes);
        }
    }
}

#[test]
fn every_folio_order_works() {
    for folio_order in 0..=4 {
        let tally = work::<Plain>(2, Orders { folio_order, ..orders(Workload::Migrate, 64) }, 2_000);
        assert_eq!(tally.nonzero_counters, 0);
    }
}

/// Loses what is added to the anonymous pages in lumps of three.
#[derive(Default)]
struct Lossy([AtomicI64; Member::COUNT]);
strategy!(Lossy, &'static str, Ok(Self::default()), |counters, update| {
    if update.pages != 3 {
        counters.0[update.member.index()].fetch_add(update.pages, Ordering::Relaxed);
    }
});

#[test]
fn a_lost_update_is_seen() {
    let tally = work::<Lossy>(2, orders(Workload::Exec, 64), 500);
    assert!(tally.lifetimes > 0);
    assert_eq!(tally.nonzero_counters, tally.lifetimes, "one wrong counter in each lifetime");
}

static SPACES: AtomicUsize = AtomicUsize::new(0);
static MOST_SPACES: AtomicUsize = AtomicUsize::new(0);

/// Knows how many address spaces there are.
struct Counted([AtomicI64; Member::COUNT]);
strategy!(
    Counted,
    &'static str,
    {
        MOST_SPACES.fetch_max(SPACES.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(Self(Plain::default().0))
    },
    |counters, update| {
        counters.0[update.member.index()].fetch_add(update.pages, Ordering::Relaxed);
    }
);

impl Drop for Counted {
    fn drop(&mut self) {
        SPACES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_bomb_reaches_its_live_limit_and_keeps_it() {
    const LIVE: usize = 32;
    let tally = work::<Counted>(2, orders(Workload::Bomb, LIVE), 2_000);
    assert_eq!(tally.failed_forks, 0);
    assert_eq!(SPACES.load(Ordering::Relaxed), 0);
    // A process in the middle of exec has two spaces; each CPU has one such process at most.
    let most = MOST_SPACES.load(Ordering::Relaxed);
    assert!((LIVE / 2..=LIVE + 2).contains(&most), "{most} spaces with a live limit of {LIVE}");
}

static SCARCE_SPACES: AtomicUsize = AtomicUsize::new(0);
/// Spaces for which there is memory.
const ENOUGH_FOR: usize = 40;

/// Has memory for so many spaces at a time.
struct Scarce([AtomicI64; Member::COUNT]);
strategy!(
    Scarce,
    &'static str,
    {
        if SCARCE_SPACES.fetch_add(1, Ordering::Relaxed) >= ENOUGH_FOR {
            SCARCE_SPACES.fetch_sub(1, Ordering::Relaxed);
            return Err("out of memory");
        }
        Ok(Self(Plain::default().0))
    },
    |counters, update| {
        counters.0[update.member.index()].fetch_add(update.pages, Ordering::Relaxed);
    }
);

impl Drop for Scarce {
    fn drop(&mut self) {
        SCARCE_SPACES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_bomb_that_runs_out_of_memory_goes_on_and_leaves_nothing_behind() {
    let tally = work::<Scarce>(2, orders(Workload::Bomb, 256), 5_000);
    assert!(tally.failed_forks > 2, "{} forks failed", tally.failed_forks);
    assert!(tally.lifetimes > tally.failed_forks, "{} lifetimes, {} failures", tally.lifetimes, tally.failed_forks);
    assert_eq!(tally.nonzero_counters, 0);
    assert_eq!(SCARCE_SPACES.load(Ordering::Relaxed), 0);
}

#[test]
fn a_reader_looks_at_live_spaces() {
    let tally = work::<Plain>(2, orders(Workload::OomScan, 64), 2_000);
    assert!(tally.scanned > 0);
    assert!(tally.exact_sums > 0 && tally.exact_sums <= tally.scanned);
}

#[test]
fn pools_serve_what_workers_need() {
    for workload in [Workload::Fork, Workload::Exec, Workload::Shell, Workload::Bomb] {
        let tally = work::<Plain>(2, orders(workload, 128), 5_000);
        // A process that ends on another CPU takes its parts there.
        assert!(tally.pool_misses * 20 < tally.lifetimes, "{workload}: {} misses, {} lifetimes", tally.pool_misses, tally.lifetimes);
    }
}

#[test]
fn a_live_limit_below_four_for_each_cpu_is_refused() {
    assert_eq!(Crew::<Plain>::new(8, orders(Workload::Exec, 31)).err(), Some(CrewError::LiveLimitTooSmall));
    assert_eq!(Crew::<Plain>::new(0, orders(Workload::Exec, 32)).err(), Some(CrewError::LiveLimitTooSmall));
    assert!(Crew::<Plain>::new(8, orders(Workload::Exec, 32)).is_ok());
}
