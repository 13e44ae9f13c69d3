//! Robust mode: misuse is found and named. Run with `--features robust`.
#![cfg(feature = "robust")]

mod common;

use common::machine;
use core::num::NonZeroUsize;
use pcpu::alloc::{self, AllocFlags};
use pcpu::{Counter, CounterSet, CpuId, PerCpuBox};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

const NR_CPUS: usize = 3;

fn on_boot_cpu(f: impl Fn() + Sync) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    machine(NR_CPUS).run(1, |_| f());
}

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
            let handle = allocate(size);
            let line = line!() + 2;
            // SAFETY: allocated above.
            unsafe { alloc::free(handle, size, 8) };
            // SAFETY: none, that is the test.
            let message = misuse(|| unsafe { alloc::free(handle, size, 8) });
            // A run's block is free at once, and with it its record.
            let expected =
                if size == 5000 { "never allocated".to_string() } else { format!("freed twice, first at tests/robust.rs:{line}") };
            assert!(message.contains(&expected), "{message}");
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
            assert!(message.contains("another size than it was allocated with, 64 B at tests/robust.rs"), "{message}");
        }
        // SAFETY: allocated above.
        unsafe { alloc::free(handle, 64, 8) };
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
fn the_trace_hook_sees_every_allocation_and_free() {
    static SEEN: Mutex<Vec<(bool, usize, u32)>> = Mutex::new(Vec::new());
    on_boot_cpu(|| {
        alloc::set_trace(Some(|event| {
            SEEN.lock().unwrap().push((event.kind == alloc::TraceKind::Freed, event.size_bytes, event.at.line()))
        }));
        let line = line!() + 1;
        let handle = allocate_here();
        // SAFETY: allocated above.
        unsafe { alloc::free(handle, 24, 8) };
        alloc::set_trace(None);
        allocate_here();
        assert_eq!(*SEEN.lock().unwrap(), [(false, 24, line), (true, 24, line + 2)]);
    });
}

#[track_caller]
fn allocate_here() -> NonZeroUsize {
    alloc::allocate(24, 8, AllocFlags::PROCESS).unwrap()
}
