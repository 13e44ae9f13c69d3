//! What the table of `cargo xtask forkbomb` means, and how far it can be trusted.

use crate::cli::Strategy;
use crate::distinct::distinct;
use crate::host::Host;
use crate::rows::Row;
use crate::table::{counted, percent};
use clap::ValueEnum;
use kernel_runner::Accel;

/// When a row's rounds are further apart, its ratio says little.
pub const MAX_SPREAD: f64 = 0.5;

/// The strategies, what `host` makes of the numbers of CPUs, and which ratios not to trust.
pub fn render(rows: &[Row], host: &Host) -> String {
    let mut lines = Vec::new();
    for strategy in distinct(rows.iter().map(|row| row.strategy.as_str())) {
        lines.extend(meaning(strategy).map(|meaning| format!("{strategy}: {meaning}.")));
    }
    let host_cpus = counted(host.host_cpus, "CPU");
    if rows.iter().any(|row| !row.setting.native) {
        lines.push(format!("The CPUs are threads of QEMU's (accelerator {}) on a host of {host_cpus}.", host.accel));
        if host.accel == crate::cli::name(Accel::Tcg) {
            lines.push("QEMU translates their instructions, which makes calls slow and lines that change hands cheap: compare `threads` with --native.".into());
        }
    }
    if rows.iter().any(|row| row.setting.native) {
        lines.push(format!("Native threads are pinned, each to one of the host's {host_cpus}."));
    }
    let oversubscribed = list(rows.iter().filter(|row| row.setting.cpus as usize > host.host_cpus));
    if !oversubscribed.is_empty() {
        lines.push(format!("More CPUs than the host has ({oversubscribed}) are oversubscribed: they take turns on the host's."));
    }
    lines.extend(uneven(rows));
    lines.join("\n")
}

/// Which rows not to trust.
fn uneven(rows: &[Row]) -> Option<String> {
    const MOST_NAMES: usize = 4;
    let names = distinct(rows.iter().filter(|row| row.spread > MAX_SPREAD).map(|row| {
        let place = if row.setting.native { "native threads" } else { "CPUs" };
        format!("{} with {} on {} {place}", row.setting.workload, row.strategy, row.setting.cpus)
    }));
    let more = names.len().saturating_sub(MOST_NAMES);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| {
        format!(
            "Rounds are more than {} apart, because the host was busy or they were too short; do not trust: {}{more}.",
            percent(MAX_SPREAD),
            names[..names.len().min(MOST_NAMES)].join(", ")
        )
    })
}

/// What the command line's help says about a strategy.
pub fn meaning(strategy: &str) -> Option<String> {
    Some(Strategy::from_str(strategy, false).ok()?.to_possible_value()?.get_help()?.to_string())
}

/// The numbers of CPUs of these rows.
fn list<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    distinct(rows.map(|row| row.setting.cpus)).iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Round, summarize, tests::round};

    /// On a host of two CPUs.
    fn legend(rounds: &[Round]) -> String {
        render(&summarize(rounds), &Host { host_cpus: 2, accel: "tcg".into(), ..Host::default() })
    }

    #[test]
    fn what_is_in_the_table_is_explained_once() {
        let text = legend(&[round("each", 1, 100), round("grouped", 1, 100), round("each", 2, 100), round("grouped", 2, 100)]);
        for part in ["each: ", "\ngrouped: ", "accelerator tcg", "--native"] {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
        assert!(!text.contains("oversubscribed") && !text.contains("trust"), "{text}");
        assert!(!legend(&[round("each", 1, 100)]).contains("grouped"));
    }

    #[test]
    fn more_cpus_than_the_host_has_are_told() {
        let text = legend(&[round("each", 2, 100), round("each", 4, 100), round("grouped", 4, 100), round("each", 8, 9)]);
        assert!(text.contains("(4, 8) are oversubscribed"), "{text}");
    }

    #[test]
    fn a_large_spread_is_told_with_its_cpus() {
        let text =
            legend(&[round("each", 4, 60), round("each", 4, 100), round("each", 4, 111), round("each", 8, 80), round("each", 8, 120)]);
        assert!(text.contains("more than 50 % apart") && text.contains("do not trust: bomb with each on 4 CPUs."), "{text}");
    }
}
