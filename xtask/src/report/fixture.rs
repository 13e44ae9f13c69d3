//! What all commands measure without options, with small numbers.

use super::data::Data;
use super::figures;
use crate::bench_rows;
use crate::cli::{Strategy, Workload};
use crate::host::Host;
use crate::json_file::Stored;
use crate::rows::{Row, Setting};
use serde_json::json;

fn machine() -> Host {
    Host { processor: "Fixture".into(), host_cpus: 2, ..Host::default() }
}

fn stored<R>(command: &str, rows: Vec<R>) -> Result<Stored<R>, String> {
    Ok(Stored { machine: machine(), command: format!("cargo xtask {command}"), rows })
}

/// All of them.
pub fn data() -> Data {
    let operation = |name: &str, possible_cpus| bench_rows::Row {
        name: name.into(),
        threads: 1,
        possible_cpus,
        ns: 6.0,
        median_ns: 7.0,
        ratio_to_gs_add: 20.0,
        baseline_ns: Some(600.0),
        speedup: Some(100.0),
    };
    let bench = [2, 256].into_iter().flat_map(|cpus| figures::TIMED.map(|name| operation(name, cpus))).collect();
    let counted = |op: &str, cpus: u32| {
        serde_json::from_value(json!({
            "op": op, "cpus": cpus, "executions": 512, "instructions_per_op": 3.0, "lines_read": 1.0, "lines_written": 2.0,
            "transfers_per_op": cpus, "read_misses_per_op": 0.0, "upgrades_per_op": 0.0, "write_misses_per_op": 0.0,
            "locked_per_op": 1.0, "causes": [],
        }))
        .unwrap()
    };
    let transfers = [1, 8].into_iter().flat_map(|cpus| figures::COUNTED.map(|op| counted(op, cpus))).collect();
    let curve = |strategy: &String| {
        [("measured", 2), ("model", 64)].map(|(kind, cpus)| {
            let row = json!({"strategy": strategy, "workload": "exec", "part": "counters", "cpus": cpus, "per_second": 1000 * cpus, "kind": kind, "extrapolated": false,
                "spread": (kind == "measured").then_some(0.1), "usl_alpha": 0.1, "usl_beta": 0.01});
            serde_json::from_value(row).unwrap()
        })
    };
    let strategies = Strategy::expanded(&[Strategy::All]);
    let latency = json!([{"strategy": "lazy", "workload": "exec", "part": "counters", "threads": 8, "seconds": 1.0, "lifetimes": 900, "p50_ns": 1,
        "p99_ns": 2, "p999_ns": 3, "max_ns": 4, "stalls_over_1ms": 0, "curve": [[0.5, 1], [0.99, 2], [1.0, 4]]}]);
    Data {
        forkbomb: stored("forkbomb", fork_bomb(&strategies)),
        bench: stored("bench", bench),
        transfers: stored("transfers --cpus 1,2,4,8,16,32,64", transfers),
        scale: stored("scale", strategies.iter().flat_map(curve).collect()),
        latency: serde_json::from_value(latency).unwrap(),
    }
}

fn fork_bomb(strategies: &[String]) -> Vec<Row> {
    let setting = Setting {
        workload: "bomb".into(),
        part: "whole".into(),
        cpus: 2,
        possible_cpus: 2,
        native: false,
        live: 128,
        folio_order: 0,
        shares: false,
    };
    let native = Setting { native: true, possible_cpus: 256, ..setting.clone() };
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |setting: &Setting, strategies: &[&str], rounds| {
        rows.extend(strategies.iter().map(|strategy| row(setting, strategy, rounds)));
    };
    let all: Vec<_> = strategies.iter().map(String::as_str).collect();
    for cpus in [1, 2, 4, 8] {
        add(&Setting { cpus, possible_cpus: cpus, ..setting.clone() }, &["each", "grouped"], 5);
    }
    for workload in Workload::expanded(&[Workload::All]) {
        add(&Setting { workload, ..setting.clone() }, &all, 3);
    }
    for folio_order in 0..=4 {
        let folios = Setting { workload: "doexec".into(), possible_cpus: 26, folio_order, shares: true, ..native.clone() };
        add(&folios, &["linux-each", "linux-grouped", "each", "grouped", "lazy"], 5);
    }
    for part in ["counters", "lifecycle"] {
        add(&Setting { workload: "exec".into(), part: part.into(), ..native.clone() }, &all, 11);
    }
    add(&Setting { workload: "threads".into(), ..native.clone() }, &all, 5);
    for live in [1_000, 10_000] {
        add(&Setting { live, ..native.clone() }, &all, 1);
    }
    rows
}

fn row(setting: &Setting, strategy: &str, rounds: usize) -> Row {
    Row {
        setting: setting.clone(),
        strategy: strategy.into(),
        rounds,
        lifetimes: 1_000,
        seconds: 1.0,
        per_second: 40_000.0,
        best_per_second: 40_000.0,
        spread: 0.1,
        ratio: 1.0,
        nonzero_counters: 0,
        leaked_objects: 0,
        failed_forks: 0,
        pool_misses_per_lifetime: 0.0,
        peak_live: setting.live,
        bytes_per_space: 256.0,
        worst_read_error: 31,
        guaranteed_error: 62,
        scanned_per_second: 0.0,
        exact_sums_share: 0.0,
        counter_share: 0.25,
        lru_share: 0.5,
        instructions_per_lifetime: None,
    }
}
