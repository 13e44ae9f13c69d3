//! One boot: from the start of QEMU to the [`Ending`].

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Guarded, POLL};
use crate::{Ending, Event, Kernel, LogLine, Machine, Panic};

/// What QEMU exits with for a value written to `isa-debug-exit`: twice the value and one.
const EXIT_SUCCESS: i32 = 0x10 * 2 + 1;
const EXIT_TEST_FAILED: i32 = 0x11 * 2 + 1;
const EXIT_PANIC: i32 = 0x12 * 2 + 1;

impl Machine {
    /// Boots `kernel` with the words of `command_line`, calls `on_event` for everything that it says, as it says it, and
    /// returns how the boot ended. Blocks until then; QEMU is gone when it returns.
    pub fn boot(&self, kernel: &Kernel, command_line: &str, mut on_event: impl FnMut(Event)) -> Ending {
        if let Some(reason) = self.accel.unavailable() {
            return Ending::CouldNotStart { reason: reason.to_owned() };
        }
        let start = Instant::now();
        let mut command = self.command(kernel, command_line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut qemu = match Guarded::spawn(&mut command) {
            Ok(qemu) => qemu,
            Err(error) => return Ending::CouldNotStart { reason: format!("{}: {error}", self.qemu.display()) },
        };
        let (mut stdout, mut stderr) = qemu.take_stdout().zip(qemu.take_stderr()).expect("both are piped and taken once");
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let (sender, chunks) = mpsc::sync_channel::<Vec<u8>>(64);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });

        let mut decoder = kernel.decoder();
        let mut seen = Seen::default();
        let status = loop {
            let left = self.time_limit.map_or(Duration::MAX, |limit| limit.saturating_sub(start.elapsed()));
            if left.is_zero() {
                break None;
            }
            match chunks.recv_timeout(left.min(Duration::from_secs(3600))) {
                Ok(bytes) => decoder.push(&bytes, |line| on_event(seen.note(line))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match qemu.try_wait() {
                    Ok(Some(status)) => break Some(status),
                    _ => thread::sleep(POLL.min(left)),
                },
            }
        };
        let after = start.elapsed();
        qemu.kill();
        // What was on its way when the time was over belongs to the log. After `kill` both pipes end.
        for bytes in chunks {
            decoder.push(&bytes, |line| on_event(seen.note(line)));
        }
        let stderr = errors.join().unwrap_or_default();
        seen.ending(status, after, &stderr)
    }
}

/// What a boot has said so far, as far as it decides how it ended.
#[derive(Debug, Default)]
struct Seen {
    announced: Option<usize>,
    passed: usize,
    failed: Vec<String>,
    panic: Option<Panic>,
    last_line: Option<String>,
}

impl Seen {
    fn note(&mut self, line: LogLine) -> Event {
        self.last_line = Some(line.message.clone());
        let event = Event::of(line);
        match &event {
            Event::Plan(count) => self.announced = Some(*count),
            Event::Pass(_) => self.passed += 1,
            Event::Fail { name, .. } => self.failed.push(name.clone()),
            // The first panic is the cause; others may follow from it.
            Event::Panic(panic) => {
                self.panic.get_or_insert_with(|| panic.clone());
            }
            _ => {}
        }
        event
    }

    /// `status` is `None` if the time limit passed.
    fn ending(self, status: Option<ExitStatus>, after: Duration, stderr: &str) -> Ending {
        if let Some(panic) = self.panic {
            return Ending::Panicked { panic: Some(panic) };
        }
        let Some(status) = status else {
            return Ending::TimedOut { after, last_line: self.last_line };
        };
        if let Some(signal) = status.signal().or_else(|| terminated_by(stderr)) {
            return Ending::Crashed { signal };
        }
        let said_nothing = self.last_line.is_none();
        let seen = self.passed + self.failed.len();
        match status.code().unwrap_or_default() {
            EXIT_SUCCESS | EXIT_TEST_FAILED if !self.failed.is_empty() => Ending::TestsFailed { names: self.failed },
            EXIT_SUCCESS if self.announced.unwrap_or(0) > seen => Ending::TooFewTests { announced: self.announced, seen },
            EXIT_SUCCESS => Ending::Passed,
            EXIT_TEST_FAILED => Ending::TestsFailed { names: Vec::new() },
            EXIT_PANIC => Ending::Panicked { panic: None },
            0 if said_nothing => Ending::EndedSilently,
            0 => Ending::TripleFault,
            1 if said_nothing => Ending::CouldNotStart { reason: on_one_line(stderr).unwrap_or_else(|| "it said nothing".to_owned()) },
            code => Ending::UnknownExit { code, stderr: on_one_line(stderr) },
        }
    }
}

/// QEMU catches the signals that ask it to end, and then exits with 0, as after a guest's reset.
fn terminated_by(stderr: &str) -> Option<i32> {
    let (_, rest) = stderr.split_once("terminating on signal ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// QEMU's warnings and the message that says why it stops, which may have several lines. Of a long text, such as the log of `-d`, the end.
fn on_one_line(text: &str) -> Option<String> {
    const MAX_LINES: usize = 8;
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(MAX_LINES)..];
    (!last.is_empty()).then(|| last.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> Option<ExitStatus> {
        Some(ExitStatus::from_raw(code << 8))
    }

    fn after(messages: &[&str], status: Option<ExitStatus>, stderr: &str) -> Ending {
        let mut seen = Seen::default();
        for message in messages {
            seen.note(LogLine::new(*message));
        }
        seen.ending(status, Duration::from_secs(2), stderr)
    }

    #[test]
    fn success_needs_the_code_and_every_announced_result() {
        assert_eq!(after(&["hello"], exit(33), ""), Ending::Passed);
        assert_eq!(after(&["@plan 1", "@pass a"], exit(33), ""), Ending::Passed);
        assert_eq!(after(&["@plan 2", "@pass a"], exit(33), ""), Ending::TooFewTests { announced: Some(2), seen: 1 });
    }

    #[test]
    fn a_failed_case_is_a_failure_whatever_the_code_says() {
        for code in [33, 35] {
            let ending = after(&["@plan 2", "@pass a", "@fail b: why"], exit(code), "");
            assert_eq!(ending, Ending::TestsFailed { names: vec!["b".into()] });
        }
        assert_eq!(after(&[], exit(35), ""), Ending::TestsFailed { names: vec![] });
    }

    #[test]
    fn a_panic_is_a_panic_even_if_the_machine_then_hangs_or_resets() {
        let panic = Panic { cpu: 1, location: "a.rs:1:2".into(), message: "m".into() };
        for status in [exit(37), exit(0), None] {
            let ending = after(&["@panic cpu=1 a.rs:1:2: m", "@panic cpu=0 b.rs:1:1: n"], status, "");
            assert_eq!(ending, Ending::Panicked { panic: Some(panic.clone()) });
        }
        assert_eq!(after(&[], exit(37), ""), Ending::Panicked { panic: None });
    }

    #[test]
    fn zero_one_and_a_signal_are_three_different_kinds() {
        assert_eq!(after(&["hello"], exit(0), ""), Ending::TripleFault);
        assert_eq!(after(&[], exit(1), "qemu: -x: invalid option\n"), Ending::CouldNotStart { reason: "qemu: -x: invalid option".into() });
        assert_eq!(after(&["hello"], Some(ExitStatus::from_raw(11)), ""), Ending::Crashed { signal: 11 });
        let asked = "qemu-system-x86_64: terminating on signal 15 from pid 4 (sh)\n";
        assert_eq!(after(&["hello"], exit(0), asked), Ending::Crashed { signal: 15 });
    }

    #[test]
    fn a_reset_before_the_first_word_is_no_evidence_of_a_triple_fault() {
        assert_eq!(after(&[], exit(0), ""), Ending::EndedSilently);
    }

    #[test]
    fn all_of_qemus_message_is_the_reason() {
        let stderr = "qemu: warning: w\n\nqemu: -m foo: Parameter 'size' expects a number\nOptional suffix k means kilo-\n";
        let reason = "qemu: warning: w; qemu: -m foo: Parameter 'size' expects a number; Optional suffix k means kilo-".to_owned();
        assert_eq!(after(&[], exit(1), stderr), Ending::CouldNotStart { reason });
        assert_eq!(after(&[], exit(1), " \n"), Ending::CouldNotStart { reason: "it said nothing".into() });
    }

    #[test]
    fn of_a_long_text_the_end_is_the_reason() {
        let stderr: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let Ending::CouldNotStart { reason } = after(&[], exit(1), &stderr) else { panic!("it started") };
        assert!(reason.starts_with("line 92; ") && reason.ends_with("; line 99"), "{reason}");
    }

    #[test]
    fn one_after_a_log_is_not_a_failed_start() {
        assert_eq!(after(&["hello"], exit(1), ""), Ending::UnknownExit { code: 1, stderr: None });
        assert_eq!(after(&[], exit(99), "x\n"), Ending::UnknownExit { code: 99, stderr: Some("x".into()) });
    }

    #[test]
    fn a_time_out_tells_the_last_line() {
        let last_line = Some("@begin a".to_owned());
        assert_eq!(after(&["x", "@begin a"], None, ""), Ending::TimedOut { after: Duration::from_secs(2), last_line });
    }
}
