//! An object is allocated and freed again at once.

use crate::case::Case;
use core::hint::black_box;
use pcpu::{AllocFlags, CounterSet, LazyCounterSet};
use workload::linux_like::LinuxLike;

fn ours<const SIZE_BYTES: usize>() {
    let object = pcpu::alloc::allocate(SIZE_BYTES, 8, AllocFlags::PROCESS).expect("memory for an object");
    // SAFETY: allocated above with that layout, and never written to.
    unsafe { pcpu::alloc::free_clean(black_box(object), SIZE_BYTES, 8) };
}

/// As a caller elsewhere would: neither inlined nor specialised.
fn theirs(linux_like: &LinuxLike, size_bytes: usize, align_bytes: usize) {
    let object = linux_like.allocate(size_bytes, align_bytes).expect("memory for an object");
    // SAFETY: allocated above.
    unsafe { linux_like.free(black_box(object)) };
}

pub fn cases(linux_like: &'static LinuxLike) -> Vec<Case> {
    let sizes: [(usize, fn()); 9] = [
        (8, ours::<8>),
        (16, ours::<16>),
        (32, ours::<32>),
        (64, ours::<64>),
        (128, ours::<128>),
        (256, ours::<256>),
        (512, ours::<512>),
        (1024, ours::<1024>),
        (2048, ours::<2048>),
    ];
    let mut cases = Vec::new();
    for threads in [1, 2] {
        for (size_bytes, pair) in sizes {
            let case = Case::new(format!("alloc_free/{size_bytes}"), threads, move |turn| turn.sample(pair))
                .with_baseline(move |turn| turn.sample(|| theirs(linux_like, size_bytes, 8)));
            cases.push(Case { baseline_row: Some(format!("linux_like_alloc_free/{size_bytes}")), ..case });
        }
        // Linux's slots are 4 B each.
        let set4 = Case::new("set4_new_drop", threads, |turn| {
            turn.sample(|| {
                black_box(&CounterSet::new([0; 4]).expect("memory for counters"));
            })
        });
        cases.push(set4.with_baseline(|turn| turn.sample(|| theirs(linux_like, 16, 4))));
        cases.push(Case::new("lazy4_new_drop", threads, |turn| {
            turn.sample(|| {
                black_box(&LazyCounterSet::new([0; 4]));
            })
        }));
    }
    cases
}
