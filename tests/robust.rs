//! Robust mode: misuse is found and named. Run with `--features robust`.
#![cfg(feature = "robust")]

mod common;

use common::machine;
use core::num::NonZeroUsize;
use pcpu::alloc::{self, AllocFlags};
use pcpu::{Counter, CounterSet, CounterVec, CpuId, EventCounter, LazyCounter, LazyCounterSet, LimitCounter, PerCpuBox};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, Mutex};

const NR_CPUS: usize = 3;

fn on_boot_cpu(f: impl Fn() + Sync) {
    machine(NR_CPUS).run(1, |_| f());
}

#[track_caller]
fn allocate(size: usize) -> NonZeroUsize {
    alloc::allocate(size, 8, AllocFlags::PROCESS).unwrap()
}

/// The message of the panic that `f` must end in.
fn misuse(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("misuse is found");
    panic.downcast_ref::<String>().expect("with a message").clone()
}

/// An object's copy on a CPU.
fn copy(handle: NonZeroUsize, cpu: u32) -> *mut u8 {
    pcpu::per_cpu! {
        static ORIGIN: u64 = 0;
    }
    let delta = (ORIGIN.ptr_on(CpuId::new(cpu).unwrap()) as usize).wrapping_sub(ORIGIN.template_address());
    core::ptr::with_exposed_provenance_mut(handle.get().wrapping_add(delta))
}

#[test]
fn a_double_free_is_named_with_the_first_place() {
    on_boot_cpu(|| {
        for size in [16, 2048, 5000] {
            let line = line!() + 1;
            let handle = allocate(size);
            // SAFETY: allocated above.
            unsafe { alloc::free(handle, size, 8) };
            // SAFETY: none, that is the test.
            let message = misuse(|| unsafe { alloc::free(handle, size, 8) });
            assert!(message.contains(&format!("allocated at tests/robust.rs:{line}:")), "{message}");
            assert!(message.contains(&format!("freed twice, first at tests/robust.rs:{}:", line + 2)), "{message}");
        }
    });
}

#[test]
fn a_double_free_is_named_after_the_whole_block_was_freed_and_used_again() {
    on_boot_cpu(|| {
        // So that no empty chunk is one too many, and given back with all that is known of it.
        alloc::reclaim();
        for (size, nr) in [(9000, 2), (512, 16)] {
            let handles: Vec<_> = (0..nr).map(|_| allocate(size)).collect();
            // SAFETY: allocated above.
            handles.iter().for_each(|&handle| unsafe { alloc::free(handle, size, 8) });
            alloc::drain_this_cpu();
            let is_free_twice = |handle| {
                // SAFETY: none, that is the test.
                let message = misuse(|| unsafe { alloc::free(handle, size, 8) });
                assert!(message.contains("freed twice, first at tests/robust.rs"), "{message}");
            };
            handles.iter().copied().for_each(is_free_twice);
            let again: Vec<_> = (1..nr).map(|_| allocate(size)).collect();
            assert!(again.iter().any(|handle| handles.contains(handle)), "the memory is used again");
            handles.iter().copied().filter(|handle| !again.contains(handle)).for_each(is_free_twice);
            // SAFETY: allocated above.
            again.into_iter().for_each(|handle| unsafe { alloc::free(handle, size, 8) });
        }
    });
}

#[test]
fn a_foreign_handle_is_named() {
    on_boot_cpu(|| {
        let handle = allocate(64);
        for foreign in [handle.get() + 8, 8, usize::MAX - 7] {
            // SAFETY: none, that is the test.
            let message = misuse(|| unsafe { alloc::free(NonZeroUsize::new(foreign).unwrap(), 64, 8) });
            assert!(message.contains("never allocated"), "{message}");
        }
        // SAFETY: allocated above.
        unsafe { alloc::free(handle, 64, 8) };
    });
}

#[test]
fn another_size_is_named() {
    on_boot_cpu(|| {
        let handle = allocate(64);
        for size in [60, 8, 128, 5000] {
            // SAFETY: none, that is the test.
            let message = misuse(|| unsafe { alloc::free(handle, size, 8) });
            assert!(message.contains("allocated at tests/robust.rs"), "{message}");
            assert!(message.contains("another size than it was allocated with, 64 B"), "{message}");
        }
        // SAFETY: allocated above.
        unsafe { alloc::free(handle, 64, 8) };
    });
}

#[test]
fn an_alignment_that_makes_it_another_class_is_named() {
    on_boot_cpu(|| {
        for (size, align, bad_align) in [(8, 8, 64), (8, 64, 8), (16, 8, 32)] {
            let handle = alloc::allocate(size, align, AllocFlags::PROCESS).unwrap();
            // SAFETY: none, that is the test.
            let message = misuse(|| unsafe { alloc::free(handle, size, bad_align) });
            assert!(message.contains(&format!("{bad_align} B is another alignment than it was allocated with")), "{message}");
            // SAFETY: allocated above.
            unsafe { alloc::free(handle, size, align) };
        }
    });
}

#[test]
fn a_write_beyond_the_end_is_named_with_the_place_of_the_allocation() {
    on_boot_cpu(|| {
        for (size, beyond) in [(24, 24), (24, 31), (40, 48), (5000, 5000), (5000, 8191)] {
            let line = line!() + 1;
            let handle = allocate_here(size);
            // SAFETY: beyond the object, but where no other one is.
            let byte = unsafe { &mut *copy(handle, 1).add(beyond) };
            *byte = 7;
            // SAFETY: allocated above.
            let message = misuse(|| unsafe { alloc::free(handle, size, 8) });
            assert!(message.contains(&format!("allocated at tests/robust.rs:{line}:")), "{message}");
            assert!(message.contains(&format!("beyond its end: CPU 1's copy, byte {beyond}")), "{message}");
            *byte = 0;
            // SAFETY: allocated above, not freed so far.
            unsafe { alloc::free(handle, size, 8) };
        }
        let line = line!() + 1;
        let object = PerCpuBox::<[u8; 40]>::zeroed().unwrap();
        // SAFETY: beyond the object, but where no other one is.
        unsafe { object.this_ptr().cast::<u8>().add(48).write(7) };
        let message = misuse(|| drop(object));
        assert!(message.contains(&format!("allocated at tests/robust.rs:{line}:")), "{message}");
        assert!(message.contains("beyond its end: CPU 0's copy, byte 48"), "{message}");
    });
}

#[test]
fn a_double_free_by_a_destructor_is_named_with_the_place_of_the_allocation() {
    on_boot_cpu(|| {
        let line = line!() + 1;
        let object = PerCpuBox::<u64>::zeroed().unwrap();
        // SAFETY: none, that is the test.
        unsafe { alloc::free(NonZeroUsize::new(object.template_address()).unwrap(), 8, 8) };
        let message = misuse(|| drop(object));
        assert!(message.contains(&format!("allocated at tests/robust.rs:{line}:")), "{message}");
        assert!(message.contains(&format!("freed twice, first at tests/robust.rs:{}:", line + 2)), "{message}");
    });
}

#[test]
fn a_write_after_free_is_named_with_cpu_and_byte() {
    on_boot_cpu(|| {
        let handle = allocate(256);
        // SAFETY: allocated above; the write after it is the test.
        unsafe {
            alloc::free(handle, 256, 8);
            *copy(handle, 2).add(100) = 1;
        }
        let message = misuse(|| {
            (0..100).for_each(|_| {
                allocate(256);
            })
        });
        assert!(
            message.contains("written to after it was freed at tests/robust.rs") && message.contains("CPU 2's copy, byte 100"),
            "{message}"
        );
        // SAFETY: puts right what was wrong.
        unsafe { *copy(handle, 2).add(100) = 0 };
    });
}

#[test]
fn a_write_after_free_beyond_the_end_is_named_too() {
    on_boot_cpu(|| {
        let handle = allocate(520);
        // SAFETY: allocated above; the write after it is the test.
        unsafe {
            alloc::free(handle, 520, 8);
            *copy(handle, 0).add(1023) = 1;
        }
        let message = misuse(|| {
            (0..100).for_each(|_| {
                allocate(520);
            })
        });
        assert!(message.contains("written to after it was freed at tests/robust.rs") && message.contains("byte 1023"), "{message}");
        // SAFETY: puts right what was wrong.
        unsafe { *copy(handle, 0).add(1023) = 0 };
    });
}

#[test]
fn a_dirty_object_that_is_freed_as_clean_is_named() {
    on_boot_cpu(|| {
        let handle = allocate(32);
        // SAFETY: allocated above.
        unsafe { *copy(handle, 1).add(31) = 7 };
        // SAFETY: none, that is the test.
        let message = misuse(|| unsafe { alloc::free_clean(handle, 32, 8) });
        assert!(message.contains("CPU 1's copy is not zero, byte 31"), "{message}");
        // SAFETY: allocated above, not freed so far.
        unsafe { alloc::free(handle, 32, 8) };
    });
}

#[test]
fn the_leak_report_names_the_place_of_the_call() {
    on_boot_cpu(|| {
        let leaks = || {
            let mut lines = Vec::new();
            alloc::for_each_live(|object| lines.push((object.size_bytes, object.allocated_at.map(|site| (site.file(), site.line())))));
            lines
        };
        let before = leaks();
        let line = line!() + 1;
        let word = PerCpuBox::<u64>::zeroed().unwrap();
        let made = PerCpuBox::new(|cpu| cpu.as_u32()).unwrap();
        let counter = Counter::new(1).unwrap();
        let set = CounterSet::new([0; 4]).unwrap();
        let run = PerCpuBox::<[u64; 1000]>::zeroed().unwrap();
        let mut new: Vec<_> = leaks().into_iter().filter(|leak| !before.contains(leak)).collect();
        new.sort_by_key(|leak| leak.1.map(|site| site.1));
        let site = |after: u32| Some((file!(), line + after));
        assert_eq!(new, [(8, site(0)), (4, site(1)), (8, site(2)), (32, site(3)), (8000, site(4))]);
        drop((word, made, counter, set, run));
        assert_eq!(leaks(), before);
    });
}

#[test]
fn a_leak_report_hinders_nobody_however_slow_it_is() {
    let both = Barrier::new(2);
    machine(NR_CPUS).run(2, |cpu| {
        if cpu == CpuId::BOOT {
            // More than are looked up at once.
            let handles: Vec<_> = (0..100).map(|_| allocate(8)).collect();
            both.wait();
            // The report has begun.
            both.wait();
            // SAFETY: allocated above.
            handles[..50].iter().for_each(|&handle| unsafe { alloc::free(handle, 8, 8) });
            (0..50).for_each(|_| {
                // SAFETY: allocated here.
                unsafe { alloc::free(allocate(8), 8, 8) };
            });
            both.wait();
            // The report has ended.
            both.wait();
            // SAFETY: allocated above.
            handles[50..].iter().for_each(|&handle| unsafe { alloc::free(handle, 8, 8) });
        } else {
            both.wait();
            let mut nr = 0;
            alloc::for_each_live(|object| {
                if nr == 0 {
                    both.wait();
                    both.wait();
                }
                nr += 1;
                // Also whoever prints.
                // SAFETY: allocated here.
                unsafe { alloc::free(allocate(object.size_bytes), object.size_bytes, 8) };
            });
            both.wait();
            assert!(nr >= 50, "{nr}");
        }
    });
}

#[test]
fn the_leak_report_has_each_object_once() {
    on_boot_cpu(|| {
        let handles: Vec<_> = (0..33).flat_map(|_| [allocate(8), allocate(2048), allocate(5000)]).collect();
        let mut nr_found = vec![0; handles.len()];
        alloc::for_each_live(|object| {
            if let Some(index) = handles.iter().position(|&handle| handle == object.handle) {
                nr_found[index] += 1;
            }
        });
        assert!(nr_found.iter().all(|&nr| nr == 1), "{nr_found:?}");
        for (index, &handle) in handles.iter().enumerate() {
            // SAFETY: allocated above.
            unsafe { alloc::free(handle, [8, 2048, 5000][index % 3], 8) };
        }
    });
}

#[test]
fn the_trace_hook_sees_every_allocation_and_free() {
    static SEEN: Mutex<Vec<(bool, usize, u32)>> = Mutex::new(Vec::new());
    on_boot_cpu(|| {
        alloc::set_trace(Some(|event| {
            SEEN.lock().unwrap().push((event.kind == alloc::TraceKind::Freed, event.size_bytes, event.at.unwrap().line()))
        }));
        let line = line!() + 1;
        let handle = allocate_here(24);
        // SAFETY: allocated above.
        unsafe { alloc::free(handle, 24, 8) };
        alloc::set_trace(None);
        allocate_here(24);
        assert_eq!(*SEEN.lock().unwrap(), [(false, 24, line), (true, 24, line + 2)]);
    });
}

#[test]
fn a_counter_that_is_dropped_with_a_value_is_reported_with_it() {
    static SEEN: Mutex<Vec<(usize, i64, Option<u32>)>> = Mutex::new(Vec::new());
    on_boot_cpu(|| {
        let seen = |f: &dyn Fn() -> u32| {
            alloc::set_trace(Some(|event| {
                if let alloc::TraceKind::ValueDropped { index, value } = event.kind {
                    assert_eq!(event.handle.is_some(), event.at.is_some());
                    SEEN.lock().unwrap().push((index, value, event.at.map(|at| at.line())));
                }
            }));
            let line = f();
            alloc::set_trace(None);
            (core::mem::take(&mut *SEEN.lock().unwrap()), line)
        };
        let (dropped, line) = seen(&|| {
            let (counter, line) = (Counter::new(5).unwrap(), line!());
            counter.add(-12);
            line
        });
        assert_eq!(dropped, [(0, -7, Some(line))]);
        let (dropped, line) = seen(&|| {
            let (set, line) = (CounterSet::new([1, 0, 0, 40]).unwrap(), line!());
            set.add_all([-1, 0, 3, 60]);
            line
        });
        assert_eq!(dropped, [(2, 3, Some(line)), (3, 100, Some(line))]);
        let (dropped, line) = seen(&|| {
            let (vec, line) = (CounterVec::new(&[0, 9]).unwrap(), line!());
            vec.sub(1, 10);
            line
        });
        assert_eq!(dropped, [(1, -1, Some(line))]);
        let (dropped, line) = seen(&|| {
            let inline = LazyCounter::new(0);
            inline.add(i64::MIN);
            let promoted = LazyCounterSet::<2>::new([0, 8]);
            let line = line!() + 1;
            promoted.promote(AllocFlags::PROCESS).unwrap();
            promoted.add(1, 1);
            line
        });
        // Locals are dropped in the reverse order.
        assert_eq!(dropped, [(1, 9, Some(line)), (0, i64::MIN, None)]);
        let (dropped, line) = seen(&|| {
            let (limited, line) = (LimitCounter::new(100).unwrap(), line!());
            limited.try_add(30).unwrap();
            line
        });
        assert_eq!(dropped, [(0, 30, Some(line))]);
        let (dropped, _) = seen(&|| {
            let (counter, lazy, events) = (Counter::new(0).unwrap(), LazyCounter::new(3), EventCounter::new().unwrap());
            counter.add(31);
            counter.add(-31);
            lazy.sub(3);
            events.inc();
            0
        });
        assert_eq!(dropped, []);
    });
}

#[track_caller]
fn allocate_here(size: usize) -> NonZeroUsize {
    alloc::allocate(size, 8, AllocFlags::PROCESS).unwrap()
}
