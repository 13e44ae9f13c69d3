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
pub fn run_cases(machine: &Machine, kernel: &Kernel, words: &str, cases: Option<&[String]>, on_step: impl FnMut(Step<'_>)) -> SuiteReport {
    Run { on_step, announced: None, report: SuiteReport::default() }.cases(&mut Qemu { machine, kernel, words }, cases)
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

struct Run<F> {
    on_step: F,
    announced: Option<usize>,
    report: SuiteReport,
}

impl<F: FnMut(Step<'_>)> Run<F> {
    fn cases(mut self, guest: &mut impl Guest, cases: Option<&[String]>) -> SuiteReport {
        if let Some(cases) = cases {
            self.announce(cases.len());
        }
        let mut left = cases.map(<[String]>::to_vec);
        for _ in 0..MAX_BOOTS {
            if left.as_ref().is_some_and(Vec::is_empty) {
                return self.report;
            }
            if let Some(trouble) = self.boot(guest, left.as_deref().map(fitting)) {
                return self.give_up(left, trouble);
            }
            // All of the boot's cases have a report, or the one that ended the machine has.
            left = match left {
                Some(names) => Some(self.without_report(names)),
                None if self.report.cases.len() >= self.announced.unwrap_or(0) => return self.report,
                None => match guest.list() {
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
    fn boot(&mut self, guest: &mut impl Guest, batch: Option<&[String]>) -> Option<Ending> {
        let reported_before = self.report.cases.len();
        let mut planned = None;
        let mut running: Option<CaseReport> = None;
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
    use std::collections::VecDeque;

    use super::*;
    use crate::Panic;

    /// A guest whose boots are written down in advance: what it says, and how it ends.
    struct Script {
        boots: VecDeque<(&'static [&'static str], Ending)>,
        /// The words of each boot.
        words: Vec<String>,
        list: Result<Vec<String>, Ending>,
    }

    impl Guest for Script {
        fn boot(&mut self, words: &str, on_event: &mut dyn FnMut(Event)) -> Ending {
            self.words.push(words.to_owned());
            let (messages, ending) = self.boots.pop_front().expect("no further boot");
            for message in messages {
                on_event(Event::of(LogLine::new(*message)));
            }
            ending
        }

        fn list(&mut self) -> Result<Vec<String>, Ending> {
            self.list.clone()
        }
    }

    /// Runs the script; returns its report and the words of its boots. Every boot of the script must be used.
    fn run<const N: usize>(boots: [(&'static [&'static str], Ending); N], cases: Option<&[&str]>) -> (SuiteReport, Vec<String>) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut script = Script { boots: boots.into(), words: Vec::new(), list: Ok(owned(&["a", "b", "c"])) };
        let run = Run { on_step: |_: Step<'_>| {}, announced: None, report: SuiteReport::default() };
        let report = run.cases(&mut script, cases.map(owned).as_deref());
        assert!(script.boots.is_empty(), "{:?}", script.words);
        (report, script.words)
    }

    /// The names of the cases, each with `:` and its failure if it has one.
    fn results(report: &SuiteReport) -> Vec<String> {
        let result = |case: &CaseReport| match &case.failure {
            Some(reason) => format!("{}: {reason}", case.name),
            None => case.name.clone(),
        };
        report.cases.iter().map(result).collect()
    }

    fn panic() -> Ending {
        Ending::Panicked { panic: Some(Panic { cpu: 1, location: "x.rs:1:2".to_owned(), message: "m".to_owned() }) }
    }

    const PANIC: &str = "panic on CPU 1 at x.rs:1:2: m";

    #[test]
    fn all_cases_run_in_one_boot() {
        let (report, words) = run([(&["@plan 2", "@begin a", "@pass a", "@begin b", "@pass b", "@end"], Ending::Passed)], None);
        assert_eq!((results(&report), words), (vec!["a".to_owned(), "b".to_owned()], vec![String::new()]));
        assert!(report.is_passed());
    }

    #[test]
    fn log_lines_belong_to_the_case_that_runs() {
        let boot: &[&str] = &["before", "@plan 1", "@begin a", "in a", "@pass a", "after"];
        let (report, _) = run([(boot, Ending::Passed)], None);
        assert_eq!(report.cases[0].log, [LogLine::new("in a")]);
        assert_eq!(report.log, [LogLine::new("before"), LogLine::new("after")]);
    }

    #[test]
    fn a_case_that_ends_the_machine_fails_and_the_rest_runs_in_a_new_boot() {
        let (report, words) =
            run([(&["@plan 3", "@begin a", "@pass a", "@begin b"], panic()), (&["@plan 1", "@begin c", "@pass c"], Ending::Passed)], None);
        assert_eq!(results(&report), ["a", &format!("b: {PANIC}"), "c"]);
        assert_eq!(words, ["", "exact filter=c"]);
        assert!(!report.is_passed());
        assert_eq!(report.trouble, None);
    }

    #[test]
    fn every_case_may_end_the_machine() {
        let (report, words) = run(
            [(&["@plan 3", "@begin a"], panic()), (&["@plan 2", "@begin b"], Ending::TripleFault), (&["@plan 1", "@begin c"], panic())],
            None,
        );
        assert_eq!(report.cases.len(), 3);
        assert!(report.cases.iter().all(|case| case.failure.is_some()));
        assert_eq!(words, ["", "exact filter=b filter=c", "exact filter=c"]);
    }

    #[test]
    fn selected_cases_only_are_run_and_run_again() {
        let boots: [(&[&str], _); 2] = [
            (&["@plan 2", "@begin a"], panic()),
            (&["@plan 1", "@begin c", "@fail c: why"], Ending::TestsFailed { names: vec!["c".into()] }),
        ];
        let (report, words) = run(boots, Some(&["a", "c"]));
        assert_eq!(results(&report), [&format!("a: {PANIC}"), "c: why"]);
        assert_eq!(words, ["exact filter=a filter=c", "exact filter=c"]);
        let (report, words) = run([], Some(&[]));
        assert!(report.is_passed() && words.is_empty());
    }

    #[test]
    fn a_boot_that_ends_badly_outside_of_cases_is_the_last() {
        let (report, _) = run([(&["@plan 3", "@begin a", "@pass a"], panic())], Some(&["a", "b", "c"]));
        assert_eq!(results(&report), ["a", &format!("b: not run: {PANIC}"), &format!("c: not run: {PANIC}")]);
        assert_eq!(report.trouble, Some(panic()));
    }

    #[test]
    fn fewer_results_than_asked_for_are_trouble() {
        let few = |announced, seen| Some(Ending::TooFewTests { announced, seen });
        assert_eq!(run([(&["hello"], Ending::Passed)], None).0.trouble, few(None, 0));
        assert_eq!(run([(&["@plan 1", "@begin a", "@pass a"], Ending::Passed)], Some(&["a", "b"])).0.trouble, few(Some(2), 1));
        assert_eq!(run([(&["@plan 0"], Ending::Passed)], Some(&["a"])).0.trouble, few(Some(1), 0));
        assert!(run([(&["@plan 0"], Ending::Passed)], None).0.is_passed());
    }

    #[test]
    fn a_success_in_the_middle_of_a_case_fails_the_case() {
        let (report, _) = run([(&["@plan 1", "@begin a"], Ending::Passed)], Some(&["a"]));
        assert_eq!(results(&report), ["a: the kernel ended in the middle of it"]);
    }

    #[test]
    fn boots_without_end_are_cut_off() {
        // Names that the list does not have: what is left never gets less.
        let boots: [(&[&str], _); MAX_BOOTS] = std::array::from_fn(|_| (&["@plan 1", "@begin x"] as &[_], panic()));
        let (report, _) = run(boots, Some(&["a"]));
        assert!(matches!(report.trouble, Some(Ending::TooFewTests { .. })), "{:?}", report.trouble);
    }

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
