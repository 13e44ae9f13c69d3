//! One test at a time, which leaves no object behind.

use crate::common::machine;
use pcpu::alloc;
use std::sync::{Mutex, MutexGuard};

/// Held by a test that looks at what all of them have.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs on one CPU of so many, alone, and checks that no object stays behind.
pub fn on_boot_cpu(nr_cpus: usize, f: impl Fn() + Sync) {
    let _alone = alone();
    machine(nr_cpus).on_boot_cpu(|| {
        let before = alloc::stats().live_objects;
        f();
        assert_eq!(alloc::stats().live_objects, before);
    });
}
