//! CPUs that are threads of this process.

use core_affinity::CoreId;
use pcpu::Pinned;
use pcpu::host::Machine;
use std::sync::{Mutex, PoisonError};
use workload::Stage;

pub struct Threads {
    pub machine: Machine,
    /// A core for each thread.
    pub cores: Vec<CoreId>,
}

impl Stage for Threads {
    fn nr_cpus(&self) -> usize {
        self.cores.len()
    }

    fn is_native(&self) -> bool {
        true
    }

    fn on_one(&self, work: &mut (dyn FnMut(Pinned<'_>) + Send)) {
        // `run` wants a closure that several threads could call.
        let work = Mutex::new(work);
        self.machine.run(1, |_| {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: a thread is its CPU until it ends.
            unsafe { pcpu::assume_pinned(&mut **work) };
        });
    }

    fn on_all(&self, work: &(dyn Fn(usize, Pinned<'_>) + Sync)) {
        self.machine.run(self.cores.len(), |cpu| {
            core_affinity::set_for_current(self.cores[cpu.index()]);
            // SAFETY: a thread is its CPU until it ends.
            unsafe { pcpu::assume_pinned(|pin| work(cpu.index(), pin)) };
        });
    }
}
