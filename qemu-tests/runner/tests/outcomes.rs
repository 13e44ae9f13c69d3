//! Every way in which a boot can end, provoked, and told apart.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kernel_runner::{Ending, Error, Event, Kernel, Level, Machine, Panic, Step, build_kernel, run_cases};

const BUILD: [&str; 8] = ["build", "--config", ".cargo/kernel-host.toml", "--package", "test-kernel", "--bin", "failures", "--quiet"];

/// The kernel that fails on request.
fn elf() -> &'static Path {
    static ELF: OnceLock<PathBuf> = OnceLock::new();
    ELF.get_or_init(|| {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        build_kernel(&workspace, &BUILD).expect("the kernel builds")
    })
}

fn machine() -> Machine {
    Machine { cpus: 2, ..Machine::find().expect("`cargo xtask test` installs QEMU") }
}

/// Boots the kernel with this kind of failure; returns the ending and what was said.
fn boot(machine: &Machine, kind: &str) -> (Ending, Vec<Event>) {
    let kernel = Kernel::open(elf()).expect("a defmt kernel");
    let mut events = Vec::new();
    let ending = machine.boot(&kernel, &format!("kind={kind}"), |event| events.push(event));
    (ending, events)
}

/// The command, made ready to boot the kernel with this kind of failure.
fn runner(kind: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernel-runner"));
    command.env_remove("KERNEL_RUNNER_ARGS").args(["--cpus", "2", "--append"]).arg(format!("kind={kind}")).arg(elf());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Stderr, which must be one line.
fn the_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_owned()
}

#[test]
fn success_is_success() {
    assert_eq!(boot(&machine(), "ok").0, Ending::Passed);
    let output = runner("ok").output().expect("runs");
    assert!(output.status.success());
    assert!(
        stdout(&output).contains("\nrunning 1 test\ntest nothing ... ok\n\ntest result: ok. 1 passed; 0 failed;"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_failed_test_is_named_with_its_reason() {
    assert_eq!(boot(&machine(), "fail").0, Ending::TestsFailed { names: vec!["bad".to_owned()] });
    let output = runner("fail").output().expect("runs");
    assert_eq!(output.status.code(), Some(101));
    let text = stdout(&output);
    assert!(text.contains("test good ... ok\ntest bad ... FAILED\n"), "{text}");
    assert!(text.contains("---- bad stdout ----\n") && text.contains("\non purpose\n\nfailures:\n    bad\n"), "{text}");
    assert!(text.contains("test result: FAILED. 1 passed; 1 failed;"), "{text}");
}

#[test]
fn log_lines_have_time_cpu_level_and_place() {
    let (_, events) = boot(&machine(), "fail");
    let line = events.iter().find_map(|event| if let Event::Log(line) = event { Some(line) } else { None }).expect("a log line");
    assert_eq!((line.message.as_str(), line.level, line.cpu), ("about to fail", Some(Level::Warn), Some(1)));
    let (file, number) = line.location.as_ref().expect("debug information");
    assert_eq!(file, "qemu-tests/kernel/src/bin/failures.rs");
    assert!(*number > 1);
    assert!(line.timestamp.parse::<f64>().is_ok_and(|seconds| seconds > 0.0), "{line}");
}

#[test]
fn a_failed_case_shows_its_log_lines_and_any_case_when_asked() {
    let text = stdout(&runner("fail").output().expect("runs"));
    let block = text.split("---- bad stdout ----\n").nth(1).expect("a block");
    let line = block.lines().next().expect("a line");
    assert!(line.contains(" cpu1 WARN  about to fail   (qemu-tests/kernel/src/bin/failures.rs:"), "{line}");
    assert!(!text.contains('\x1b'), "colours, and no terminal");
    let text = stdout(&runner("fail").arg("--nocapture").output().expect("runs"));
    assert!(text.find("about to fail").expect("shown") < text.find("test bad ...").expect("shown"), "{text}");
}

#[test]
fn a_panic_is_told_with_file_line_and_cpu() {
    let panics_on = |machine: &Machine, kind: &str, on: u32| {
        let (ending, events) = boot(machine, kind);
        let Ending::Panicked { panic: Some(Panic { cpu, location, message }) } = ending else { panic!("{ending:?}") };
        assert_eq!((cpu, message.as_str()), (on, "on purpose"));
        let place = location.strip_prefix("qemu-tests/kernel/src/bin/failures.rs:").expect("the file");
        assert!(place.split(':').all(|number| number.parse::<u32>().is_ok()), "{location}");
        assert!(matches!(events.last(), Some(Event::Panic(_))), "{events:?}");
    };
    panics_on(&machine(), "panic", 0);
    panics_on(&machine(), "panic_ap", 1);
    panics_on(&Machine { cpus: 4, ..machine() }, "panic_ap", 3);
}

#[test]
fn a_panic_fails_the_run() {
    let output = runner("panic_ap").output().expect("runs");
    assert_eq!(output.status.code(), Some(101));
    assert!(stdout(&output).contains("panic on CPU 1 at qemu-tests/kernel/src/bin/failures.rs:"), "{}", stdout(&output));
}

#[test]
fn a_triple_fault_is_told_from_success_and_from_a_failed_start() {
    // The kernel does this before it has said anything.
    assert_eq!(boot(&machine(), "triple").0, Ending::EndedSilently);
    let output = runner("triple").output().expect("runs");
    assert_eq!(output.status.code(), Some(101));
    assert!(stdout(&output).contains("QEMU ended without a word from the kernel: a triple fault during boot, or"), "{}", stdout(&output));
}

#[test]
fn the_registers_of_a_triple_fault_are_where_the_advice_says() {
    let directory = tempfile::tempdir().expect("a folder");
    let log = directory.path().join("log");
    let advice = boot(&machine(), "triple").0.to_string();
    let options = advice.split('`').nth(1).expect("options").replace("FILE", log.to_str().expect("UTF-8"));
    let mut command = runner("triple");
    command.args(options.split_whitespace().map(|option| format!("--qemu-arg={option}")));
    command.output().expect("runs");
    assert!(fs::read_to_string(&log).expect("the log").contains("Triple fault"));
}

#[test]
fn a_reset_after_the_first_word_is_a_triple_fault() {
    let kernel = Kernel::open(elf()).expect("a defmt kernel");
    let directory = tempfile::tempdir().expect("a folder");
    let socket = directory.path().join("qmp");
    let qmp = format!("unix:{},server=on,wait=off", socket.display());
    let machine = Machine { qemu_args: vec!["-qmp".into(), qmp.into()], ..machine() };
    let mut monitor = None;
    let ending = machine.boot(&kernel, "kind=hang", |event| {
        if let Event::Begin(_) = event {
            let mut stream = UnixStream::connect(&socket).expect("QEMU listens");
            stream.write_all(br#"{"execute": "qmp_capabilities"} {"execute": "system_reset"}"#).expect("QEMU reads");
            monitor = Some(stream);
        }
    });
    assert_eq!(ending, Ending::TripleFault);
}

#[test]
fn a_qemu_that_says_nothing_and_ends_well_is_no_triple_fault() {
    assert_eq!(boot(&Machine { qemu: "/bin/true".into(), ..machine() }, "ok").0, Ending::EndedSilently);
}

#[test]
fn a_qemu_that_does_not_start_says_why_in_its_own_words() {
    let machine = Machine { qemu_args: vec!["--dance".into()], ..machine() };
    let (ending, events) = boot(&machine, "ok");
    let Ending::CouldNotStart { reason } = ending else { panic!("{ending:?}") };
    assert!(reason.contains("--dance: invalid option"), "{reason}");
    assert_eq!(events, []);
}

#[test]
fn a_qemu_that_does_not_start_is_the_same_line_and_code_with_a_filter_and_without() {
    for further in [&[][..], &["nothing"], &["--list"]] {
        let output = runner("ok").arg("--qemu-arg=--dance").args(further).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{further:?}");
        assert_eq!(the_line(&output), "error: QEMU could not start: qemu-system-x86_64: --dance: invalid option");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn all_of_qemus_message_is_told() {
    let output = runner("ok").args(["--qemu-arg=-m", "--qemu-arg=foo"]).output().expect("runs");
    let line = the_line(&output);
    assert!(line.contains("-m foo: Parameter 'size' expects") && line.contains("exabytes"), "{line}");
}

#[test]
fn a_machine_that_cannot_be_is_refused_before_qemu_starts() {
    for (option, value, wanted) in
        [("--memory", "foo", "a whole number above 0 is wanted"), ("--cpus", "256", "a number between 1 and 255 is wanted")]
    {
        let output = runner("ok").env("QEMU", "/bin/false").args([option, value]).output().expect("runs");
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(&format!("error: invalid value '{value}' for '{option}")) && text.contains(wanted), "{text}");
    }
}

#[test]
fn a_wrong_option_in_the_variable_names_the_variable() {
    let output = runner("ok").env("KERNEL_RUNNER_ARGS", "--dance").output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("error: in the environment variable KERNEL_RUNNER_ARGS: unexpected argument '--dance'"), "{text}");
}

#[test]
fn a_qemu_that_cannot_be_executed_could_not_start() {
    let machine = Machine { qemu: "/dev/null".into(), ..machine() };
    let (ending, _) = boot(&machine, "ok");
    assert!(matches!(&ending, Ending::CouldNotStart { reason } if reason.starts_with("/dev/null: ")), "{ending:?}");
}

#[test]
fn a_hang_is_a_time_out_that_keeps_the_log() {
    let limit = Duration::from_secs(10);
    let (ending, events) = boot(&Machine { time_limit: Some(limit), ..machine() }, "hang");
    let Ending::TimedOut { after, last_line } = ending else { panic!("{ending:?}") };
    assert!(after >= limit && after < limit * 2, "{after:?}");
    assert_eq!(last_line.as_deref(), Some("@begin endless"));
    assert!(events.ends_with(&[Event::Plan(1), Event::Begin("endless".to_owned())]), "{events:?}");
}

#[test]
fn a_case_that_hangs_has_failed() {
    let output = runner("hang").args(["--time-limit", "10"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(101));
    let text = stdout(&output);
    assert!(text.contains("test endless ... FAILED"), "{text}");
    assert!(text.contains("time-out: killed after 10.0 s; the last line was `@begin endless`"), "{text}");
}

#[test]
fn a_time_out_without_a_word_has_the_same_code_with_a_filter_and_without_and_asks_for_the_memory() {
    for further in [&[][..], &["endless"]] {
        let output = runner("silent_hang").args(["--time-limit", "5", "--memory", "256"]).args(further).output().expect("runs");
        assert_eq!(output.status.code(), Some(101), "{further:?}");
        let text = stdout(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("the kernel logged nothing (too little memory for it? --memory is 256)"), "{text}");
    }
}

#[test]
fn an_early_exit_is_never_a_pass() {
    assert_eq!(boot(&machine(), "short").0, Ending::TooFewTests { announced: Some(2), seen: 1 });
    let output = runner("short").output().expect("runs");
    assert_eq!(output.status.code(), Some(101));
    let text = stdout(&output);
    assert!(text.contains("test first ... ok"), "{text}");
    assert!(text.contains("fewer tests than announced: 1 of 2 reported a result"), "{text}");
    assert!(text.contains("test result: FAILED. 1 passed; 0 failed;"), "{text}");
}

#[test]
fn a_test_kernel_that_announces_nothing_has_not_passed() {
    let output = runner("no_plan").output().expect("runs");
    assert_eq!(output.status.code(), Some(101));
    assert!(stdout(&output).contains("fewer tests than announced: the kernel announced none"), "{}", stdout(&output));
}

#[test]
fn a_qemu_that_is_killed_has_crashed() {
    let kernel = Kernel::open(elf()).expect("a defmt kernel");
    let directory = tempfile::tempdir().expect("a folder");
    let pid_file = directory.path().join("pid");
    let machine = Machine { qemu_args: vec!["-pidfile".into(), pid_file.clone().into()], ..machine() };
    let ending = machine.boot(&kernel, "kind=hang", |event| {
        if let Event::Begin(_) = event {
            kill("-SEGV", fs::read_to_string(&pid_file).expect("QEMU's number").trim());
        }
    });
    assert_eq!(ending, Ending::Crashed { signal: 11 });
}

#[test]
fn what_is_no_defmt_kernel_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a folder");
    let text = directory.path().join("text");
    fs::write(&text, "not a kernel\n").expect("written");
    let missing = directory.path().join("missing");
    let plain = std::env::current_exe().expect("this test");
    for (file, complaint) in [
        (&missing, "No such file"),
        (&directory.path().to_owned(), "Is a directory"),
        (&text, "is not an ELF file"),
        (&plain, "is an ELF file without a defmt table"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_kernel-runner")).arg(file).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{}", file.display());
        let line = the_line(&output);
        assert!(line.starts_with("error: ") && line.contains(complaint), "{line}");
    }
}

#[test]
fn a_missing_qemu_is_one_line() {
    let output = runner("ok").env("QEMU", "/no/such/qemu").output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(the_line(&output).starts_with("error: /no/such/qemu was not found: install QEMU"), "{}", the_line(&output));
}

#[test]
fn a_kernel_that_does_not_build_is_an_error() {
    let error = build_kernel(Path::new(env!("CARGO_MANIFEST_DIR")), &["build", "--package", "no-such-package", "--quiet", "--offline"]);
    assert!(matches!(&error, Err(Error::BuildFailed { command }) if command.contains("no-such-package")), "{error:?}");
}

#[test]
fn steps_come_in_order() {
    let kernel = Kernel::open(elf()).expect("a defmt kernel");
    let mut steps = Vec::new();
    let report = run_cases(&machine(), &kernel, "kind=fail", None, |step| match step {
        Step::Plan(count) => steps.push(format!("plan {count}")),
        Step::Begin(name) => steps.push(format!("begin {name}")),
        Step::Done(case) => steps.push(format!("done {} {:?}", case.name, case.failure)),
        Step::Line(_) => {}
    });
    assert_eq!(steps, ["plan 2", "begin good", "done good None", "begin bad", "done bad Some(\"on purpose\")"]);
    assert!(!report.is_passed());
    assert_eq!(report.trouble, None);
}

/// However the runner ends, its QEMU does not outlive it.
fn no_qemu_is_left_after(signal: &str) {
    let directory = tempfile::tempdir().expect("a folder");
    let pid_file = directory.path().join("pid");
    let mut command = runner("hang");
    command.args(["--qemu-arg", "-pidfile", "--qemu-arg"]).arg(&pid_file);
    let mut runner = command.stdout(Stdio::null()).spawn().expect("runs");
    let pid = wait_for("QEMU's start", || fs::read_to_string(&pid_file).ok().filter(|pid| pid.ends_with('\n')));
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists(), "QEMU runs");
    kill(signal, &runner.id().to_string());
    let status = runner.wait().expect("ends");
    assert_eq!(status.code(), None, "the signal itself ends the runner: {status}");
    wait_for("QEMU's end", || {
        // A process that nobody has waited for yet still has a folder, but no memory.
        let state = fs::read_to_string(process.join("stat")).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    });
}

#[test]
fn ctrl_c_leaves_no_qemu_behind() {
    no_qemu_is_left_after("-INT");
}

#[test]
fn sigterm_leaves_no_qemu_behind() {
    no_qemu_is_left_after("-TERM");
}

#[cfg(target_os = "linux")]
#[test]
fn kill_9_leaves_no_qemu_behind() {
    no_qemu_is_left_after("-KILL");
}

fn kill(signal: &str, pid: &str) {
    let status = Command::new("kill").args([signal, pid]).status().expect("kill runs");
    assert!(status.success());
}

fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        match probe() {
            Some(value) => return value,
            None if start.elapsed() > Duration::from_secs(30) => panic!("no sign of {what} in 30 s"),
            None => sleep(Duration::from_millis(20)),
        }
    }
}
