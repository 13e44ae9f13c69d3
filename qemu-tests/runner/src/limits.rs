//! What a command line may ask of a [`Machine`](crate::Machine): parsers for clap, whose errors say what is wanted.

use std::ops::RangeInclusive;

/// The most CPUs of a machine. The APIC numbers of more need x2APIC, which QEMU's TCG does not have for them.
pub const MAX_CPUS: u32 = 255;

/// Reads a number in `range`.
pub fn number_in(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("a number between {} and {} is wanted", range.start(), range.end()))
    }
}

/// Checks an amount of memory, as [`Machine::memory`](crate::Machine::memory) has it.
///
/// # Errors
/// It is something that QEMU does not take, or takes for its default, as it does 0.
pub fn memory_size(text: &str) -> Result<String, String> {
    let number = text.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G']).unwrap_or(text);
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && number.parse::<u64>().is_ok_and(|number| number > 0);
    is_number.then(|| text.to_owned()).ok_or_else(|| "a whole number above 0 is wanted: of MiB, or with K, M or G after it".to_owned())
}

/// What clap says of a wrong command line, on one line and without what `--help` tells.
pub fn one_line(error: &str) -> String {
    let is_said = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let parts: Vec<_> = error.lines().map(str::trim).take_while(is_said).filter(|line| !line.is_empty()).collect();
    parts.join("; ").replace(":; ", ": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_the_range_is_read_and_any_other_text_is_told_the_range() {
        let cpus = number_in(1..=MAX_CPUS);
        assert_eq!((cpus("1"), cpus("255")), (Ok(1), Ok(255)));
        for text in ["0", "256", "-1", "", "two", "99999999999"] {
            assert_eq!(cpus(text), Err("a number between 1 and 255 is wanted".to_owned()), "{text}");
        }
    }

    #[test]
    fn an_error_of_several_lines_becomes_one() {
        let error = "error: the following required arguments were not provided:\n  --kernel <ELF>\n\nUsage: x\n\nFor more information, try '--help'.\n";
        assert_eq!(one_line(error), "error: the following required arguments were not provided: --kernel <ELF>");
        assert_eq!(one_line("error: a\n\n  tip: b\n"), "error: a; tip: b");
    }

    #[test]
    fn memory_is_a_number_with_or_without_a_suffix() {
        for text in ["1", "512", "512M", "2g", "65536k"] {
            assert_eq!(memory_size(text).as_deref(), Ok(text));
        }
        for text in ["", "foo", "M", "0", "0M", "-1", "+1", "1.5G", "1T", "16 M", "5MB", "99999999999999999999"] {
            assert!(memory_size(text).is_err(), "{text}");
        }
    }
}
