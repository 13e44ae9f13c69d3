//! One thread allocates, the other one frees.
//!
//! Between them are two buffers: while one is filled, the other one is emptied. The hand-over of plain numbers through the same buffers is
//! measured in the same turn and subtracted.

use crate::case::{Case, Combine};
use crate::clock;
use crate::turn::{Sample, Turn};
use core::hint::black_box;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use pcpu::AllocFlags;
use workload::linux_like::LinuxLike;

const SIZE_BYTES: usize = 16;

/// Objects in a buffer: many magazines.
const LEN: usize = 1024;

type Buffers = [[AtomicUsize; LEN]; 2];

/// What this thread's part takes for each object: thread 0 produces, thread 1 consumes.
fn part(turn: &Turn<'_>, buffers: &Buffers, produce: impl Fn() -> usize, consume: impl Fn(usize)) -> f64 {
    let nr_buffers = turn.nr_operations.div_ceil(LEN);
    let mut ns = 0.0;
    for step in 0..=nr_buffers {
        turn.together();
        if turn.thread == 0 && step < nr_buffers {
            ns += clock::time(|| buffers[step % 2].iter().for_each(|cell| cell.store(produce(), Ordering::Relaxed)));
        }
        if turn.thread == 1 && step > 0 {
            ns += clock::time(|| buffers[(step - 1) % 2].iter().for_each(|cell| consume(cell.load(Ordering::Relaxed))));
        }
    }
    ns / (nr_buffers * LEN) as f64
}

fn sample(turn: &Turn<'_>, buffers: &Buffers, produce: impl Fn() -> usize, consume: impl Fn(usize)) -> Vec<Sample> {
    let gs_add_ns = turn.gs_add();
    let hand_over = part(
        turn,
        buffers,
        || black_box(1),
        |number| {
            black_box(number);
        },
    );
    vec![Sample { ns: part(turn, buffers, produce, consume) - hand_over, gs_add_ns }]
}

fn allocate() -> usize {
    pcpu::alloc::allocate(SIZE_BYTES, 8, AllocFlags::PROCESS).expect("memory for an object").get()
}

fn free(object: usize) {
    // SAFETY: from `allocate`, whose thread gave it away, and never written to.
    unsafe { pcpu::alloc::free_clean(NonZeroUsize::new(object).expect("an object"), SIZE_BYTES, 8) };
}

pub fn case(linux_like: &'static LinuxLike) -> Case {
    let buffers: &Buffers = Box::leak(Box::new([const { [const { AtomicUsize::new(0) }; LEN] }; 2]));
    let allocate_theirs = || linux_like.allocate(SIZE_BYTES, 8).expect("memory for an object").expose_provenance().get();
    let free_theirs = |object| {
        let object = NonNull::with_exposed_provenance(NonZeroUsize::new(object).expect("an object"));
        // SAFETY: from `allocate_theirs`, whose thread gave it away.
        unsafe { linux_like.free(object) };
    };
    let case = Case::new(format!("alloc_here_free_there/{SIZE_BYTES}"), 2, |turn| sample(turn, buffers, allocate, free));
    Case { combine: Combine::Parts, ..case }.with_baseline(move |turn| sample(turn, buffers, allocate_theirs, free_theirs))
}
