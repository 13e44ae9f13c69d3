//! No operation costs more transfers than the table allows.

use super::rows;
use transfers::{Allowance, Row};

fn allowance() -> Allowance {
    Allowance::parse(include_str!("../../allowed.csv")).unwrap_or_else(|error| panic!("allowed.csv: {error:#}"))
}

fn transfers_of(rows: &[Row], op: &str) -> f64 {
    rows.iter().find(|row| row.op == op).unwrap_or_else(|| panic!("no row for {op}")).transfers_per_op
}

#[test]
fn operations_cost_what_the_table_allows_on_2_4_and_8_cpus() {
    let allowance = allowance();
    let mut violations = Vec::new();
    let mut linux_like = Vec::new();
    for cpus in [2, 4, 8] {
        let rows = rows(cpus, "");
        assert_eq!(allowance.missing(&rows), [""; 0], "the table has operations that the kernel has not");
        violations.extend(allowance.violations(&rows));
        linux_like.push(transfers_of(&rows, "linux_like_alloc_free"));
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert!(linux_like.is_sorted() && linux_like[0] > 10.0, "what clears each CPU's copy costs more on more CPUs: {linux_like:?}");
}

#[test]
fn the_only_cpu_of_a_machine_moves_no_line() {
    for row in rows(1, "") {
        assert_eq!(row.transfers_per_op, 0.0, "{}: {:?}", row.op, row.causes.first());
    }
}

#[test]
fn hits_move_no_line_when_other_cpus_run_in_the_middle_of_them() {
    let words = "op=static_add op=event_add op=counter_add op=set4_ op=lazy4_ op=limit_add op=alloc_free/16 op=allocate/16 op=free/16 \
                 rounds=64 interleave=3";
    for row in rows(4, words) {
        if allowance().of(&row.op) == Some(0.0) {
            assert_eq!(row.transfers_per_op, 0.0, "{}: {:?}", row.op, row.causes.first());
        }
    }
}

#[test]
fn two_runs_give_the_same_numbers() {
    let words = "op=alloc op=posting op=lock op=read";
    assert_eq!(rows(4, words), rows(4, words));
}

#[test]
fn a_field_that_shares_its_line_is_caught_with_its_function_and_line() {
    let allowance = Allowance::parse("check/false_sharing,0,a field of this CPU's").unwrap();
    let violations = allowance.violations(&rows(2, "op=check/false_sharing"));
    let [violation] = &violations[..] else { panic!("{violations:?}") };
    let expected = [
        "check/false_sharing on 2 CPUs: 1 transfers for each execution, 0 allowed",
        "write_own_field (qemu-tests/kernel/src/bin/transfers.rs:",
    ];
    for part in expected {
        assert!(violation.contains(part), "no `{part}` in\n{violation}");
    }
}
