//! What only the allocator itself can bring about: its lock is taken, or its own memory was written to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::sync::Barrier;
use std::time::Duration;
use std::vec::Vec;

use super::*;
use crate::alloc::{self, AllocError, CENTRAL};
use crate::host::Machine;

fn machine() -> Machine {
    // SAFETY: the unit tests touch per-CPU data inside `run` only.
    unsafe { Machine::boot(2) }.expect("the machine boots")
}

/// Runs `f` as an NMI that interrupts the lock's holder.
fn while_locked<R>(f: impl FnOnce() -> R) -> R {
    CENTRAL.with(|_| f())
}

#[track_caller]
fn allocate(size_bytes: usize) -> NonZeroUsize {
    alloc::allocate(size_bytes, 8, AllocFlags::PROCESS).expect("there is room")
}

#[track_caller]
fn free(handle: NonZeroUsize, size_bytes: usize) {
    // SAFETY: allocated by the test, or freed twice, which is what is tested.
    unsafe { alloc::free(handle, size_bytes, 8) };
}

/// The message of the panic that `f` must end in.
fn misuse(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("misuse is found");
    panic.downcast_ref::<String>().expect("with a message").clone()
}

fn live() -> Vec<NonZeroUsize> {
    let mut handles = Vec::new();
    for_each_live(|object| handles.push(object.handle));
    handles
}

#[test]
fn an_object_that_is_freed_while_the_lock_is_taken_is_recorded_later() {
    machine().run(1, |_| {
        for size_bytes in [8, 2048, 5000] {
            let (before, live_objects) = (live(), alloc::stats().live_objects);
            let handle = allocate(size_bytes);
            while_locked(|| free(handle, size_bytes));
            assert_eq!((live(), alloc::stats().live_objects), (before, live_objects));
            assert!(waiting::is_empty());
            alloc::check();
        }
    });
}

#[test]
fn a_double_free_is_found_though_the_lock_was_taken_at_one_of_them_or_at_both() {
    machine().run(1, |_| {
        for size_bytes in [8, 2048, 5000] {
            for (is_first_locked, is_second_locked) in [(true, false), (false, true), (true, true)] {
                let handle = allocate(size_bytes);
                let free_here =
                    |is_locked: bool| if is_locked { while_locked(|| free(handle, size_bytes)) } else { free(handle, size_bytes) };
                let line = line!() - 1;
                free_here(is_first_locked);
                // Whoever comes next finds what waited.
                let message = misuse(|| {
                    free_here(is_second_locked);
                    allocate(size_bytes);
                });
                let expected = std::format!("freed twice, first at {}:{line}:", file!());
                assert!(message.contains(&expected), "{message}");
                assert!(message.contains(&std::format!("freed at {}:{line}:", file!())), "{message}");
            }
        }
        assert!(waiting::is_empty());
        alloc::check();
    });
}

#[test]
fn a_wrong_size_and_a_wrong_alignment_are_found_though_the_lock_was_taken() {
    machine().run(1, |_| {
        let handle = allocate(8);
        let next = || {
            let other = allocate(256);
            free(other, 256);
        };
        while_locked(|| free(handle, 16));
        assert!(misuse(next).contains("another size than it was allocated with, 8 B"));
        // SAFETY: none, that is the test.
        while_locked(|| unsafe { alloc::free_clean(handle, 8, 64) });
        assert!(misuse(next).contains("64 B is another alignment"));
        free(handle, 8);
        next();
    });
}

#[test]
fn statistics_and_leak_reports_leave_a_misuse_to_the_next_allocation() {
    machine().run(1, |_| {
        let handle = allocate(8);
        free(handle, 8);
        while_locked(|| free(handle, 8));
        alloc::stats();
        assert!(!live().contains(&handle));
        assert!(misuse(|| assert_ne!(allocate(512), handle)).contains("freed twice"));
    });
}

#[test]
fn an_object_with_no_place_to_wait_in_is_never_handed_out_again() {
    const NR: usize = 520;
    machine().run(1, |_| {
        let before = live();
        let handles: Vec<_> = (0..NR).map(|_| allocate(8)).collect();
        while_locked(|| handles.iter().for_each(|&handle| free(handle, 8)));
        let left: Vec<_> = live().into_iter().filter(|handle| !before.contains(handle)).collect();
        assert_eq!(left.len(), NR - 512);
        assert!(left.iter().all(|handle| handles[512..].contains(handle)), "those that were freed last");
        let again: Vec<_> = (0..2 * NR).map(|_| allocate(8)).collect();
        assert!(left.iter().all(|handle| !again.contains(handle)));
        again.into_iter().chain(left).for_each(|handle| free(handle, 8));
        assert_eq!(live(), before);
        alloc::check();
    });
}

#[test]
fn what_may_wait_for_the_lock_waits_and_what_must_not_does_not() {
    let (is_taken, is_stocked) = (Barrier::new(2), Barrier::new(2));
    machine().run(2, |cpu| {
        if cpu == CpuId::BOOT {
            free(allocate(16), 16);
            is_stocked.wait();
            is_taken.wait();
            assert_eq!(alloc::allocate(16, 8, AllocFlags::NMI), Err(AllocError::WouldWait));
            for flags in [AllocFlags::INTERRUPT, AllocFlags::PROCESS] {
                free(alloc::allocate(16, 8, flags).expect("one is in stock"), 16);
            }
        } else {
            is_stocked.wait();
            while_locked(|| {
                is_taken.wait();
                std::thread::sleep(Duration::from_millis(100));
            });
        }
    });
}

#[test]
fn nothing_of_a_former_use_is_in_a_runs_record() {
    machine().run(1, |_| {
        let before = live();
        let handles: Vec<_> = (0..8).map(|_| allocate(2048)).collect();
        while_locked(|| handles.iter().for_each(|&handle| free(handle, 2048)));
        alloc::drain_this_cpu();
        let mut runs: Vec<_> = (0..4).map(|_| allocate(4096)).collect();
        assert!(runs.iter().any(|run| handles.contains(run)), "the blocks were used again");
        let mut new: Vec<_> = live().into_iter().filter(|handle| !before.contains(handle)).collect();
        new.sort();
        runs.sort();
        assert_eq!(new, runs);
        // Of what lay there before, nothing is known any more.
        let inner = runs[0].checked_add(2048).expect("no object ends at 0");
        assert!(misuse(|| free(inner, 2048)).contains("never allocated"));
        runs.into_iter().for_each(|run| free(run, 4096));
    });
}

#[test]
fn an_object_that_is_handed_out_twice_is_named() {
    machine().run(1, |_| {
        let handle = allocate(32);
        // As if a wild write had put it into the magazine.
        alloc::free_unrecorded(handle, 32, 8);
        let line = line!() - 3;
        let message = misuse(|| assert_ne!(allocate(32), handle));
        let expected = std::format!("allocated at {}:{line}:", file!());
        assert!(message.contains(&expected) && message.contains("handed out twice"), "{message}");
        alloc::free_unrecorded(allocate(32), 32, 64);
        assert!(misuse(|| assert_ne!(allocate(64), handle)).contains("no such object"));
        free(handle, 32);
    });
}
