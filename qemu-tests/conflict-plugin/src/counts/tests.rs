//! Cases whose transfers are counted by hand.

use super::*;

/// Addresses of instructions.
const HERE: u64 = 0x1000;
const THERE: u64 = 0x2000;

const NUMBER: u16 = 3;
const ROUNDS: u64 = 10;

/// Addresses in a line, and in another one.
const A: u64 = 0x10_0000;
const A_TOO: u64 = A + 32;
const B: u64 = A + LINE_BYTES;

/// Executes the operation on a CPU: what it accesses, and by which instruction.
fn operation(counts: &mut Counts, cpu: usize, accesses: &[(u64, Access, u64)]) {
    counts.mark(cpu, Marker::Begin(NUMBER));
    for &(address, access, instruction) in accesses {
        counts.execute(cpu, false);
        counts.access(cpu, address, 8, access, instruction);
    }
    counts.mark(cpu, Marker::End);
}

/// CPUs take turns in a number of rounds, after one that is not counted.
fn rounds(nr_cpus: usize, accesses: impl Fn(usize) -> Vec<(u64, Access, u64)>) -> Operation {
    let mut counts = Counts::default();
    for round in 0..=ROUNDS {
        for cpu in 0..nr_cpus {
            operation(&mut counts, cpu, &accesses(cpu));
        }
        if round == 0 {
            counts.mark(0, Marker::Forget(NUMBER));
        }
    }
    let report = counts.report();
    assert_eq!(report.troubles, [""; 0]);
    let [operation] = &report.operations[..] else { panic!("{report:?}") };
    assert_eq!((operation.number, operation.executions), (NUMBER, ROUNDS * nr_cpus as u64));
    operation.clone()
}

/// Transfers of each kind: read misses, upgrades, write misses.
fn by_kind(operation: &Operation) -> [u64; 3] {
    [Kind::ReadMiss, Kind::Upgrade, Kind::WriteMiss].map(|kind| operation.nr_of(kind))
}

#[test]
fn a_contended_locked_increment_is_a_write_miss_each_time_on_any_number_of_cpus() {
    for nr_cpus in [2, 4, 64] {
        // A locked instruction is a load and a store.
        let operation = rounds(nr_cpus, |_| vec![(A, Access::Write, HERE), (A, Access::Write, HERE)]);
        assert_eq!(by_kind(&operation), [0, 0, ROUNDS * nr_cpus as u64]);
        assert_eq!(operation.lines_written, operation.executions);
    }
}

#[test]
fn a_contended_increment_without_a_lock_moves_its_line_to_read_and_again_to_write() {
    let operation = rounds(2, |_| vec![(A, Access::Read, HERE), (A, Access::Write, HERE)]);
    assert_eq!(by_kind(&operation), [2 * ROUNDS, 2 * ROUNDS, 0]);
}

#[test]
fn the_only_cpu_of_a_machine_moves_nothing() {
    assert_eq!(rounds(1, |_| vec![(A, Access::Read, HERE), (A, Access::Write, HERE)]).nr_transfers(), 0);
}

#[test]
fn private_increments_move_nothing() {
    let operation =
        rounds(4, |cpu| vec![(A + cpu as u64 * LINE_BYTES, Access::Read, HERE), (A + cpu as u64 * LINE_BYTES, Access::Write, HERE)]);
    assert_eq!(operation.nr_transfers(), 0);
    assert_eq!((operation.lines_read, operation.lines_written, operation.instructions), (4 * ROUNDS, 4 * ROUNDS, 8 * ROUNDS));
}

#[test]
fn what_is_mostly_read_moves_to_each_reader_after_a_write() {
    // CPU 0 writes; the three others read twice.
    let operation = rounds(4, |cpu| if cpu == 0 { vec![(A, Access::Write, HERE)] } else { vec![(A, Access::Read, THERE); 2] });
    // The writer has its copy still, when the readers got theirs.
    assert_eq!(by_kind(&operation), [3 * ROUNDS, ROUNDS, 0]);
    let mut causes: Vec<_> = operation.transfers.iter().map(|t| (t.kind, t.instruction, t.peer, t.count)).collect();
    causes.sort_unstable();
    let expected =
        [(Kind::ReadMiss, THERE, HERE, ROUNDS), (Kind::ReadMiss, THERE, THERE, 2 * ROUNDS), (Kind::Upgrade, HERE, THERE, ROUNDS)];
    assert_eq!(causes, expected, "who took the line, and from whom");
}

#[test]
fn what_nobody_writes_moves_nothing() {
    assert_eq!(rounds(4, |_| vec![(A, Access::Read, HERE)]).nr_transfers(), 0);
}

#[test]
fn two_fields_in_a_line_are_shared_and_in_two_lines_not() {
    let shared = rounds(2, |cpu| vec![([A, A_TOO][cpu], Access::Write, [HERE, THERE][cpu])]);
    assert_eq!(by_kind(&shared), [0, 0, 2 * ROUNDS]);
    assert!(shared.transfers.iter().all(|transfers| transfers.instruction != transfers.peer), "{shared:?}");
    let apart = rounds(2, |cpu| vec![([A, B][cpu], Access::Write, HERE)]);
    assert_eq!(apart.nr_transfers(), 0);
}

#[test]
fn a_spin_lock_and_what_it_protects_move_together() {
    // The lock is taken by a locked exchange and given back by a store; the word that it protects is in another line.
    let apart = rounds(2, |_| {
        vec![
            (A, Access::Write, HERE),
            (A, Access::Write, HERE),
            (B, Access::Read, HERE),
            (B, Access::Write, HERE),
            (A, Access::Write, THERE),
        ]
    });
    assert_eq!(by_kind(&apart), [2 * ROUNDS, 2 * ROUNDS, 2 * ROUNDS]);
    // In the lock's line it comes with the lock.
    let together =
        rounds(2, |_| vec![(A, Access::Write, HERE), (A_TOO, Access::Read, HERE), (A_TOO, Access::Write, HERE), (A, Access::Write, THERE)]);
    assert_eq!(by_kind(&together), [0, 0, 2 * ROUNDS]);
}

#[test]
fn whoever_waits_for_a_spin_lock_takes_its_line_from_the_owner() {
    let mut counts = Counts::default();
    counts.mark(0, Marker::Begin(0));
    counts.access(0, A, 1, Access::Write, HERE);
    // CPU 1 tries, then reads until it is free: one read gets a copy, the next ones have it.
    operation(&mut counts, 1, &[(A, Access::Write, HERE), (A, Access::Read, HERE), (A, Access::Read, HERE)]);
    // The owner gives it back.
    counts.access(0, A, 1, Access::Write, THERE);
    counts.mark(0, Marker::End);
    // CPU 1 sees that, and takes it.
    operation(&mut counts, 1, &[(A, Access::Read, HERE), (A, Access::Write, HERE)]);
    let report = counts.report();
    assert_eq!(report.operations.iter().map(by_kind).collect::<Vec<_>>(), [[0, 0, 1], [1, 1, 1]]);
}

#[test]
fn an_access_across_a_border_touches_both_lines() {
    let operation = rounds(2, |_| vec![(B - 4, Access::Write, HERE)]);
    assert_eq!((by_kind(&operation), operation.lines_written), ([0, 0, 4 * ROUNDS], 4 * ROUNDS));
}

#[test]
fn lines_move_outside_of_operations_too_but_count_for_none() {
    let mut counts = Counts::default();
    counts.access(0, A, 8, Access::Write, THERE);
    operation(&mut counts, 1, &[(A, Access::Read, HERE)]);
    counts.access(2, A, 8, Access::Write, THERE);
    counts.execute(2, true);
    let operation = &counts.report().operations[0];
    assert_eq!((by_kind(operation), operation.locked), ([1, 0, 0], 0));
    assert_eq!(operation.transfers[0].peer, THERE);
}

#[test]
fn parts_of_an_operation_on_several_cpus_are_one_execution() {
    let mut counts = Counts::default();
    operation(&mut counts, 0, &[(A, Access::Write, HERE)]);
    counts.mark(1, Marker::Part(NUMBER));
    counts.access(1, A, 8, Access::Write, THERE);
    counts.mark(1, Marker::End);
    let operation = &counts.report().operations[0];
    assert_eq!((operation.executions, by_kind(operation), operation.lines_written), (1, [0, 0, 1], 2));
}

#[test]
fn what_is_suspended_counts_for_no_operation() {
    let mut counts = Counts::default();
    counts.access(1, A, 8, Access::Write, THERE);
    counts.mark(0, Marker::Begin(NUMBER));
    counts.mark(0, Marker::Suspend);
    counts.execute(0, true);
    counts.access(0, A, 8, Access::Read, HERE);
    counts.mark(0, Marker::Resume);
    counts.execute(0, false);
    counts.mark(0, Marker::End);
    let operation = &counts.report().operations[0];
    assert_eq!((operation.instructions, operation.locked, operation.lines_read, operation.nr_transfers()), (1, 0, 0, 0));
}

#[test]
fn nested_and_unbegun_operations_are_reported() {
    let mut counts = Counts::default();
    counts.mark(0, Marker::Begin(1));
    counts.mark(0, Marker::Begin(2));
    counts.mark(0, Marker::End);
    counts.mark(0, Marker::End);
    let troubles = counts.report().troubles;
    assert!(troubles.len() == 2 && troubles[0].contains("operation 2 began on CPU 0 within operation 1"), "{troubles:?}");
}

/// One byte, as locks are.
fn byte(counts: &mut Counts, cpu: usize, address: u64, is_locked: bool) {
    counts.execute(cpu, is_locked);
    counts.access(cpu, address, 1, Access::Write, HERE);
}

#[test]
fn what_is_done_under_a_lock_of_several_cpus_is_counted_with_what_brings_the_lock() {
    let mut counts = Counts::default();
    for round in 0..=ROUNDS {
        for cpu in 0..2 {
            counts.mark(cpu, Marker::Begin(NUMBER));
            counts.execute(cpu, false);
            byte(&mut counts, cpu, A, true);
            counts.execute(cpu, false);
            counts.access(cpu, B, 8, Access::Write, HERE);
            // A lock of this CPU's alone.
            let own = B + (1 + cpu as u64) * LINE_BYTES;
            byte(&mut counts, cpu, own, true);
            byte(&mut counts, cpu, own, false);
            byte(&mut counts, cpu, A, false);
            counts.execute(cpu, false);
            counts.mark(cpu, Marker::End);
        }
        if round == 0 {
            counts.mark(0, Marker::Forget(NUMBER));
        }
    }
    let operation = counts.report().operations.remove(0);
    let nr = 2 * ROUNDS;
    let [lock] = &operation.shared_locks[..] else { panic!("{operation:?}") };
    // Behind the instruction that takes it, up to the one that gives it back.
    assert_eq!((lock.address, lock.acquisitions, lock.instructions, lock.transfers), (A, nr, 4 * nr, 2 * nr));
    assert_eq!((operation.instructions, operation.nr_transfers(), operation.hottest_line), (7 * nr, 2 * nr, nr));
}

#[test]
fn the_hottest_line_is_that_of_most_transfers_whoever_causes_them() {
    let operation = rounds(2, |cpu| {
        let instruction = if cpu == 0 { HERE } else { THERE };
        vec![(A, Access::Write, instruction), (A_TOO, Access::Read, instruction), (B, Access::Read, instruction)]
    });
    assert_eq!((operation.nr_transfers(), operation.hottest_line), (2 * ROUNDS, 2 * ROUNDS));
    assert_eq!(operation.shared_locks, []);
}

#[test]
fn readers_of_a_line_do_not_wait_for_each_other() {
    let operation = rounds(64, |cpu| vec![(A, if cpu == 0 { Access::Write } else { Access::Read }, HERE)]);
    // A write each round, and the first read after it; the other 62 reads are at once.
    assert_eq!((operation.nr_transfers(), operation.hottest_line), (64 * ROUNDS, 2 * ROUNDS));
}
