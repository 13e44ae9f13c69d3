//! The JSON files that a page is of.

use crate::json_file::Stored;
use crate::scale::{self, latency::Latency};
use crate::{bench_rows, rows};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// A command's file, or why there is none, as the section says it.
pub type Source<R> = Result<Stored<R>, String>;

/// All of them.
#[derive(Debug)]
pub struct Data {
    pub forkbomb: Source<rows::Row>,
    pub bench: Source<bench_rows::Row>,
    pub transfers: Source<::transfers::Row>,
    pub scale: Source<scale::rows::Row>,
    /// Beside the rows of `scale`.
    pub latency: Vec<Latency>,
}

/// What the file of `scale` has besides its rows.
#[derive(Debug, Default, Deserialize)]
struct BesideRows {
    #[serde(default)]
    latency: Vec<Latency>,
}

/// The file of a command.
pub fn file_name(command: &str) -> String {
    format!("{command}.json")
}

impl Data {
    pub fn read(folder: &Path) -> Self {
        let beside: BesideRows =
            std::fs::read(folder.join(file_name("scale"))).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self {
            forkbomb: source(folder, "forkbomb"),
            bench: source(folder, "bench"),
            transfers: source(folder, "transfers"),
            scale: source(folder, "scale"),
            latency: beside.latency,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.forkbomb.is_err() && self.bench.is_err() && self.transfers.is_err() && self.scale.is_err()
    }

    /// A line for each file that is not there or cannot be used.
    pub fn problems(&self) -> Vec<String> {
        [self.forkbomb.as_ref().err(), self.bench.as_ref().err(), self.transfers.as_ref().err(), self.scale.as_ref().err()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }
}

fn source<R: DeserializeOwned>(folder: &Path, command: &str) -> Source<R> {
    let name = file_name(command);
    let path = folder.join(&name);
    if !path.exists() {
        return Err(format!("there is no {name}; `cargo xtask {command} --json {name}` makes it"));
    }
    match Stored::read(&path) {
        Ok(stored) if stored.rows.is_empty() => Err(format!("{name} has no rows")),
        // The folder is known, and a page is read elsewhere.
        Err(error) => Err(format!("{name} is of no use: {}", error.root_cause())),
        stored => Ok(stored.expect("errors are told above")),
    }
}

/// What was typed, without where the file went, which is of no interest elsewhere.
pub fn command_of<R>(stored: &Stored<R>) -> String {
    let mut words = Vec::new();
    let mut all = stored.command.split_whitespace();
    while let Some(word) = all.next() {
        match word {
            "--json" | "--svg" => drop(all.next()),
            word if word.starts_with("--json=") || word.starts_with("--svg=") => {}
            word => words.push(word),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use std::fs;

    #[test]
    fn each_file_that_is_of_no_use_is_told_in_a_line_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Data::read(folder.path()).is_empty());
        for (name, text) in [
            ("forkbomb.json", "{"),
            ("bench.json", r#"{"machine": {}, "command": "c", "rows": []}"#),
            ("transfers.json", r#"{"machine": {}, "command": "c", "rows": [{"cpus": 2}]}"#),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let data = Data::read(folder.path());
        let problems = data.problems();
        for (problem, parts) in problems.iter().zip([
            ["forkbomb.json", "EOF"],
            ["bench.json", "no rows"],
            ["transfers.json", "missing field `op`"],
            ["scale.json", "cargo xtask scale"],
        ]) {
            assert!(parts.iter().all(|part| problem.contains(part)) && !problem.contains('\n'), "{problem}");
        }
        assert!(problems.len() == 4 && data.is_empty(), "{problems:?}");
    }

    #[test]
    fn rows_and_what_is_beside_them_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"machine": {"processor": "P"}, "command": "cargo xtask scale --json a b", "rows": [
            {"strategy": "lazy", "workload": "exec", "part": "counters", "cpus": 64, "per_second": 5.0, "kind": "model", "bound": "a lock",
            "extrapolated": true, "usl_alpha": null}],
            "latency": [{"strategy": "lazy", "workload": "exec", "part": "counters", "threads": 8, "seconds": 1.0, "lifetimes": 9, "p50_ns": 1,
            "p99_ns": 2, "p999_ns": 3, "max_ns": 4, "stalls_over_1ms": 0, "curve": [[0.5, 1], [1.0, 4]]}]}"#;
        fs::write(folder.path().join("scale.json"), text).unwrap();
        let data = Data::read(folder.path());
        assert_eq!((data.scale.unwrap().rows.len(), data.latency.len()), (1, 1));
    }

    #[test]
    fn where_the_file_went_is_no_part_of_the_command() {
        let stored = |command: &str| Stored::<u32> { machine: Host::default(), command: command.into(), rows: Vec::new() };
        assert_eq!(command_of(&stored("cargo xtask bench --json /a/b.json --quick")), "cargo xtask bench --quick");
        assert_eq!(command_of(&stored("cargo xtask bench --json=/a/b.json")), "cargo xtask bench");
    }
}
