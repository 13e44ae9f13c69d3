//! The command's bad inputs: each is one line and a failure, before anything is built or booted.

use std::process::{Command, Output};

fn xtask(arguments: &[&str]) -> Output {
    // Nothing on `PATH`: whatever would start QEMU, cargo or apt-get fails in another way than is asserted here.
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).env("PATH", "").env_remove("CARGO").output().unwrap()
}

#[track_caller]
fn assert_one_line(arguments: &[&str], named: &str) {
    let output = xtask(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    assert!(output.stdout.is_empty(), "{arguments:?} printed {}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(named), "{arguments:?}: {stderr}");
}

#[test]
fn numbers_out_of_range_are_refused() {
    assert_one_line(&["forkbomb", "--cpus", "0"], "0 is not in 1..=255");
    assert_one_line(&["forkbomb", "--cpus", "256"], "256 is not in 1..=255");
    assert_one_line(&["forkbomb", "--cpus", "2,-1"], "-1");
    assert_one_line(&["bench", "--possible-cpus", "1"], "1 is not in 2..=1024");
    for seconds in ["0", "NaN", "-inf", "soon", ""] {
        assert_one_line(&["forkbomb", "--seconds", seconds], "seconds");
    }
}

#[test]
fn wrong_options_and_commands_are_refused_by_name() {
    assert_one_line(&["forkbomb", "--cup", "2"], "--cup");
    assert_one_line(&["forkbomb", "--accel", "xen"], "xen");
    assert_one_line(&["forkbomb", "--strategies", "each,some"], "some");
    assert_one_line(&["forkbomb", "surplus"], "surplus");
    assert_one_line(&["spoonbomb"], "spoonbomb");
    assert_one_line(&[], "--help");
}

#[test]
fn a_json_path_that_cannot_be_written_is_refused() {
    for path in ["/no/such/folder/rows.json", "/dev/null", "/proc/rows.json", "/"] {
        assert_one_line(&["forkbomb", "--json", path], path);
    }
}

#[test]
fn help_is_printed_and_no_failure() {
    for arguments in [&["--help"][..], &["bench", "--help"], &["forkbomb", "--help"], &["test", "--help"]] {
        let output = xtask(arguments);
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: cargo xtask"));
    }
}
