//! Messages from the kernel to its runner: the log frames whose text starts with `@`.

use std::fmt;

use crate::LogLine;

/// What a running kernel says, in the order in which it says it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A log line for people. Also an `@` message that is unknown or malformed, so that nothing gets lost.
    Log(LogLine),
    /// `@case NAME`: the kernel holds this test case. One for each, in answer to the word `list`.
    Case(String),
    /// `@plan N`: this many test cases will run. Comes before the first [`Event::Begin`].
    Plan(usize),
    /// `@begin NAME`: this case starts.
    Begin(String),
    /// `@pass NAME`: the case that began has passed.
    Pass(String),
    /// `@fail NAME: REASON`: the case that began has failed.
    Fail {
        /// The case.
        name: String,
        /// Why, in the kernel's words; may be empty.
        reason: String,
    },
    /// `@end`: no case will follow.
    End,
    /// `@row key=value ...`: a result.
    Row(Row),
    /// `@progress DONE TOTAL LABEL`: how far the work is.
    Progress(Progress),
    /// `@panic cpu=N FILE:LINE:COL: MESSAGE`: a CPU panics; the machine is about to end.
    Panic(Panic),
}

/// A result: words with values, in the kernel's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Key and value, both without blanks.
    pub fields: Vec<(String, String)>,
}

impl Row {
    /// The value of `key`, if the row has it.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}

/// How far the kernel's work is: `done` of `total`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What is done, in the kernel's unit.
    pub done: u64,
    /// What there is to do, in the same unit.
    pub total: u64,
    /// What the kernel is doing; may be empty.
    pub label: String,
}

/// A panic in the kernel. Displays as `panic on CPU 1 at src/main.rs:3:5: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// The CPU that panicked.
    pub cpu: u32,
    /// `FILE:LINE:COLUMN`.
    pub location: String,
    /// The panic's message; may have several lines.
    pub message: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panic on CPU {} at {}: {}", self.cpu, self.location, self.message)
    }
}

impl Event {
    /// What a decoded frame means.
    pub(crate) fn of(line: LogLine) -> Event {
        match Event::parse(&line.message) {
            Some(event) => event,
            None => Event::Log(line),
        }
    }

    fn parse(text: &str) -> Option<Event> {
        let text = text.strip_prefix('@')?;
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        match word {
            "case" => name(rest).map(Event::Case),
            "plan" => rest.parse().ok().map(Event::Plan),
            "begin" => name(rest).map(Event::Begin),
            "pass" => name(rest).map(Event::Pass),
            "fail" => {
                let (case, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let name = name(case.strip_suffix(':').unwrap_or(case))?;
                Some(Event::Fail { name, reason: reason.trim().to_owned() })
            }
            "end" => rest.is_empty().then_some(Event::End),
            "row" => {
                let pair = |field: &str| field.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
                let fields: Vec<_> = rest.split_whitespace().map(pair).collect::<Option<_>>()?;
                (!fields.is_empty()).then_some(Event::Row(Row { fields }))
            }
            "progress" => {
                let mut words = rest.splitn(3, char::is_whitespace);
                let done = words.next()?.parse().ok()?;
                let total = words.next()?.parse().ok()?;
                let label = words.next().unwrap_or("").trim().to_owned();
                Some(Event::Progress(Progress { done, total, label }))
            }
            "panic" => {
                let (cpu, rest) = rest.strip_prefix("cpu=")?.split_once(char::is_whitespace)?;
                let cpu = cpu.parse().ok()?;
                // A message may start on the line after the location, as that of `assert_eq!` does not, but a user's may.
                let end = rest.find(": ").or_else(|| rest.find(":\n"));
                let (location, message) = match end {
                    Some(end) => (&rest[..end], rest[end + 1..].trim()),
                    None => (rest.trim_end_matches(':'), ""),
                };
                Some(Event::Panic(Panic { cpu, location: location.to_owned(), message: message.to_owned() }))
            }
            _ => None,
        }
    }
}

/// A case's name is one word.
fn name(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains(char::is_whitespace)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> Event {
        Event::of(LogLine::new(message))
    }

    #[test]
    fn a_message_without_an_at_sign_is_a_log_line() {
        assert_eq!(event("4 CPUs"), Event::Log(LogLine::new("4 CPUs")));
    }

    #[test]
    fn an_unknown_or_malformed_message_stays_visible_as_a_log_line() {
        for message in
            ["@", "@dance", "@plan many", "@plan", "@case", "@begin a b", "@end now", "@row", "@row x", "@progress 1", "@panic x"]
        {
            assert_eq!(event(message), Event::Log(LogLine::new(message)), "{message}");
        }
    }

    #[test]
    fn a_case_is_listed_begun_and_passed_by_its_name() {
        assert_eq!(event("@case statics::adds"), Event::Case("statics::adds".into()));
        assert_eq!(event("@begin statics::adds"), Event::Begin("statics::adds".into()));
        assert_eq!(event("@pass statics::adds"), Event::Pass("statics::adds".into()));
        assert_eq!(event("@plan 12"), Event::Plan(12));
        assert_eq!(event("@end"), Event::End);
    }

    #[test]
    fn a_failure_has_the_whole_path_as_its_name_and_the_rest_as_its_reason() {
        let fail = |name: &str, reason: &str| Event::Fail { name: name.into(), reason: reason.into() };
        assert_eq!(event("@fail statics::adds: left: 1, right: 2"), fail("statics::adds", "left: 1, right: 2"));
        assert_eq!(event("@fail statics::adds"), fail("statics::adds", ""));
        assert_eq!(event("@fail statics::adds:"), fail("statics::adds", ""));
    }

    #[test]
    fn a_row_keeps_its_fields_in_order() {
        let Event::Row(row) = event("@row workload=fork cpus=4 formula=a=b") else { panic!("not a row") };
        assert_eq!(row.fields[0], ("workload".into(), "fork".into()));
        assert_eq!((row.get("cpus"), row.get("formula"), row.get("x")), (Some("4"), Some("a=b"), None));
    }

    #[test]
    fn progress_has_numbers_and_a_label_of_any_words() {
        let progress = |done, total, label: &str| Event::Progress(Progress { done, total, label: label.into() });
        assert_eq!(event("@progress 3 10 fork, each"), progress(3, 10, "fork, each"));
        assert_eq!(event("@progress 3 10"), progress(3, 10, ""));
    }

    #[test]
    fn a_panic_has_cpu_place_and_message() {
        let panic = |cpu, location: &str, message: &str| Event::Panic(Panic { cpu, location: location.into(), message: message.into() });
        assert_eq!(event("@panic cpu=3 src/main.rs:12:5: index: 4"), panic(3, "src/main.rs:12:5", "index: 4"));
        assert_eq!(
            event("@panic cpu=0 a b.rs:1:2: assertion `left == right` failed\n  left: 1\n right: 2"),
            panic(0, "a b.rs:1:2", "assertion `left == right` failed\n  left: 1\n right: 2")
        );
        assert_eq!(event("@panic cpu=0 a.rs:1:2:\nlow"), panic(0, "a.rs:1:2", "low"));
        assert_eq!(event("@panic cpu=0 a.rs:1:2:"), panic(0, "a.rs:1:2", ""));
    }
}
