//! How far a read can be from the truth: all CPUs count faults in one space, and stop just before what they counted would show.

use super::Stage;
use crate::lifetime::{Member, Update};
use crate::space::nonzero;
use crate::strategy::{EVENTS_PER_FLUSH, Strategy};
use alloc::vec::Vec;
use pcpu::{Batch, CpuId};
use spin::mutex::SpinMutex;

const FAULT: Update = Update { member: Member::Anon, pages: 1 };

/// What was seen and what is promised.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drift {
    pub(super) worst_read_error: u64,
    pub(super) guaranteed_error: u64,
    pub(super) nonzero_counters: u64,
}

/// Lets every CPU count one less than each of the numbers at which some strategy tells.
pub(super) fn measure<S: Strategy>(stage: &dyn Stage) -> Drift {
    let linux_batch = (2 * CpuId::possible().len() as u64).max(32);
    let mut drift = Drift::default();
    for told_at in [Batch::DEFAULT.get(), u64::from(EVENTS_PER_FLUSH), linux_batch] {
        one::<S>(stage, told_at - 1, &mut drift);
    }
    drift
}

fn one<S: Strategy>(stage: &dyn Stage, nr_faults: u64, drift: &mut Drift) {
    let mut counters = None;
    stage.on_one(&mut |_| counters = S::new().ok().inspect(S::share));
    let Some(counters) = counters else { return };
    let nr_cpus = stage.nr_cpus();
    let tasks: Vec<SpinMutex<S::Task>> = (0..nr_cpus).map(|_| SpinMutex::new(S::Task::default())).collect();
    stage.on_all(&|seat, pin| {
        let task = &mut *tasks[seat].lock();
        for _ in 0..nr_faults {
            // SAFETY: shared.
            unsafe { counters.add_current(pin, task, FAULT) };
        }
    });
    stage.on_one(&mut |_| {
        let truth = nr_faults * nr_cpus as u64;
        drift.worst_read_error = drift.worst_read_error.max(counters.read(FAULT.member).abs_diff(truth as i64));
        drift.guaranteed_error = drift.guaranteed_error.max(counters.max_error(FAULT.member, nr_cpus));
    });
    stage.on_all(&|seat, pin| {
        counters.leave(&mut tasks[seat].lock());
        // SAFETY: shared.
        unsafe { counters.add(pin, Update { pages: -(nr_faults as i64), ..FAULT }) };
    });
    let mut counters = Some(counters);
    stage.on_one(&mut |_| drift.nonzero_counters += counters.take().map_or(0, |counters| nonzero(&counters)));
}
