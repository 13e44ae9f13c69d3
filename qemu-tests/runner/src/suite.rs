//! Running a kernel's test cases: one report for each, however the boots end.
//!
//! A case that ends the machine (panic, triple fault, hang) fails with that as its reason, and the cases after it run in a
//! new boot, so that one does not hide the rest. Every new boot has fewer cases to run than the one before, and a boot that
//! began none is the last, so this ends.

use std::collections::HashSet;

use crate::{Ending, Event, Kernel, LogLine, Machine};

/// Boots after which the cases that are left count as not run: a kernel in which this many cases end the machine needs
/// attention more than it needs further boots.
const MAX_BOOTS: usize = 32;

/// How much of the command line one boot's case names may fill: QEMU's PVH loader hands over at most 4096 bytes.
const MAX_NAMES_BYTES: usize = 3072;

/// What became of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseReport {
    /// Its name.
    pub name: String,
    /// Why it failed; `None` if it passed.
    pub failure: Option<String>,
    /// What was logged between its begin and its end.
    pub log: Vec<LogLine>,
    /// Whether [`Step::Begin`] was there for it; not if it was never run.
    pub began: bool,
}

/// What became of all cases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteReport {
    /// In the order in which they ended.
    pub cases: Vec<CaseReport>,
    /// What was logged outside of cases.
    pub log: Vec<LogLine>,
    /// What went wrong that no case's failure accounts for.
    pub trouble: Option<Ending>,
}

impl SuiteReport {
    /// Whether every case ran and passed.
    pub fn is_passed(&self) -> bool {
        self.trouble.is_none() && self.cases.iter().all(|case| case.failure.is_none())
    }
}

/// What happens while cases run.
#[derive(Debug)]
pub enum Step<'a> {
    /// This many cases will run. Comes once, first.
    Plan(usize),
    /// This case begins.
    Begin(&'a str),
    /// The kernel logged, in a case or outside.
    Line(&'a LogLine),
    /// A case has ended.
    Done(&'a CaseReport),
}

/// The names of all cases that the kernel holds, from a boot of its own. `words` are further words for its command line.
///
/// # Errors
/// How the boot ended, if not well.
pub fn list_cases(machine: &Machine, kernel: &Kernel, words: &str) -> Result<Vec<String>, Ending> {
    // A debugger is for the boot that runs the cases.
    let machine = Machine { gdb: false, ..machine.clone() };
    let mut names = Vec::new();
    let ending = machine.boot(kernel, join(&[words, "list"]).as_str(), |event| {
        if let Event::Case(name) = event {
            names.push(name);
        }
    });
    if ending.is_passed() { Ok(names) } else { Err(ending) }
}

/// Runs these cases, or all if `cases` is `None`, in as few boots as possible: one, if no case ends the machine. `words`
/// are further words for the kernel's command line; `on_step` is called as things happen.
pub fn run_cases(
    machine: &Machine,
    kernel: &Kernel,
    words: &str,
    cases: Option<&[String]>,
    on_step: impl FnMut(Step<'_>),
) -> SuiteReport {
    Run { guest: Qemu { machine, kernel, words }, on_step, announced: None, report: SuiteReport::default() }.cases(cases)
}

/// What runs the cases.
trait Guest {
    /// Boots with these words added to the command line.
    fn boot(&mut self, words: &str, on_event: &mut dyn FnMut(Event)) -> Ending;
    /// The names of all cases.
    fn list(&mut self) -> Result<Vec<String>, Ending>;
}

struct Qemu<'a> {
    machine: &'a Machine,
    kernel: &'a Kernel,
    words: &'a str,
}

impl Guest for Qemu<'_> {
    fn boot(&mut self, words: &str, on_event: &mut dyn FnMut(Event)) -> Ending {
        self.machine.boot(self.kernel, &join(&[self.words, words]), on_event)
    }

    fn list(&mut self) -> Result<Vec<String>, Ending> {
        list_cases(self.machine, self.kernel, self.words)
    }
}

struct Run<G, F> {
    guest: G,
    on_step: F,
    announced: Option<usize>,
    report: SuiteReport,
}

impl<G: Guest, F: FnMut(Step<'_>)> Run<G, F> {
    fn cases(mut self, cases: Option<&[String]>) -> SuiteReport {
        if let Some(cases) = cases {
            self.announce(cases.len());
        }
        let mut left = cases.map(<[String]>::to_vec);
        for _ in 0..MAX_BOOTS {
            if left.as_ref().is_some_and(Vec::is_empty) {
                return self.report;
            }
            if let Some(trouble) = self.boot(left.as_deref().map(fitting)) {
                return self.give_up(left, trouble);
            }
            // All of the boot's cases have a report, or the one that ended the machine has.
            left = match left {
                Some(names) => Some(self.without_report(names)),
                None if self.report.cases.len() >= self.announced.unwrap_or(0) => return self.report,
                None => match self.guest.list() {
                    Ok(names) => Some(self.without_report(names)),
                    Err(trouble) => return self.give_up(None, trouble),
                },
            };
        }
        if left.as_ref().is_some_and(Vec::is_empty) {
            return self.report;
        }
        let trouble = Ending::TooFewTests { announced: self.announced, seen: self.report.cases.len() };
        self.give_up(left, trouble)
    }

    /// Boots once, for these cases or for all. Returns how the boot ended if no case's failure accounts for it.
    fn boot(&mut self, batch: Option<&[String]>) -> Option<Ending> {
        let reported_before = self.report.cases.len();
        let mut planned = None;
        let mut running: Option<CaseReport> = None;
        let Run { guest, on_step, announced, report } = self;
 let ending = guest.boot(&batch.map(exactly).unwrap_or_default(), &mut |event| match event {
            Event::Plan(count) => {
                planned = Some(count);
                self.announce(count);
            }
            Event::Begin(name) => {
                (self.on_step)(Step::Begin(&name));
                running = Some(CaseReport { name, failure: None, log: Vec::new(), began: true });
            }
            Event::Log(line) => {
                (self.on_step)(Step::Line(&line));
                running.as_mut().map_or(&mut self.report.log, |case| &mut case.log).push(line);
            }
            Event::Pass(name) => self.done(result(running.take(), name, None)),
            Event::Fail { name, reason } => self.done(result(running.take(), name, Some(reason))),
            _ => {}
        });
        if let Some(case) = running {
            let reason = if ending.is_passed() { "the kernel ended in the middle of it".to_owned() } else { ending.to_string() };
            self.done(CaseReport { failure: Some(reason), ..case });
            return None;
        }
        match ending {
            Ending::TestsFailed { names } if names.is_empty() => Some(Ending::TestsFailed { names }),
            Ending::Passed | Ending::TestsFailed { .. } => {
                let announced = batch.map(<[String]>::len).or(planned);
                let seen = self.report.cases.len() - reported_before;
                (planned.is_none() || announced > Some(seen)).then_some(Ending::TooFewTests { announced: planned.and(announced), seen })
            }
            ending => Some(ending),
        }
    }

    /// Only the first boot's plan is that of the whole run.
    fn announce(&mut self, count: usize) {
        if self.announced.is_none() {
            self.announced = Some(count);
            (self.on_step)(Step::Plan(count));
        }
    }

    fn done(&mut self, case: CaseReport) {
        (self.on_step)(Step::Done(&case));
        self.report.cases.push(case);
    }

    fn without_report(&self, mut names: Vec<String>) -> Vec<String> {
        let done: HashSet<&str> = self.report.cases.iter().map(|case| case.name.as_str()).collect();
        names.retain(|name| !done.contains(name.as_str()));
        names
    }

    /// Ends the run: what is left has not run.
    fn give_up(mut self, left: Option<Vec<String>>, trouble: Ending) -> SuiteReport {
        for name in self.without_report(left.unwrap_or_default()) {
            self.done(CaseReport { name, failure: Some(format!("not run: {trouble}")), log: Vec::new(), began: false });
        }
        self.report.trouble = Some(trouble);
        self.report
    }
}

/// The report of the case that ran, or of one that reports a result without having begun.
fn result(running: Option<CaseReport>, name: String, failure: Option<String>) -> CaseReport {
    match running.filter(|case| case.name == name) {
        Some(case) => CaseReport { failure, ..case },
        None => CaseReport { name, failure, log: Vec::new(), began: false },
    }
}

/// The first of these names, as many as fit on a command line; at least one, if there is one.
fn fitting(names: &[String]) -> &[String] {
    let mut bytes = 0;
    let end = names.iter().position(|name| {
        bytes += " filter=".len() + name.len();
        bytes > MAX_NAMES_BYTES
    });
    &names[..end.map_or(names.len(), |end| end.max(1))]
}

/// The words that let the kernel run these cases and no others.
fn exactly(names: &[String]) -> String {
    let filters = names.iter().map(|name| format!(" filter={name}"));
    format!("exact{}", filters.collect::<String>())
}

fn join(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().copied().filter(|words| !words.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("module::case_{i:04}")).collect()
    }

    #[test]
    fn names_that_do_not_fit_on_one_command_line_wait_for_the_next_boot() {
        let names = names(1000);
        let batch = fitting(&names);
        assert!(!batch.is_empty() && batch.len() < names.len());
        assert!(exactly(batch).len() <= MAX_NAMES_BYTES + "exact".len());
        assert!(exactly(&names[..batch.len() + 1]).len() > MAX_NAMES_BYTES);
        assert_eq!(fitting(&names[..3]), &names[..3]);
    }

    #[test]
    fn a_name_longer_than_a_command_line_is_still_tried() {
        let names = ["x".repeat(2 * MAX_NAMES_BYTES), "y".to_owned()];
        assert_eq!(fitting(&names).len(), 1);
        assert!(fitting(&[]).is_empty());
    }

    #[test]
    fn words_are_separated_by_single_blanks() {
        assert_eq!(join(&["", "exact filter=a"]), "exact filter=a");
        assert_eq!(join(&["seconds=1", &exactly(&names(1))]), "seconds=1 exact filter=module::case_0000");
    }
}
