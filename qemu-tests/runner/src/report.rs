//! libtest's output: the same lines, so that people and tools find what they know.

use std::io::{self, Write};
use std::time::Instant;

use anstyle::{AnsiColor, Style};
use kernel_runner::{CaseReport, Step, SuiteReport};

use crate::cli::Format;

const OK: Style = AnsiColor::Green.on_default();
const FAILED: Style = AnsiColor::Red.on_default();

/// How many characters of the terse format stand on a line.
const TERSE_WIDTH: usize = 88;

/// Prints a run as it goes.
#[derive(Debug)]
pub struct Report<W> {
    out: W,
    format: Format,
    nocapture: bool,
    start: Instant,
    printed: usize,
}

impl<W: Write> Report<W> {
    /// Starts the clock. With `nocapture`, log lines are shown as they come.
    pub fn new(out: W, format: Format, nocapture: bool) -> Report<W> {
        Report { out, format, nocapture, start: Instant::now(), printed: 0 }
    }

    /// `--list`'s output.
    pub fn list(&mut self, names: &[String]) -> io::Result<()> {
        for name in names {
            writeln!(self.out, "{name}: test")?;
        }
        if self.format == Format::Pretty {
            writeln!(self.out, "\n{}, 0 benchmarks", tests(names.len()))?;
        }
        Ok(())
    }

    /// What a step of the run adds.
    pub fn step(&mut self, step: &Step<'_>) -> io::Result<()> {
        match step {
            Step::Plan(count) => writeln!(self.out, "\nrunning {}", tests(*count))?,
            // A case's name stands there while it runs, unless its log lines are to come in between.
            Step::Begin(name) if self.format == Format::Pretty && !self.nocapture => write!(self.out, "test {name} ... ")?,
            Step::Line(line) if self.nocapture => writeln!(self.out, "{}", line.styled())?,
            Step::Done(case) => self.done(case)?,
            Step::Begin(_) | Step::Line(_) => {}
        }
        self.out.flush()
    }

    fn done(&mut self, case: &CaseReport) -> io::Result<()> {
        let (style, word, letter) = if case.failure.is_none() { (OK, "ok", '.') } else { (FAILED, "FAILED", 'F') };
        self.printed += 1;
        match self.format {
            Format::Terse => {
                write!(self.out, "{style}{letter}{style:#}")?;
                if self.printed.is_multiple_of(TERSE_WIDTH) { writeln!(self.out) } else { Ok(()) }
            }
            Format::Pretty if self.nocapture || !case.began => writeln!(self.out, "test {} ... {style}{word}{style:#}", case.name),
            Format::Pretty => writeln!(self.out, "{style}{word}{style:#}"),
        }
    }

    /// The failures and the last line. `trouble` is what to say about the report's, if it has any.
    pub fn finish(&mut self, report: &SuiteReport, trouble: Option<&str>, filtered_out: usize) -> io::Result<()> {
        if self.format == Format::Terse {
            writeln!(self.out)?;
        }
        let failures: Vec<_> = report.cases.iter().filter_map(|case| Some((case, case.failure.as_ref()?))).collect();
        if !failures.is_empty() {
            writeln!(self.out, "\nfailures:")?;
            for (case, reason) in &failures {
                writeln!(self.out, "\n---- {} stdout ----", case.name)?;
                for line in case.log.iter().filter(|_| !self.nocapture) {
                    writeln!(self.out, "{}", line.styled())?;
                }
                writeln!(self.out, "{reason}")?;
            }
            writeln!(self.out, "\nfailures:")?;
            for (case, _) in &failures {
                writeln!(self.out, "    {}", case.name)?;
            }
        }
        if let Some(trouble) = trouble {
            writeln!(self.out, "\n---- outside of any test ----")?;
            for line in report.log.iter().filter(|_| !self.nocapture) {
                writeln!(self.out, "{}", line.styled())?;
            }
            writeln!(self.out, "{trouble}")?;
        }
        let (style, word) = if report.is_passed() { (OK, "ok") } else { (FAILED, "FAILED") };
        writeln!(
            self.out,
            "\ntest result: {style}{word}{style:#}. {} passed; {} failed; 0 ignored; 0 measured; {filtered_out} filtered out; finished in {:.2}s\n",
            report.cases.len() - failures.len(),
            failures.len(),
            self.start.elapsed().as_secs_f64()
        )?;
        self.out.flush()
    }
}

fn tests(count: usize) -> String {
    format!("{count} test{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_runner::Ending;

    fn case(name: &str, failure: Option<&str>) -> CaseReport {
        CaseReport { name: name.into(), failure: failure.map(str::to_owned), log: Vec::new(), began: true }
    }

    fn printed(format: Format, nocapture: bool, cases: Vec<CaseReport>, trouble: Option<Ending>) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        let mut report = Report::new(&mut out, format, nocapture);
        report.step(&Step::Plan(cases.len())).expect("memory");
        for case in &cases {
            report.step(&Step::Begin(&case.name)).expect("memory");
            report.step(&Step::Done(case)).expect("memory");
        }
        let told = trouble.as_ref().map(Ending::to_string);
        report.finish(&SuiteReport { cases, log: Vec::new(), trouble }, told.as_deref(), 3).expect("memory");
        let text = String::from_utf8(out.into_inner()).expect("text");
        let (text, _seconds) = text.rsplit_once(" finished in ").expect("the last line");
        text.to_owned()
    }

    #[test]
    fn a_run_that_passes_looks_as_libtests() {
        let text = printed(Format::Pretty, false, vec![case("a", None), case("b::c", None)], None);
        assert_eq!(
            text,
            "\nrunning 2 tests\ntest a ... ok\ntest b::c ... ok\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out;"
        );
        assert_eq!(printed(Format::Pretty, true, vec![case("a", None), case("b::c", None)], None), text);
    }

    #[test]
    fn a_failure_is_shown_with_its_reason_and_listed() {
        let text = printed(Format::Pretty, false, vec![case("a", Some("left: 1"))], None);
        assert_eq!(
            text,
            "\nrunning 1 test\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nleft: 1\n\nfailures:\n    a\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out;"
        );
    }

    #[test]
    fn terse_is_a_character_for_each_case() {
        let text = printed(Format::Terse, false, vec![case("a", None), case("b", Some("why")), case("c", None)], None);
        assert!(text.starts_with("\nrunning 3 tests\n.F.\n"), "{text}");
    }

    #[test]
    fn trouble_outside_of_cases_fails_the_run() {
        let text = printed(Format::Pretty, false, vec![case("a", None)], Some(Ending::TripleFault));
        assert!(text.contains("\ntriple fault: ") && text.contains("test result: FAILED. 1 passed; 0 failed;"), "{text}");
    }
}
