extern crate std;

use super::chunk::{BLOCK, Chunk, GRANULE_BYTES};
use super::hints::{Hints, Run};
use super::{LinuxLike, MIN_UNIT_BYTES};
use alloc::vec::Vec;
use core::ptr::NonNull;
use std::collections::BTreeMap;

const NR_CPUS: usize = 3;

/// The free runs of a part of the bitmap, from its start, cut at its borders.
fn free_runs(chunk: &Chunk, first: usize, len: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut start = None;
    for position in 0..=len {
        let is_free = position < len && !chunk.in_use.get(first + position);
        match (start, is_free) {
            (None, true) => start = Some(position),
            (Some(from), false) => {
                runs.push(Run::between(from, position));
                start = None;
            }
            _ => {}
        }
    }
    runs
}

#[track_caller]
fn check_hints(hints: &Hints, runs: &[Run], runs_in_blocks: &[Run]) {
    let is_free = |hint: Run| hint.len == 0 || runs.iter().any(|run| run.start <= hint.start && hint.end() <= run.end());
    assert!(is_free(hints.contig) && is_free(hints.scan), "hints are free: {hints:?} of {runs:?}");
    let longest = runs_in_blocks.iter().map(|run| run.len).max().unwrap_or(0);
    assert!(hints.contig.len >= longest, "no run in a block is longer than the longest: {hints:?}, {longest}");
    assert!(runs.first().is_none_or(|first| first.start >= hints.first_free), "nothing is free before `first_free`: {hints:?}");
    if hints.scan.len > 0 {
        assert!(hints.scan.end() <= hints.contig.start, "scan lies before contig: {hints:?}");
        let longer = runs_in_blocks.iter().find(|run| run.start < hints.scan.start && run.len > hints.scan.len);
        assert_eq!(longer, None, "no run before scan is longer: {hints:?}");
    }
}

fn check_chunk(chunk: &Chunk) {
    let runs = free_runs(chunk, 0, chunk.len);
    assert_eq!(chunk.nr_free, runs.iter().map(|run| run.len).sum());
    let mut runs_in_blocks = Vec::new();
    for (index, block) in chunk.blocks.iter().enumerate() {
        let runs = free_runs(chunk, index * BLOCK, BLOCK);
        check_hints(block, &runs, &runs);
        let left = runs.first().filter(|run| run.start == 0).map_or(0, |run| run.len);
        let right = runs.last().filter(|run| run.end() == BLOCK).map_or(0, |run| run.len);
        assert_eq!((block.left_free, block.right_free), (left, right), "the borders are exact");
        runs_in_blocks.extend(runs.iter().map(|run| Run { start: run.start + index * BLOCK, ..*run }));
    }
    check_hints(&chunk.hints, &runs, &runs_in_blocks);
}

fn check(allocator: &LinuxLike) {
    let index = allocator.index.lock();
    let listed = index.listed();
    assert_eq!(listed.len(), index.nr_chunks(), "each chunk is on one list");
    assert!(listed.iter().filter(|(_, chunk)| chunk.is_empty()).count() <= 1, "one empty chunk is kept");
    listed.iter().for_each(|(_, chunk)| check_chunk(chunk));
}

/// Live objects by address, each with its size and what was written to it.
#[derive(Default)]
struct Shadow(BTreeMap<usize, (NonNull<u8>, usize, u8)>);

impl Shadow {
    fn allocate(&mut self, allocator: &LinuxLike, size_bytes: usize, align_bytes: usize) -> NonNull<u8> {
        let object = allocator.allocate(size_bytes, align_bytes).unwrap();
        let address = object.addr().get();
        assert!(address.is_multiple_of(align_bytes), "{address:#x} is not aligned to {align_bytes}");
        let mark = (self.0.len() % 255) as u8 + 1;
        for cpu in 0..NR_CPUS {
            let copy = allocator.copy_on(object, cpu);
            // SAFETY: the copy is this test's.
            let bytes = unsafe { core::slice::from_raw_parts_mut(copy.as_ptr(), size_bytes) };
            assert!(bytes.iter().all(|&byte| byte == 0), "an object is zero on every CPU");
            bytes.fill(mark);
        }
        assert!(self.0.range(..address).next_back().is_none_or(|(before, (_, size, _))| before + size <= address), "no overlap");
        assert!(self.0.range(address..).next().is_none_or(|(behind, _)| address + size_bytes <= *behind), "no overlap");
        self.0.insert(address, (object, size_bytes, mark));
        object
    }

    fn free(&mut self, allocator: &LinuxLike, object: NonNull<u8>) {
        let (object, size_bytes, mark) = self.0.remove(&object.addr().get()).unwrap();
        for cpu in 0..NR_CPUS {
            let copy = allocator.copy_on(object, cpu);
            // SAFETY: the copy is this test's.
            let bytes = unsafe { core::slice::from_raw_parts(copy.as_ptr(), size_bytes) };
            assert!(bytes.iter().all(|&byte| byte == mark), "nobody else wrote to the object");
        }
        // SAFETY: allocated above, and forgotten now.
        unsafe { allocator.free(object) };
    }

    fn nth(&self, nr: usize) -> NonNull<u8> {
        self.0.values().nth(nr % self.0.len()).unwrap().0
    }
}

/// Pseudo-random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % limit as u64) as usize
    }
}

/// Allocates and frees at random, with a tendency that changes, and walks over everything all the time.
fn random_run(seed: u64, nr_operations: usize, largest_bytes: usize) {
    let allocator = LinuxLike::new(NR_CPUS, MIN_UNIT_BYTES);
    let mut shadow = Shadow::default();
    let mut random = Random(seed);
    for operation in 0..nr_operations {
        let wants_more = if operation / 300 % 2 == 0 { 70 } else { 35 };
        if shadow.0.is_empty() || random.below(100) < wants_more {
            let size_limit = if random.below(4) == 0 { largest_bytes } else { largest_bytes.min(64) };
            let size_bytes = 1 + random.below(size_limit);
            let align_limit = if random.below(8) == 0 { 13 } else { 5 };
            let align_bytes = 1 << random.below(align_limit);
            shadow.allocate(&allocator, size_bytes, align_bytes);
        } else {
            shadow.free(&allocator, shadow.nth(random.below(shadow.0.len())));
        }
        if operation % 3 == 0 {
            check(&allocator);
        }
    }
    while !shadow.0.is_empty() {
        shadow.free(&allocator, shadow.nth(random.below(shadow.0.len())));
        if shadow.0.len() % 3 == 0 {
            check(&allocator);
        }
    }
    assert_eq!(allocator.nr_chunks(), 1);
}

#[test]
fn objects_are_apart_aligned_and_zero_and_hints_hold() {
    random_run(1, 1500, 64);
    random_run(2, 1500, 2000);
    random_run(3, 600, MIN_UNIT_BYTES);
}

#[test]
fn a_full_tail_is_not_searched_past_the_bitmap() {
    let allocator = LinuxLike::new(NR_CPUS, MIN_UNIT_BYTES);
    let mut shadow = Shadow::default();
    // All but the last three granules of a chunk.
    shadow.allocate(&allocator, MIN_UNIT_BYTES - 4096, 4);
    let first = shadow.allocate(&allocator, 4096 - 3 * GRANULE_BYTES, 4);
    check(&allocator);
    // Too long for what is left.
    let longer = shadow.allocate(&allocator, 4 * GRANULE_BYTES, 4);
    assert_eq!(allocator.nr_chunks(), 2);
    let tail = shadow.allocate(&allocator, 3 * GRANULE_BYTES, 4);
    assert_eq!(tail.addr().get() - first.addr().get(), 4096 - 3 * GRANULE_BYTES, "the tail itself is found");
    check(&allocator);
    // Full to the last granule now; then with a tail in which nothing can be aligned.
    let next = shadow.allocate(&allocator, 1, 1);
    shadow.free(&allocator, tail);
    let aligned = shadow.allocate(&allocator, 2 * GRANULE_BYTES, 4096);
    assert_eq!(allocator.nr_chunks(), 2);
    for object in [longer, next, aligned] {
        shadow.free(&allocator, object);
        check(&allocator);
    }
}

#[test]
fn a_search_that_begins_too_near_to_the_end_finds_nothing() {
    let mut chunk = Chunk::new(1, MIN_UNIT_BYTES).unwrap();
    assert_eq!(chunk.take(chunk.len - 3, 4, 1), None);
    assert_eq!(chunk.take(chunk.len - 3, 1, 1024), None);
    assert_eq!(chunk.take(chunk.len - 3, 3, 1), Some(chunk.len - 3));
    check_chunk(&chunk);
}

#[test]
fn a_hole_across_blocks_is_found() {
    let allocator = LinuxLike::new(NR_CPUS, MIN_UNIT_BYTES);
    let mut shadow = Shadow::default();
    let objects: Vec<_> = (0..MIN_UNIT_BYTES / 512).map(|_| shadow.allocate(&allocator, 512, 4)).collect();
    // The last object of a block and all of the next block: only when a block gets empty, borders are looked at.
    (7..16).for_each(|nr| shadow.free(&allocator, objects[nr]));
    check(&allocator);
    assert_eq!(shadow.allocate(&allocator, 9 * 512, 4), objects[7]);
    assert_eq!(allocator.nr_chunks(), 1);
    check(&allocator);
}

#[test]
fn the_first_fit_is_taken_and_what_was_freed_is_found_again() {
    let allocator = LinuxLike::new(NR_CPUS, MIN_UNIT_BYTES);
    let mut shadow = Shadow::default();
    let objects: Vec<_> = (0..100).map(|_| shadow.allocate(&allocator, 16, 8)).collect();
    for &object in [&objects[80], &objects[20], &objects[50]] {
        shadow.free(&allocator, object);
    }
    for &object in [&objects[20], &objects[50], &objects[80]] {
        assert_eq!(shadow.allocate(&allocator, 16, 8), object);
    }
    check(&allocator);
}

#[test]
fn empty_chunks_are_given_back_but_for_one() {
    let allocator = LinuxLike::new(NR_CPUS, MIN_UNIT_BYTES);
    let mut shadow = Shadow::default();
    let objects: Vec<_> = (0..10).map(|_| shadow.allocate(&allocator, MIN_UNIT_BYTES, 4)).collect();
    assert_eq!(allocator.nr_chunks(), 10);
    for (nr, &object) in objects.iter().enumerate() {
        shadow.free(&allocator, object);
        assert_eq!(allocator.nr_chunks(), (10 - nr).max(1));
    }
    check(&allocator);
}

#[test]
fn absurd_requests_are_refused() {
    let allocator = LinuxLike::new(NR_CPUS, 1);
    for (size_bytes, align_bytes) in [(0, 4), (MIN_UNIT_BYTES + 1, 4), (usize::MAX, 4), (4, 0), (4, 3), (4, 8192), (4, usize::MAX)] {
        assert_eq!(allocator.allocate(size_bytes, align_bytes), None, "{size_bytes} B aligned to {align_bytes}");
    }
    assert_eq!(allocator.nr_chunks(), 0);
}

#[test]
fn threads_share_an_allocator() {
    let allocator = LinuxLike::new(NR_CPUS, MIN_UNIT_BYTES);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let allocator = &allocator;
            scope.spawn(move || {
                let mut shadow = Shadow::default();
                let mut random = Random(thread);
                for _ in 0..3000 {
                    if shadow.0.len() < 100 || random.below(2) == 0 {
                        shadow.allocate(allocator, 1 + random.below(300), 8);
                    } else {
                        shadow.free(allocator, shadow.nth(random.below(100)));
                    }
                }
                while !shadow.0.is_empty() {
                    shadow.free(allocator, shadow.nth(0));
                }
            });
        }
    });
    check(&allocator);
    assert_eq!(allocator.nr_chunks(), 1);
}
