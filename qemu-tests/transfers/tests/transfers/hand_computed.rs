//! What is counted in the guest is what the model's own tests compute by hand, in `qemu-tests/conflict-plugin`.

use super::{kernel_called, rows, rows_of};

/// Read misses, upgrades and write misses of all executions on a number of CPUs.
fn by_kind(cpus: u32, op: &str) -> ([f64; 3], f64) {
    let rows = rows(cpus, &format!("op={op} rounds=256"));
    let row = rows.iter().find(|row| row.op == op).unwrap();
    assert_eq!(row.executions, 256 * u64::from(cpus));
    let executions = row.executions as f64;
    ([row.read_misses_per_op, row.upgrades_per_op, row.write_misses_per_op].map(|mean| mean * executions), executions)
}

/// Asserts so many transfers of each kind for an execution. Where each CPU begins and ends its rounds is not part of the pattern, so each
/// CPU may be off by one or two.
fn assert_per_execution(cpus: u32, op: &str, expected: [f64; 3]) {
    let (found, executions) = by_kind(cpus, op);
    for (found, expected) in found.into_iter().zip(expected) {
        let slack = if expected == 0.0 { 0.0 } else { 2.0 * f64::from(cpus) };
        assert!((found - expected * executions).abs() <= slack, "{op} on {cpus} CPUs: {found} of {executions}, expected {expected} each");
    }
}

#[test]
fn a_contended_increment_is_a_write_miss() {
    for cpus in [2, 4] {
        assert_per_execution(cpus, "check/contended", [0.0, 0.0, 1.0]);
    }
}

#[test]
fn a_private_increment_moves_nothing() {
    assert_per_execution(4, "check/private", [0.0, 0.0, 0.0]);
}

#[test]
fn what_is_mostly_read_moves_to_each_reader_once_a_write() {
    for cpus in [2, 4] {
        let writers = 1.0 / f64::from(cpus);
        assert_per_execution(cpus, "check/read_mostly", [1.0 - writers, writers, 0.0]);
    }
}

#[test]
fn false_sharing_is_a_write_miss() {
    for cpus in [2, 4] {
        assert_per_execution(cpus, "check/false_sharing", [0.0, 0.0, 1.0]);
    }
}

#[test]
fn a_free_spin_lock_is_a_write_miss_and_one_that_is_held_takes_four_transfers() {
    assert_per_execution(2, "check/spin_lock", [0.0, 0.0, 1.0]);
    // The vain attempt takes the line to write, so does the release; then the free lock is read, and taken.
    assert_per_execution(2, "check/spin_lock_held", [1.0, 1.0, 2.0]);
}

#[test]
fn what_is_done_under_a_spin_lock_is_known() {
    let rows = rows(4, "op=check/spin_lock op=check/contended rounds=256");
    let row = |op: &str| rows.iter().find(|row| row.op == op).unwrap();
    let [lock] = &row("check/spin_lock").shared_locks[..] else { panic!("{:?}", row("check/spin_lock")) };
    assert_eq!(lock.acquisitions_per_op, 1.0);
    assert!(lock.instructions_per_op >= 2.0 && lock.instructions_per_op < row("check/spin_lock").instructions_per_op, "{lock:?}");
    // The lock and what it protects are in one line.
    assert_eq!((lock.transfers_per_op, row("check/spin_lock").hottest_line_per_op), (1.0, 1.0));
    assert_eq!((row("check/contended").hottest_line_per_op, &row("check/contended").shared_locks[..]), (1.0, &[][..]));
}

#[test]
fn the_least_kernel_with_marks_of_its_own_is_counted() {
    for cpus in [2, 8] {
        let rows = rows_of(&kernel_called("marked"), cpus, "");
        let [shared, own] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((shared.op.as_str(), own.op.as_str()), ("shared_add", "own_add"));
        // A hundred by each CPU one after the other: each but the first takes the line from another one.
        assert_eq!((shared.executions, own.executions), (100 * u64::from(cpus), 100 * u64::from(cpus)));
        assert!((0.98..=1.0).contains(&shared.transfers_per_op), "{}", shared.transfers_per_op);
        assert_eq!(own.transfers_per_op, 0.0);
    }
}
