//! Simulated address spaces, and a fork bomb that creates and destroys them on every CPU.
//!
//! An address space is its four resident-set counters and nothing else: what fork, exec and exit do to them is replayed from a
//! trace of a real kernel ([`lifetime`]). How the counters are kept is a [`Strategy`], so that two ways can be measured on the same work.
//!
//! Needs a heap for its queues, which are allocated once before the work starts.

#![no_std]

extern crate alloc;

mod bomb;
pub mod lifetime;
pub mod linux_like;
mod process;
mod space;
mod strategy;

pub use bomb::{Bomb, LiveLimitTooSmall, MIN_LIVE_PER_CPU};
pub use process::{Forked, Program, Tally};
pub use space::AddressSpace;
pub use strategy::{Each, Grouped, Strategy};
