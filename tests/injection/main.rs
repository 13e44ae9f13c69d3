//! The real code, single-stepped: whatever can happen between two instructions of an operation (an interrupt or NMI that uses the same
//! things, a move to another CPU, another CPU's or task's operations) happens between every two.
//!
//! `cargo test --test injection -- --nocapture` shows how many schedules were tried.

//! Not in robust mode, in which every operation takes the lock and looks at every CPU's copy: other code, and far too much to step.

#![allow(missing_docs, reason = "a test binary")]
#![cfg(not(feature = "robust"))]

mod allocator;
mod counters;
mod cpus;
mod explorer;
mod injections;
mod objects;
mod plain_stores;
mod pool;
mod stepper;

use explorer::{Explored, Explorer, Failure, Plan, explore};
use objects::Objects;
use std::time::Instant;

/// Tries a case by all plans and reports how many schedules there were.
fn prove(name: &str, plans: &[Plan<'_, Objects>], case: impl Fn(&Objects, &mut Explorer<'_, Objects>) + Sync) {
    let begin = Instant::now();
    match cpus::on_boot_cpu(|| explore(name, plans, &case)) {
        Ok(Explored { nr_schedules }) => {
            println!("{name}: {nr_schedules} schedules, {:.0} a second", nr_schedules as f64 / begin.elapsed().as_secs_f64());
        }
        Err(Failure(report)) => panic!("{report}"),
    }
}
