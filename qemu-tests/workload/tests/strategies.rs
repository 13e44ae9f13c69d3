//! The strategies on the real per-CPU code, with host threads as CPUs.

use pcpu::AllocError;
use pcpu::host::Machine;
use workload::lifetime::{Member, Update};
use workload::{Bomb, Each, Grouped, Strategy};

const NR_CPUS: usize = 4;

fn machine() -> Machine {
    // SAFETY: these tests touch per-CPU data only inside of `run`, and start no threads there.
    unsafe { Machine::boot(NR_CPUS) }.unwrap()
}

fn a_bomb_leaves_nothing_behind<S: Strategy<Error = AllocError> + Send>() {
    let machine = machine();
    let bomb = Bomb::<S>::new(NR_CPUS, 64 * NR_CPUS).unwrap();
    // Runs of this process wait for each other, and the other test's leave no objects.
    let objects = || machine.run(1, |_| pcpu::alloc::stats().live_objects)[0];
    let objects_before = objects();
    let outcomes = machine.run(NR_CPUS, |cpu| {
        let mut steps = 0;
        bomb.work(cpu.index(), || {
            steps += 1;
            steps > 5_000
        })
    });
    for (tally, outcome) in outcomes {
        assert_eq!(outcome, Ok(()));
        assert_eq!(tally.nonzero_counters, 0);
        assert!(tally.lifetimes > 1_000, "{} lifetimes", tally.lifetimes);
    }
    assert_eq!(objects(), objects_before);
}

#[test]
fn bombs_of_both_strategies_leave_nothing_behind() {
    a_bomb_leaves_nothing_behind::<Each>();
    a_bomb_leaves_nothing_behind::<Grouped>();
}

#[test]
fn each_member_has_a_counter_of_its_own() {
    fn sums_after_one_update_each<S: Strategy<Error = AllocError>>() -> [i64; Member::COUNT] {
        let counters = S::new().unwrap();
        for (member, pages) in [(Member::File, 1), (Member::Anon, -20), (Member::Swap, 300), (Member::Shmem, 4_000)] {
            counters.add(Update { member, pages });
        }
        counters.sums()
    }
    let machine = machine();
    for sums in [machine.run(1, |_| sums_after_one_update_each::<Each>()), machine.run(1, |_| sums_after_one_update_each::<Grouped>())] {
        assert_eq!(sums, [[1, -20, 300, 4_000]]);
    }
}
