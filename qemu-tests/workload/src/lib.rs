//! Simulated address spaces, and CPUs that fork, exec and exit them in many ways.
//!
//! An address space is its four resident-set counters, a small page table, and anonymous pages on a list that all CPUs share. What fork, exec
//! and exit do to it is replayed from a trace of a real kernel ([`lifetime`]). How the counters are kept is a [`Strategy`], so that
//! different ways can be measured on the same work; what the processes do is a [`Workload`]. A kernel and native threads run the same
//! rounds ([`Round`]) of it.
//!
//! Needs a heap for its queues and pools, which are filled before the work starts.

#![no_std]

extern crate alloc;

pub mod clock;
mod crew;
pub mod lifetime;
mod limit;
pub mod linux_like;
mod memory;
mod round;
mod space;
mod strategy;
mod workloads;

pub use crew::{Crew, CrewError, MIN_LIVE_PER_CPU, Orders, Tally};
pub use limit::{CHUNK_LIMIT, ChunkLimit};
pub use round::{Part, Plan, Replay, Round, STRATEGIES, Stage, replay_exec, replay_of, run};
pub use strategy::{
    Atomic, EVENTS_PER_FLUSH, Each, Grouped, Lazy, LinuxEach, LinuxGrouped, LinuxLazy, SoleUser, Split, Strategy, TaskCache,
};
pub use workloads::Workload;
