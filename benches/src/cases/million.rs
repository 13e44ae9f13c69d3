//! A million objects at once, freed in several orders: Dennis Zhou's test of Linux's allocator.

use crate::case::{Case, Measure, Operations};
use crate::clock;
use crate::turn::{Sample, Turn};
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use pcpu::AllocFlags;
use workload::linux_like::LinuxLike;

/// The only machine on which this is measured: memory.
pub const NR_POSSIBLE: usize = 2;

const NR_OBJECTS: usize = 1_000_000;

/// The orders in which objects are freed, by name.
type Order = (&'static str, fn() -> Box<dyn Iterator<Item = usize>>);

const ORDERS: [Order; 3] = [
    ("in_order", || Box::new(0..NR_OBJECTS)),
    // Every other one, then the others.
    ("alternating", || Box::new((0..NR_OBJECTS).step_by(2).chain((1..NR_OBJECTS).step_by(2)))),
    ("reverse", || Box::new((0..NR_OBJECTS).rev())),
];

/// Times the allocation of all objects, and then that of freeing them.
fn sample(
    turn: &Turn<'_>,
    order: fn() -> Box<dyn Iterator<Item = usize>>,
    allocate: impl Fn() -> usize,
    free: impl Fn(usize),
) -> Vec<Sample> {
    let mut objects = vec![0; NR_OBJECTS];
    let order: Vec<_> = order().collect();
    let before = turn.gs_add();
    let allocation = clock::time(|| objects.iter_mut().for_each(|object| *object = allocate()));
    let between = turn.gs_add();
    let freeing = clock::time(|| order.iter().for_each(|&index| free(objects[index])));
    let behind = turn.gs_add();
    let sample = |ns: f64, from: f64, to: f64| Sample { ns: ns / NR_OBJECTS as f64, gs_add_ns: f64::midpoint(from, to) };
    vec![sample(allocation, before, between), sample(freeing, between, behind)]
}

fn ours<const SIZE_BYTES: usize>(order: fn() -> Box<dyn Iterator<Item = usize>>) -> Measure {
    let allocate = || pcpu::alloc::allocate(SIZE_BYTES, 8, AllocFlags::PROCESS).expect("memory for a million objects").get();
    let free = |object| {
        // SAFETY: from `allocate`, freed once, and never written to.
        unsafe { pcpu::alloc::free_clean(NonZeroUsize::new(object).expect("an object"), SIZE_BYTES, 8) };
    };
    Box::new(move |turn| sample(turn, order, allocate, free))
}

fn theirs(linux_like: &'static LinuxLike, size_bytes: usize, order: fn() -> Box<dyn Iterator<Item = usize>>) -> Measure {
    let allocate = move || linux_like.allocate(size_bytes, 8).expect("memory for a million objects").expose_provenance().get();
    let free = |object| {
        let object = NonNull::with_exposed_provenance(NonZeroUsize::new(object).expect("an object"));
        // SAFETY: from `allocate`, and freed once.
        unsafe { linux_like.free(object) };
    };
    Box::new(move |turn| sample(turn, order, allocate, free))
}

pub fn cases(linux_like: &'static LinuxLike) -> Vec<Case> {
    type Ours = fn(fn() -> Box<dyn Iterator<Item = usize>>) -> Measure;
    let sizes: [(usize, Ours); 5] = [(8, ours::<8>), (32, ours::<32>), (64, ours::<64>), (256, ours::<256>), (1024, ours::<1024>)];
    let mut cases = Vec::new();
    for (size_bytes, ours) in sizes {
        for (order_name, order) in ORDERS {
            let rows = ["alloc", "free"].map(|phase| format!("million/{size_bytes}/{order_name}/{phase}"));
            cases.push(Case {
                rows: rows.into(),
                operations: Operations::Fixed,
                measure: ours(order),
                baseline: Some(theirs(linux_like, size_bytes, order)),
                ..Case::new("", 1, |_| Vec::new())
            });
        }
    }
    cases
}
