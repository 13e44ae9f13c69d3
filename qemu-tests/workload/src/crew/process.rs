//! A process from fork to exit.

use super::worker::Desk;
use super::{Crew, Tally};
use crate::lifetime::{CHILD_RUN, EXEC_NEW, EXEC_TEARDOWN, EXIT_TEARDOWN, FORK_COPY, FORK_EXIT, FORK_RUN, PROGRAM_RUN};
use crate::space::AddressSpace;
use crate::strategy::Strategy;

#[derive(Debug)]
pub(super) enum Process<S: Strategy> {
    Forked(Forked<S>),
    Program(Program<S>),
}

impl<S: Strategy> Process<S> {
    pub(super) fn counters(&self) -> &S {
        match self {
            Process::Forked(Forked { space, .. }) | Process::Program(Program { space, .. }) => space.counters(),
        }
    }
}

/// A process between fork and exec: it has a copy of its parent's address space.
#[derive(Debug)]
pub(super) struct Forked<S: Strategy> {
    space: AddressSpace<S>,
    task: S::Task,
}

impl<S: Strategy> Forked<S> {
    /// Forks. The parent's counters stay as they are: fork only reads its pages.
    pub(super) fn new(crew: &Crew<S>, desk: &mut Desk<'_, '_, S>) -> Result<Self, S::Error> {
        let mut space = AddressSpace::new(&mut desk.pools, crew.registry.as_ref())?;
        desk.parent.scan();
        space.apply(desk.pin, &mut desk.pools, FORK_COPY);
        Ok(Self { space, task: S::Task::default() })
    }

    /// Runs up to exec, replaces the address space, and runs the program. When there is no memory for the new space, the process is
    /// killed: its copy is torn down all the same.
    pub(super) fn exec(mut self, crew: &Crew<S>, desk: &mut Desk<'_, '_, S>, tally: &mut Tally) -> Result<Program<S>, S::Error> {
        self.space.run(desk.pin, &mut desk.pools, &mut self.task, CHILD_RUN);
        let program = Program::load(crew, desk);
        self.space.counters().leave(&mut self.task);
        self.space.tear_down(desk.pin, &mut desk.pools, crew.registry.as_ref(), EXEC_TEARDOWN, tally);
        let mut program = program?;
        program.run(desk);
        Ok(program)
    }

    /// Runs and exits, without exec.
    pub(super) fn run_and_exit(mut self, crew: &Crew<S>, desk: &mut Desk<'_, '_, S>, tally: &mut Tally) {
        self.space.run(desk.pin, &mut desk.pools, &mut self.task, FORK_RUN);
        self.space.counters().leave(&mut self.task);
        self.space.tear_down(desk.pin, &mut desk.pools, crew.registry.as_ref(), FORK_EXIT, tally);
    }
}

/// A process after exec: it has an address space of its own.
#[derive(Debug)]
pub(super) struct Program<S: Strategy> {
    space: AddressSpace<S>,
    task: S::Task,
}

impl<S: Strategy> Program<S> {
    /// Makes the program's space; whoever execs runs in another one until then.
    pub(super) fn load(crew: &Crew<S>, desk: &mut Desk<'_, '_, S>) -> Result<Self, S::Error> {
        let mut space = AddressSpace::new(&mut desk.pools, crew.registry.as_ref())?;
        space.apply(desk.pin, &mut desk.pools, EXEC_NEW);
        Ok(Self { space, task: S::Task::default() })
    }

    pub(super) fn run(&mut self, desk: &mut Desk<'_, '_, S>) {
        self.space.run(desk.pin, &mut desk.pools, &mut self.task, PROGRAM_RUN);
    }

    pub(super) fn exit(mut self, crew: &Crew<S>, desk: &mut Desk<'_, '_, S>, tally: &mut Tally) {
        self.space.counters().leave(&mut self.task);
        self.space.tear_down(desk.pin, &mut desk.pools, crew.registry.as_ref(), EXIT_TEARDOWN, tally);
    }

    /// The program runs another one in its place. Without memory for that it exits.
    pub(super) fn exec_again(self, crew: &Crew<S>, desk: &mut Desk<'_, '_, S>, tally: &mut Tally) -> Result<Self, S::Error> {
        let next = Self::load(crew, desk);
        self.exit(crew, desk, tally);
        let mut next = next?;
        next.run(desk);
        Ok(next)
    }

    /// Applies updates of a child that runs in this space until it execs.
    pub(super) fn lend(&mut self, desk: &mut Desk<'_, '_, S>, updates: &[crate::lifetime::Update]) {
        self.space.run(desk.pin, &mut desk.pools, &mut self.task, updates);
    }
}
