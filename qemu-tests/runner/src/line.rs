//! A decoded log line and how it looks.

use std::fmt;

use anstyle::{AnsiColor, Style};

/// How serious a log line is. `defmt::println!` has no level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Trace => "TRACE",
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
        }
    }

    fn style(self) -> Style {
        match self {
            Level::Trace => Style::new().dimmed(),
            Level::Debug => AnsiColor::Cyan.on_default(),
            Level::Info => AnsiColor::Green.on_default(),
            Level::Warn => AnsiColor::Yellow.on_default().bold(),
            Level::Error => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// One decoded frame.
///
/// Displays as `   0.001234 cpu3 INFO  message   (src/file.rs:12)`: the columns before the message have a fixed width, and
/// further lines of the message are indented to its first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// When, in the kernel's format; for a timestamp of microseconds, seconds since boot. Empty if the kernel gives none.
    pub timestamp: String,
    /// The CPU that logged, if the kernel's timestamp ends in `cpuN`.
    pub cpu: Option<u32>,
    /// `None`: printed with `defmt::println!`.
    pub level: Option<Level>,
    /// The text; may have several lines.
    pub message: String,
    /// Where in the kernel's source, file and line; `None` if the kernel has no debug information.
    pub location: Option<(String, u64)>,
}

impl LogLine {
    pub(crate) fn new(message: impl Into<String>) -> LogLine {
        LogLine { timestamp: String::new(), cpu: None, level: None, message: message.into(), location: None }
    }

    /// The same line with ANSI colours.
    pub fn styled(&self) -> impl fmt::Display + '_ {
        Styled(self)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, level: Style, dim: Style) -> fmt::Result {
        let cpu = self.cpu.map(|cpu| format!("cpu{cpu}")).unwrap_or_default();
        let word = self.level.map_or("", Level::word);
        write!(f, "{dim}{:>11} {cpu:<4}{dim:#} {level}{word:<5}{level:#} ", self.timestamp)?;
        let indent = self.timestamp.len().max(11) + 1 + cpu.len().max(4) + 1 + 5 + 1;
        for (i, text) in self.message.lines().enumerate() {
            if i > 0 {
                write!(f, "\n{:indent$}", "")?;
            }
            f.write_str(text)?;
        }
        match &self.location {
            Some((file, line)) => write!(f, "   {dim}({file}:{line}){dim:#}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Style::new(), Style::new())
    }
}

struct Styled<'a>(&'a LogLine);

impl fmt::Display for Styled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, self.0.level.map_or(Style::new(), Level::style), Style::new().dimmed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> LogLine {
        LogLine {
            timestamp: "0.001234".into(),
            cpu: Some(3),
            level: Some(Level::Info),
            message: "message".into(),
            location: Some(("src/file.rs".into(), 12)),
        }
    }

    #[test]
    fn a_line_has_time_cpu_level_message_and_place() {
        assert_eq!(line().to_string(), "   0.001234 cpu3 INFO  message   (src/file.rs:12)");
    }

    #[test]
    fn the_message_starts_in_the_same_column_whatever_comes_before_it() {
        let column = |line: LogLine| line.to_string().find("message");
        let expected = column(line());
        assert_eq!(column(LogLine { level: None, ..line() }), expected);
        assert_eq!(column(LogLine { level: Some(Level::Error), ..line() }), expected);
        assert_eq!(column(LogLine { cpu: None, timestamp: String::new(), ..line() }), expected);
        assert_eq!(column(LogLine { timestamp: "1234.567890".into(), ..line() }), expected);
    }

    #[test]
    fn further_lines_of_a_message_are_indented_to_the_first() {
        let text = LogLine { message: "first\nsecond".into(), location: None, ..line() }.to_string();
        let (first, second) = text.split_once('\n').expect("two lines");
        assert_eq!(first.find("first"), second.find("second"));
    }

    #[test]
    fn only_the_styled_form_has_escape_codes() {
        assert!(!line().to_string().contains('\x1b'));
        assert!(line().styled().to_string().contains('\x1b'));
    }
}
