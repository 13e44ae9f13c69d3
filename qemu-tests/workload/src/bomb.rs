//! The fork bomb: a binary tree of processes that grows up to a live limit, on every CPU at once.
//!
//! * Each CPU works through a queue of its own, which no other CPU touches: what is measured is the counters, not the queues. One
//!   child in [`MOVE_EVERY`] starts on another CPU and gets there through that CPU's mailbox, so that spaces are touched by several CPUs.
//! * Nothing here allocates after [`Bomb::new`] but the counters of the address spaces, and the queue that each worker makes at its start.
//! * Queue and mailbox of a CPU together hold its share of the live limit at most. A process that has no room for a child exits without.
//! * When time is up, no more forks: what is alive execs and exits, so that every counter can be seen at 0.

use crate::process::{Forked, Program, Tally};
use crate::strategy::Strategy;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::hint;
use core::sync::atomic::{AtomicUsize, Ordering};
use spin::Mutex;

/// The least live limit for one CPU: room for a parent, two children and a mailbox.
pub const MIN_LIVE_PER_CPU: usize = 4;

/// How many forks of a CPU go by until a child starts on another one.
const MOVE_EVERY: usize = 8;

/// Children of one process.
const CHILDREN: usize = 2;

/// The live limit is less than [`MIN_LIVE_PER_CPU`] for each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveLimitTooSmall;

enum Process<S> {
    Forked(Forked<S>),
    Program(Program<S>),
}

/// Children on their way to a CPU. Aligned to two cache lines, which the CPU prefetches as a pair.
#[derive(Debug)]
#[repr(align(128))]
struct Mailbox<S> {
    /// The queue's length, so that a look into an empty mailbox costs no lock.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Forked<S>>>,
}

/// One run of the fork bomb. Every CPU calls [`work`](Self::work) once, with a seat of its own.
#[derive(Debug)]
pub struct Bomb<S> {
    mailboxes: Box<[Mailbox<S>]>,
    mailbox_capacity: usize,
    queue_capacity: usize,
    /// Workers that may still put a child into a mailbox.
    senders: AtomicUsize,
}

impl<S: Strategy> Bomb<S> {
    /// A bomb for `nr_cpus` workers, with at most `live` processes alive at any time.
    pub fn new(nr_cpus: usize, live: usize) -> Result<Self, LiveLimitTooSmall> {
        let share = live.checked_div(nr_cpus).unwrap_or(0);
        if share < MIN_LIVE_PER_CPU {
            return Err(LiveLimitTooSmall);
        }
        let mailbox_capacity = share / 4;
        let mailbox = |_| Mailbox { waiting: AtomicUsize::new(0), queue: Mutex::new(VecDeque::with_capacity(mailbox_capacity)) };
        Ok(Self {
            mailboxes: (0..nr_cpus).map(mailbox).collect(),
            mailbox_capacity,
            queue_capacity: share - mailbox_capacity,
            senders: AtomicUsize::new(nr_cpus),
        })
    }

    /// Works as CPU number `seat` until `time_is_up`, then until nothing is left alive in this seat and nothing can arrive any more.
    ///
    /// The tally comes with the first error of the strategy, after which this worker forks no more.
    ///
    /// # Panics
    /// When `seat` is not below the number of CPUs.
    pub fn work(&self, seat: usize, mut time_is_up: impl FnMut() -> bool) -> (Tally, Result<(), S::Error>) {
        let mut worker = Worker {
            bomb: self,
            seat,
            queue: VecDeque::with_capacity(self.queue_capacity),
            nr_forks: 0,
            tally: Tally::default(),
            outcome: Ok(()),
        };
        while worker.outcome.is_ok() && !time_is_up() {
            worker.receive();
            worker.step();
        }
        self.senders.fetch_sub(1, Ordering::Release);
        loop {
            // In this order: once there is no sender, what this receives is the last.
            let is_last = self.senders.load(Ordering::Acquire) == 0;
            worker.receive();
            if worker.queue.is_empty() && is_last {
                return (worker.tally, worker.outcome);
            }
            worker.finish_queue();
            hint::spin_loop();
        }
    }
}

struct Worker<'a, S: Strategy> {
    bomb: &'a Bomb<S>,
    seat: usize,
    queue: VecDeque<Process<S>>,
    nr_forks: usize,
    tally: Tally,
    outcome: Result<(), S::Error>,
}

impl<S: Strategy> Worker<'_, S> {
    /// Runs the process at the head of the queue: to the end of its program, or, after that, through its forks and its exit.
    fn step(&mut self) {
        match self.queue.pop_front() {
            None => self.fork(),
            Some(Process::Forked(child)) => self.exec(child),
            Some(Process::Program(parent)) => {
                for _ in 0..CHILDREN {
                    if self.queue.len() + 1 < self.bomb.queue_capacity {
                        self.fork();
                    }
                }
                parent.exit(&mut self.tally);
            }
        }
    }

    /// Runs everything in the queue to its end, without forks.
    fn finish_queue(&mut self) {
        while let Some(process) = self.queue.pop_front() {
            match process {
                Process::Forked(child) => self.exec(child),
                Process::Program(program) => program.exit(&mut self.tally),
            }
        }
    }

    fn fork(&mut self) {
        match Forked::new() {
            Ok(child) => self.start(child),
            Err(error) => self.fail(error),
        }
    }

    fn exec(&mut self, child: Forked<S>) {
        match child.exec(&mut self.tally) {
            Ok(program) => self.queue.push_back(Process::Program(program)),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: S::Error) {
        self.outcome = self.outcome.and(Err(error));
    }

    /// Queues a new child: here, or, now and then, on another CPU that has room.
    fn start(&mut self, child: Forked<S>) {
        self.nr_forks += 1;
        let kept = if self.nr_forks.is_multiple_of(MOVE_EVERY) { self.send(child) } else { Some(child) };
        self.queue.extend(kept.map(Process::Forked));
    }

    /// Puts `child` into the next mailbox in turn, or gives it back when that is full, in use, or this CPU is the only one.
    fn send(&self, child: Forked<S>) -> Option<Forked<S>> {
        let nr_cpus = self.bomb.mailboxes.len();
        if nr_cpus == 1 {
            return Some(child);
        }
        let hop = 1 + (self.nr_forks / MOVE_EVERY) % (nr_cpus - 1);
        let mailbox = &self.bomb.mailboxes[(self.seat + hop) % nr_cpus];
        match mailbox.queue.try_lock() {
            Some(mut queue) if queue.len() < self.bomb.mailbox_capacity => {
                queue.push_back(child);
                mailbox.waiting.store(queue.len(), Ordering::Relaxed);
                None
            }
            _ => Some(child),
        }
    }

    /// Takes what has arrived, as far as there is room.
    fn receive(&mut self) {
        let mailbox = &self.bomb.mailboxes[self.seat];
        let room = self.bomb.queue_capacity - self.queue.len();
        if room == 0 || mailbox.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut arrived = mailbox.queue.lock();
        let taken = room.min(arrived.len());
        self.queue.extend(arrived.drain(..taken).map(Process::Forked));
        mailbox.waiting.store(arrived.len(), Ordering::Relaxed);
    }
}
