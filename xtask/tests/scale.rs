//! `cargo xtask scale` with a small setting, from the builds to the files.

use kernel_runner::Machine;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

#[test]
fn a_small_setting_gives_rows_of_both_kinds_checks_times_and_curves() {
    // The command would install it, and tests install nothing.
    assert!(Machine::find().is_ok(), "QEMU is not installed: `cargo xtask test` installs it and then runs the tests");
    let folder = tempfile::tempdir().unwrap();
    let (json, curves) = (folder.path().join("rows.json"), folder.path().join("curves"));
    let arguments = ["scale", "--cpus", "1,2,3,4", "--seconds", "0.015"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).arg("--json").arg(&json).arg("--svg").arg(&curves).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    for part in ["MODEL", "MEASURED", "PREDICTION", "TIMES", "predictions for two threads are within 25 %"] {
        assert!(stdout.contains(part), "no {part} in\n{stdout}");
    }

    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(report["machine"]["processor"].is_string() && report["line_transfer_ns"].as_f64().unwrap() > 0.0);
    let rows = report["rows"].as_array().unwrap();
    let model: Vec<_> = rows.iter().filter(|row| row["kind"] == "model").collect();
    let strategies: BTreeSet<_> = model.iter().map(|row| row["strategy"].as_str().unwrap()).collect();
    assert_eq!((strategies.len(), model.len()), (9, 9 * 4));
    for row in &model {
        assert!(row["per_second"].as_f64().unwrap() > 0.0 && row["usl_alpha"].is_f64() && row["usl_beta"].is_f64(), "{row}");
        assert_eq!((&row["workload"], &row["extrapolated"]), (&"exec".into(), &false.into()));
    }
    let measured = |part: &str| rows.iter().filter(|row| row["kind"] == "measured" && row["part"] == part).count();
    assert!(measured("counters") >= 9 * 2 && measured("counters") == measured("whole"));
    assert!(report["validation"].as_array().unwrap().iter().any(|check| check["op"] == "exec/linux-grouped" && check["threads"] == 2));
    assert!(report["latency"].as_array().unwrap().iter().all(|row| row["max_ns"].as_u64() >= row["p50_ns"].as_u64()));
    assert_eq!(fs::read_dir(&curves).unwrap().count(), 3);
}
