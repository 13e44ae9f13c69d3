//! One CPU's work: which process runs next, and what it does.

use super::process::{Forked, Process, Program};
use super::{Crew, FOLIOS_PER_SPACE, MIN_LIVE_PER_CPU, Meter, Tally};
use crate::lifetime::VFORK_RUN;
use crate::memory::{PageTable, Pools};
use crate::strategy::Strategy;
use crate::workloads::Workload;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::hint;
use core::sync::atomic::Ordering;
use pcpu::Pinned;

/// How many forks of a CPU go by until a child starts on another one.
const MOVE_EVERY: usize = 8;

/// Children of one process while a bomb grows.
const CHILDREN: usize = 2;

/// How many steps go by until a machine of one CPU looks at all spaces.
const SCAN_EVERY: usize = 256;

/// How many processes come up until the memory of one's counters is looked at.
const SAMPLE_EVERY: usize = 64;

/// What a process needs of its CPU's worker.
pub(super) struct Desk<'a, 'p, S> {
    pub(super) pin: Pinned<'p>,
    pub(super) pools: Pools<'a, S>,
    /// The page table that forks look through.
    pub(super) parent: Box<PageTable>,
}

pub(super) struct Worker<'a, 'p, S: Strategy> {
    crew: &'a Crew<S>,
    seat: usize,
    desk: Desk<'a, 'p, S>,
    queue: VecDeque<Process<S>>,
    nr_steps: usize,
    nr_forks: usize,
    nr_sends: usize,
    nr_looks: usize,
    /// No forks until nothing is alive here: a bomb that has reached its limit, or a fork that failed.
    is_collapsing: bool,
    tally: Tally,
}

impl<'a, 'p, S: Strategy> Worker<'a, 'p, S> {
    pub(super) fn new(crew: &'a Crew<S>, pin: Pinned<'p>, seat: usize) -> Self {
        let nr_spaces = crew.queue_capacity + crew.mailbox_capacity + MIN_LIVE_PER_CPU;
        let meter = Meter::new(crew.orders.shares);
        let pools = Pools::new(&crew.lru, crew.orders.folio_order, nr_spaces, nr_spaces * FOLIOS_PER_SPACE, meter);
        Worker {
            crew,
            seat,
            desk: Desk { pin, pools, parent: Box::new(PageTable::of_a_parent()) },
            queue: VecDeque::with_capacity(crew.queue_capacity),
            nr_steps: 0,
            nr_forks: 0,
            nr_sends: 0,
            nr_looks: 0,
            is_collapsing: false,
            tally: Tally::default(),
        }
    }

    pub(super) fn work(mut self, time_is_up: &mut impl FnMut() -> bool) -> Tally {
        while !time_is_up() {
            self.receive();
            self.step();
        }
        self.crew.senders.fetch_sub(1, Ordering::Release);
        loop {
            // In this order: once there is no sender, what this receives is the last.
            let is_last = self.crew.senders.load(Ordering::Acquire) == 0;
            self.receive();
            if self.queue.is_empty() && is_last {
                break;
            }
            while let Some(process) = self.queue.pop_front() {
                self.end(process);
            }
            hint::spin_loop();
        }
        self.tally.pool_misses = self.desk.pools.nr_misses;
        self.tally.counter_ticks = self.desk.pools.meter.counter_ticks;
        self.tally.lru_ticks = self.desk.pools.meter.lru_ticks;
        self.tally
    }

    fn step(&mut self) {
        self.nr_steps += 1;
        self.tally.peak_live = self.tally.peak_live.max(self.queue.len() as u64);
        if self.is_collapsing {
            match self.queue.pop_front() {
                Some(process) => return self.end(process),
                None => self.is_collapsing = false,
            }
        }
        match self.crew.orders.workload {
            Workload::Bomb => self.step_bomb(),
            Workload::Doexec => self.step_doexec(),
            Workload::OomScan => self.step_scan(),
            _ if self.queue.len() < self.crew.queue_capacity => self.fork(),
            _ => {
                let next = self.queue.pop_front();
                next.into_iter().for_each(|process| self.advance(process));
            }
        }
    }

    /// Runs the process at the head of the queue: to the end of its program, or, after that, through its forks and its exit.
    fn step_bomb(&mut self) {
        match self.queue.pop_front() {
            None => self.fork(),
            Some(Process::Program(parent)) => {
                for _ in 0..CHILDREN {
                    self.fork();
                }
                self.exit(parent);
            }
            Some(child) => self.advance(child),
        }
        if self.queue.len() + CHILDREN > self.crew.queue_capacity {
            self.is_collapsing = true;
        }
    }

    fn step_doexec(&mut self) {
        let next = match self.queue.pop_front() {
            Some(Process::Program(program)) => {
                let next = program.exec_again(self.crew, &mut self.desk, &mut self.tally);
                self.tally.lifetimes += 1;
                next
            }
            _ => self.load_and_run(),
        };
        match next {
            Ok(program) => {
                let process = Process::Program(program);
                self.sample(process.counters());
                self.queue.push_back(process);
            }
            Err(_) => self.fail(),
        }
    }

    /// The first of several CPUs only reads; one CPU alone takes turns.
    fn step_scan(&mut self) {
        let nr_cpus = self.crew.mailboxes.len();
        let is_reader = if nr_cpus > 1 { self.seat == 0 } else { self.nr_steps.is_multiple_of(SCAN_EVERY) };
        match &self.crew.registry {
            Some(registry) if is_reader => {
                let scan = registry.scan();
                self.tally.scanned += scan.spaces;
                self.tally.exact_sums += scan.exact_sums;
                hint::black_box(scan.most_pages);
            }
            _ if self.queue.len() < self.crew.queue_capacity => self.fork(),
            _ => {
                let next = self.queue.pop_front();
                next.into_iter().for_each(|process| self.advance(process));
            }
        }
    }

    /// Makes a new process, and starts it here or elsewhere.
    fn fork(&mut self) {
        let process = match self.crew.orders.workload {
            Workload::Vfork => self.vfork().map(Process::Program),
            _ => Forked::new(self.crew, &mut self.desk).map(Process::Forked),
        };
        match process {
            Ok(process) => {
                self.nr_forks += 1;
                let moves = match self.crew.orders.workload {
                    Workload::Migrate => true,
                    Workload::OomScan => false,
                    _ => self.nr_forks.is_multiple_of(MOVE_EVERY),
                };
                self.queue_or_send(process, moves);
            }
            Err(_) => self.fail(),
        }
    }

    /// A child that runs in the space of the oldest process here, until it execs.
    fn vfork(&mut self) -> Result<Program<S>, S::Error> {
        if let Some(Process::Program(parent)) = self.queue.front_mut() {
            parent.lend(&mut self.desk, VFORK_RUN);
        }
        self.load_and_run()
    }

    fn load_and_run(&mut self) -> Result<Program<S>, S::Error> {
        let mut program = Program::load(self.crew, &mut self.desk)?;
        program.run(&mut self.desk);
        Ok(program)
    }

    /// Lets a process do what comes next in its life.
    fn advance(&mut self, process: Process<S>) {
        self.sample(process.counters());
        match process {
            Process::Forked(child) if self.crew.orders.workload == Workload::Fork => {
                child.run_and_exit(self.crew, &mut self.desk, &mut self.tally);
                self.tally.lifetimes += 1;
            }
            Process::Forked(child) => match child.exec(self.crew, &mut self.desk, &mut self.tally) {
                Ok(program) => {
                    if self.crew.orders.workload == Workload::Shell {
                        self.run_command();
                    }
                    let moves = self.crew.orders.workload == Workload::Migrate;
                    self.queue_or_send(Process::Program(program), moves);
                }
                Err(_) => self.fail(),
            },
            Process::Program(program) => self.exit(program),
        }
    }

    /// What a shell does: it forks a child that execs, and waits for its exit.
    fn run_command(&mut self) {
        let child = Forked::new(self.crew, &mut self.desk);
        match child.and_then(|child| child.exec(self.crew, &mut self.desk, &mut self.tally)) {
            Ok(command) => command.exit(self.crew, &mut self.desk, &mut self.tally),
            Err(_) => self.fail(),
        }
    }

    fn exit(&mut self, program: Program<S>) {
        program.exit(self.crew, &mut self.desk, &mut self.tally);
        self.tally.lifetimes += 1;
    }

    /// Runs a process to its end. Nothing follows it.
    fn end(&mut self, process: Process<S>) {
        self.sample(process.counters());
        match process {
            Process::Forked(child) if self.crew.orders.workload == Workload::Fork => self.advance(Process::Forked(child)),
            Process::Forked(child) => match child.exec(self.crew, &mut self.desk, &mut self.tally) {
                Ok(program) => self.exit(program),
                Err(_) => self.fail(),
            },
            Process::Program(program) => self.exit(program),
        }
    }

    fn fail(&mut self) {
        self.tally.failed_forks += 1;
        self.is_collapsing = true;
    }

    fn sample(&mut self, counters: &S) {
        self.nr_looks += 1;
        if self.nr_looks.is_multiple_of(SAMPLE_EVERY) {
            self.tally.sampled_bytes += counters.bytes() as u64;
            self.tally.sampled_spaces += 1;
        }
    }

    /// Puts a process into the queue here, or, if it moves and there is room, into the mailbox of the next CPU in turn.
    fn queue_or_send(&mut self, process: Process<S>, moves: bool) {
        let nr_cpus = self.crew.mailboxes.len();
        let kept = if moves && nr_cpus > 1 {
            self.nr_sends += 1;
            let hop = 1 + self.nr_sends % (nr_cpus - 1);
            self.desk.pools.flush_insertions();
            self.crew.mailboxes[(self.seat + hop) % nr_cpus].put(process, self.crew.mailbox_capacity)
        } else {
            Some(process)
        };
        self.queue.extend(kept);
    }

    /// Takes what has arrived, as far as there is room.
    fn receive(&mut self) {
        let room = self.crew.queue_capacity - self.queue.len().min(self.crew.queue_capacity);
        self.crew.mailboxes[self.seat].empty_into(&mut self.queue, room);
    }
}
