//! The process tree, with counters that are known to be right, wrong, or out of memory.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::thread;
use workload::lifetime::{Member, Update};
use workload::{Bomb, LiveLimitTooSmall, Strategy, Tally};

/// Runs a bomb on a thread for each CPU until this CPU's clock has been asked `steps` times.
fn explode<S: Strategy<Error: Send + std::fmt::Debug> + Send + Sync>(
    nr_cpus: usize,
    live: usize,
    steps: usize,
) -> (Tally, Result<(), S::Error>) {
    let bomb = Bomb::<S>::new(nr_cpus, live).unwrap();
    let work = |seat| {
        let mut asked = 0;
        bomb.work(seat, || {
            asked += 1;
            asked > steps
        })
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..nr_cpus).map(|seat| scope.spawn(move || work(seat))).collect();
        let mut total = Tally::default();
        let mut outcome = Ok(());
        for worker in workers {
            let (tally, result) = worker.join().unwrap();
            total += tally;
            outcome = outcome.and(result);
        }
        (total, outcome)
    })
}

/// Counters as plain words.
#[derive(Default)]
struct Plain([AtomicI64; Member::COUNT]);

impl Strategy for Plain {
    type Error = ();
    const NAME: &'static str = "plain";

    fn new() -> Result<Self, ()> {
        Ok(Self::default())
    }

    fn add(&self, update: Update) {
        self.0[update.member.index()].fetch_add(update.pages, Ordering::Relaxed);
    }

    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

#[test]
fn every_counter_ends_at_zero_on_one_and_on_several_cpus() {
    for nr_cpus in [1, 2, 3, 4] {
        let (tally, outcome) = explode::<Plain>(nr_cpus, 64 * nr_cpus, 2_000);
        assert_eq!(outcome, Ok(()));
        assert_eq!(tally.nonzero_counters, 0);
        assert!(tally.lifetimes >= 500 * nr_cpus as u64, "{nr_cpus} CPUs: {} lifetimes", tally.lifetimes);
    }
}

#[test]
fn a_lost_update_is_seen() {
    /// Loses what is added to the anonymous pages in lumps of three.
    struct Lossy(Plain);
    impl Strategy for Lossy {
        type Error = ();
        const NAME: &'static str = "lossy";

        fn new() -> Result<Self, ()> {
            Plain::new().map(Self)
        }

        fn add(&self, update: Update) {
            if update.pages != 3 {
                self.0.add(update);
            }
        }

        fn sums(&self) -> [i64; Member::COUNT] {
            self.0.sums()
        }
    }
    let (tally, _) = explode::<Lossy>(2, 64, 500);
    assert!(tally.lifetimes > 0);
    assert_eq!(tally.nonzero_counters, tally.lifetimes, "one wrong counter in each lifetime");
}

#[test]
fn the_live_limit_is_reached_and_kept() {
    const LIVE: usize = 32;
    static SPACES: AtomicUsize = AtomicUsize::new(0);
    static MOST_SPACES: AtomicUsize = AtomicUsize::new(0);
    /// Knows how many address spaces there are.
    struct Counted(Plain);
    impl Strategy for Counted {
        type Error = ();
        const NAME: &'static str = "counted";

        fn new() -> Result<Self, ()> {
            MOST_SPACES.fetch_max(SPACES.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            Plain::new().map(Self)
        }

        fn add(&self, update: Update) {
            self.0.add(update);
        }

        fn sums(&self) -> [i64; Member::COUNT] {
            self.0.sums()
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            SPACES.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let (_, outcome) = explode::<Counted>(2, LIVE, 2_000);
    assert_eq!(outcome, Ok(()));
    assert_eq!(SPACES.load(Ordering::Relaxed), 0);
    // A process in the middle of exec has two spaces; each CPU has one such process at most.
    let most = MOST_SPACES.load(Ordering::Relaxed);
    assert!((LIVE / 2..=LIVE + 2).contains(&most), "{most} spaces with a live limit of {LIVE}");
}

#[test]
fn running_out_of_memory_is_reported_and_leaves_nothing_behind() {
    const ALLOCATIONS: usize = 100;
    static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
    static SPACES: AtomicUsize = AtomicUsize::new(0);
    /// Has memory for so many spaces in all.
    struct Scarce(Plain);
    impl Strategy for Scarce {
        type Error = &'static str;
        const NAME: &'static str = "scarce";

        fn new() -> Result<Self, Self::Error> {
            if ALLOCATED.fetch_add(1, Ordering::Relaxed) >= ALLOCATIONS {
                return Err("out of memory");
            }
            SPACES.fetch_add(1, Ordering::Relaxed);
            Ok(Self(Plain::default()))
        }

        fn add(&self, update: Update) {
            self.0.add(update);
        }

        fn sums(&self) -> [i64; Member::COUNT] {
            self.0.sums()
        }
    }
    impl Drop for Scarce {
        fn drop(&mut self) {
            SPACES.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let (tally, outcome) = explode::<Scarce>(2, 64, usize::MAX - 1);
    assert_eq!(outcome, Err("out of memory"));
    assert_eq!(tally.nonzero_counters, 0);
    assert_eq!(SPACES.load(Ordering::Relaxed), 0);
}

#[test]
fn a_live_limit_below_four_for_each_cpu_is_refused() {
    assert_eq!(Bomb::<Plain>::new(8, 31).err(), Some(LiveLimitTooSmall));
    assert_eq!(Bomb::<Plain>::new(0, 32).err(), Some(LiveLimitTooSmall));
    assert!(Bomb::<Plain>::new(8, 32).is_ok());
}
