//! What it takes that a cache line goes from one core to another.
//!
//! Two threads write a word in turns, each as soon as it reads that it is its turn. In a round trip each of them reads the line once after
//! the other one has written it, and then writes what both hold: four transfers, as the plugin in `qemu-tests/conflict-plugin` counts them.

use crate::case::Case;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Two lines: processors prefetch lines in pairs.
#[repr(align(128))]
struct Apart(AtomicUsize);

const TRANSFERS_IN_ROUND_TRIP: f64 = 4.0;

pub fn case() -> Case {
    let word: &Apart = Box::leak(Box::new(Apart(AtomicUsize::new(0))));
    Case::new("line_transfer", 2, |turn| {
        let mut next = word.0.load(Ordering::Relaxed) / 2 * 2 + turn.thread;
        let mut samples = turn.sample(|| {
            while word.0.load(Ordering::Acquire) != next {
                spin_loop();
            }
            word.0.store(next + 1, Ordering::Release);
            next += 2;
        });
        samples.iter_mut().for_each(|sample| sample.ns /= TRANSFERS_IN_ROUND_TRIP);
        samples
    })
}
