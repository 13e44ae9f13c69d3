//! The command's bad inputs: each is one line and a failure, before anything is built or booted. And what it makes of cargo's outcomes.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

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
    assert_one_line(&["forkbomb", "--cpus", "0"], "a number between 1 and 255 is wanted");
    assert_one_line(&["forkbomb", "--cpus", "256"], "a number between 1 and 255 is wanted");
    assert_one_line(&["forkbomb", "--cpus", ""], "a number between 1 and 255 is wanted");
    assert_one_line(&["forkbomb", "--cpus", "2,-1"], "-1");
    assert_one_line(&["transfers", "--cpus", "256"], "a number between 1 and 255 is wanted");
    assert_one_line(&["bench", "--possible-cpus", "1"], "a number between 2 and 1024 is wanted");
    for cpus in ["0", "1025", "", "1,,2", "1;2", "two", "1-4", "-1", "1,2,0"] {
        assert_one_line(&["scale", "--cpus", cpus], "a number between 1 and 1024 is wanted");
    }
    for seconds in ["0", "NaN", "-inf", "soon", ""] {
        assert_one_line(&["forkbomb", "--seconds", seconds], "seconds");
        assert_one_line(&["scale", "--seconds", seconds], "seconds");
    }
}

#[test]
fn wrong_options_and_commands_are_refused_by_name() {
    assert_one_line(&["forkbomb", "--cup", "2"], "--cup");
    assert_one_line(&["forkbomb", "--accel", "xen"], "xen");
    assert_one_line(&["scale", "--accel", "xen"], "xen");
    assert_one_line(&["scale", "--native", "--accel", "tcg"], "cannot be used with");
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
    for command in ["forkbomb", "bench", "scale"] {
        assert_one_line(&[command, "--json", "/no/such/folder/rows.json"], "No such file or directory");
    }
}

#[test]
fn a_folder_for_curves_that_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.to_str().unwrap(), "/dev/null", "/proc/curves"] {
        assert_one_line(&["scale", "--svg", path], &format!("cannot write into {path}: "));
    }
}

#[test]
fn help_is_printed_and_no_failure() {
    for arguments in
        [&["--help"][..], &["bench", "--help"], &["forkbomb", "--help"], &["report", "--help"], &["scale", "--help"], &["test", "--help"]]
    {
        let output = xtask(arguments);
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: cargo xtask"));
    }
}

#[test]
fn the_version_is_printed() {
    let output = xtask(&["--version"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("cargo xtask "));
}

#[test]
fn a_report_of_nothing_or_to_nowhere_is_refused() {
    let folder = TempDir::new().unwrap();
    let empty = folder.path().to_str().unwrap();
    assert_one_line(&["report", "--from", empty], "there is no forkbomb.json");
    assert_one_line(&["report", "--from", "/no/such/folder"], "/no/such/folder is not a folder");
    assert_one_line(&["report", "--from", empty, "--out", "/no/such/folder/page.html"], "No such file or directory");
    assert_one_line(&["report", "--from", empty, "--numbers", "/dev/null"], "/dev/null");
    assert_one_line(&["report", "--out", "/no/such/folder/page.html"], "/no/such/folder is not a folder");
    fs::write(folder.path().join("bench.json"), "{").unwrap();
    assert_one_line(&["report", "--from", empty], "bench.json is of no use");
    assert!(!folder.path().join("index.html").exists());
}

/// What the bench writes of one operation.
fn bench_json() -> String {
    let row = r#"{"name": "gs_add", "threads": 1, "possible_cpus": 2, "ns": 0.5, "median_ns": 0.5, "ratio_to_gs_add": 1.0}"#;
    format!(r#"{{"machine": {{"processor": "P <&>"}}, "command": "cargo xtask bench", "rows": [{row}]}}"#)
}

#[test]
fn a_report_of_one_file_is_written_and_tells_what_is_missing() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("bench.json"), bench_json()).unwrap();
    let numbers = folder.path().join("numbers.md");
    let output = xtask(&["report", "--from", folder.path().to_str().unwrap(), "--numbers", numbers.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.lines().filter(|line| line.starts_with("note: there is no ")).count(), 3, "{stderr}");
    let page = fs::read_to_string(folder.path().join("index.html")).unwrap();
    assert!(page.contains("P &lt;&amp;&gt;") && page.contains("there is no forkbomb.json"));
    assert!(fs::read_to_string(numbers).unwrap().contains("| gs_add | 0.50 ns |"));
}

#[test]
fn a_command_that_fails_is_named_by_the_report() {
    // Without cargo and QEMU none of them can measure.
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("page.html");
    // What was measured once is not shown instead.
    fs::write(folder.path().join("bench.json"), bench_json()).unwrap();
    let output = xtask(&["report", "--out", page.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().last().unwrap_or_default();
    assert!(!output.status.success() && last.starts_with("error: ") && !page.exists(), "{stderr}");
    assert!(["forkbomb: ", "bench: ", "transfers: ", "scale: "].iter().all(|command| last.contains(command)), "{stderr}");
}

/// A cargo that writes down what it is called with, and then does as it is told.
struct FakeCargo {
    folder: TempDir,
    behaviour: &'static str,
}

impl FakeCargo {
    /// `behaviour` is shell, in which `$*` are cargo's arguments.
    fn new(behaviour: &'static str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), behaviour }
    }

    /// The command with this cargo, and with a QEMU that is there.
    fn xtask(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        // Not written by the test: a file that any process has open for writing cannot be executed.
        command.args(arguments).env("CARGO", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-cargo"));
        command.env("QEMU", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-qemu"));
        command
            .env("FAKE_CARGO_CALLS", self.file("calls"))
            .env("FAKE_CARGO_PID", self.file("pid"))
            .env("FAKE_CARGO_BEHAVIOUR", self.behaviour);
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn calls(&self) -> Vec<String> {
        fs::read_to_string(self.file("calls")).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

#[test]
fn what_is_no_qemu_is_refused_before_anything_is_built() {
    for (program, why) in [("/bin/true", "is not QEMU"), ("/bin/false", "is not QEMU"), ("/etc/passwd", "cannot start")] {
        let cargo = FakeCargo::new("");
        let output = cargo.xtask(&["transfers"]).env("QEMU", program).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(stderr.contains(why) && stderr.contains(program), "{stderr}");
        assert_eq!(cargo.calls(), [""; 0]);
    }
}

#[test]
fn an_output_that_nobody_reads_is_an_error_in_a_line() {
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("page.html");
    fs::write(folder.path().join("bench.json"), bench_json()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["report", "--from", folder.path().to_str().unwrap(), "--out", page.to_str().unwrap()]);
    let output = command.stdout(fs::File::create("/dev/full").unwrap()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.lines().last().unwrap().contains("cannot write to the standard output") && page.exists(), "{stderr}");
}

const ROBUST: &str = "test -p pcpu --features robust --tests";

#[test]
fn test_runs_the_tests_of_robust_mode_too() {
    let cargo = FakeCargo::new("");
    let output = cargo.xtask(&["test"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(cargo.calls(), ["test", ROBUST]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, format!("xtask: cargo test\nxtask: cargo {ROBUST}\n"));
}

#[test]
fn test_fails_when_either_run_does_and_says_which() {
    for (behaviour, failed) in [
        (r#"[ "$*" != test ] || exit 101"#, "`cargo test`".to_owned()),
        (r#"[ "$*" = test ] || exit 101"#, format!("`cargo {ROBUST}`")),
        ("exit 101", format!("`cargo test`, `cargo {ROBUST}`")),
    ] {
        let cargo = FakeCargo::new(behaviour);
        let output = cargo.xtask(&["test"]).output().unwrap();
        assert_eq!(output.status.code(), Some(101), "{behaviour}");
        assert_eq!(cargo.calls(), ["test", ROBUST], "{behaviour}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.lines().last(), Some(format!("error: failed: {failed}").as_str()), "{behaviour}");
    }
}

#[test]
fn test_with_arguments_is_that_run_alone() {
    let cargo = FakeCargo::new("");
    assert!(cargo.xtask(&["test", "--test", "kernel", "--", "--list"]).output().unwrap().status.success());
    assert_eq!(cargo.calls(), ["test --test kernel -- --list"]);
}

#[test]
fn a_filter_that_leaves_nothing_is_told_before_anything_is_measured() {
    let cargo = FakeCargo::new("");
    let output = cargo.xtask(&["bench", "--filter", "zzz"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("error: no operation's name contains `zzz`") && stderr.lines().count() == 1, "{stderr}");
    let runs: Vec<_> = cargo.calls().into_iter().filter(|call| call.starts_with("run ")).collect();
    assert!(runs.len() == 1 && runs[0].contains("--list"), "{runs:?}");
}

#[test]
fn an_interrupted_measurement_ends_with_one_line_and_leaves_no_process() {
    let cargo = FakeCargo::new(
        r#"case "$*" in
  *--list*) echo '{"operation":{"name":"gs_add","meaning":"m","rows":["gs_add"]}}' ;;
  run*) echo $$ > "$FAKE_CARGO_PID"; exec sleep 600 ;;
esac"#,
    );
    let mut running = cargo.xtask(&["bench"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = wait_for("the measurement", || fs::read_to_string(cargo.file("pid")).ok().filter(|pid| pid.ends_with('\n')));
    let signalled = Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    assert_eq!(running.wait().unwrap().code(), Some(130));
    let output = running.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "2 possible CPUs (1 of 4)\ninterrupted\n");
    assert!(output.stdout.is_empty());
    wait_for("the measurement's end", || {
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    });
}

fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        match probe() {
            Some(value) => return value,
            None if start.elapsed() > Duration::from_secs(30) => panic!("no sign of {what} in 30 s"),
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}
