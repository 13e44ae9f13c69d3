//! The JSON files: written whole, and read again.

use crate::host::Host;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// What a command's JSON file holds.
#[derive(Debug, Serialize)]
pub struct Report<'a, R> {
    pub machine: &'a Host,
    /// What was typed.
    pub command: String,
    pub rows: &'a [R],
}

/// What a command's JSON file held.
#[derive(Clone, Debug, Deserialize)]
pub struct Stored<R> {
    pub machine: Host,
    pub command: String,
    pub rows: Vec<R>,
}

impl<R: DeserializeOwned> Stored<R> {
    /// Reads the file. What is in it besides is passed over.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: Value = serde_json::from_slice(&text).with_context(|| format!("cannot understand {}", path.display()))?;
        check_numbers("", &value).with_context(|| format!("cannot use {}", path.display()))?;
        serde_json::from_value(value).with_context(|| format!("cannot understand {}", path.display()))
    }
}

/// More than this nobody has measured, in any unit that is used here.
const MOST: f64 = 1e15;

/// Numbers that are of something.
const POSITIVE: [&str; 2] = ["cpus", "possible_cpus"];

/// Numbers that are not below zero.
const NOT_NEGATIVE: [&str; 8] = ["per_second", "spread", "ratio", "seconds", "ns", "median_ns", "transfers_per_op", "instructions_per_op"];

/// Fails where a number that is called `key` cannot be of a measurement.
fn check_numbers(key: &str, value: &Value) -> Result<()> {
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let is_possible =
                number.abs() <= MOST && (!POSITIVE.contains(&key) || number >= 1.0) && (!NOT_NEGATIVE.contains(&key) || number >= 0.0);
            ensure!(is_possible, "`{key}` is {number}, which nobody has measured");
            Ok(())
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_numbers(key, value)),
        Value::Object(fields) => fields.iter().try_for_each(|(key, value)| check_numbers(key, value)),
        _ => Ok(()),
    }
}

/// A place for a file that was seen to be writable.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
}

impl Destination {
    /// Checks that `path` can be written; what is there stays, and nothing is left there, until [`write`](Self::write).
    pub fn new(path: &Path) -> Result<Self> {
        Self::checked(path).with_context(|| format!("cannot write {}", path.display()))
    }

    fn checked(path: &Path) -> Result<Self> {
        let path = match fs::canonicalize(path) {
            Ok(existing) if existing.is_file() => existing,
            Ok(_) => bail!("it is not a regular file"),
            Err(_) => path.to_owned(),
        };
        if path.file_name().is_none() {
            bail!("it is not the name of a file");
        }
        let destination = Self { path };
        // Removed at once: a signal during the run would leave it.
        destination.unfinished()?;
        Ok(destination)
    }

    /// A file in the destination's folder, from where it can be moved into its place in one step.
    fn unfinished(&self) -> Result<NamedTempFile> {
        let folder = self.path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        // Not `tempfile_in`, whose errors name its own file and not what the system said. The file gets the usual permissions of a new one.
        Ok(Builder::new().make_in(folder, |path| File::create_new(path))?)
    }

    /// Writes the report.
    pub fn write(&self, report: &impl Serialize) -> Result<()> {
        self.write_text(&(serde_json::to_string_pretty(report)? + "\n"))
    }

    /// Writes a text. Nobody sees half of it: it takes the place of what was there when it is complete.
    pub fn write_text(&self, text: &str) -> Result<()> {
        let write = || {
            let mut file = self.unfinished()?;
            file.write_all(text.as_bytes())?;
            file.persist(&self.path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error: anyhow::Error| error.context(format!("cannot write {}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{summarize, tests::round};
    use serde_json::Value;

    fn write(path: &Path) {
        let report = Report {
            machine: &Host::default(),
            command: "cargo xtask forkbomb".into(),
            rows: &summarize(&[round("each", 2, 100), round("grouped", 2, 150)]),
        };
        Destination::new(path).unwrap().write(&report).unwrap();
    }

    #[test]
    fn the_file_has_machine_command_and_rows_with_their_fixed_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.json");
        write(&path);
        let json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert!(json["machine"].is_object());
        assert_eq!(json["command"], "cargo xtask forkbomb");
        let row = &json["rows"][1];
        assert_eq!((&row["workload"], &row["strategy"]), (&"bomb".into(), &"grouped".into()));
        assert_eq!((&row["cpus"], &row["possible_cpus"], &row["native"]), (&2.into(), &2.into(), &false.into()));
        assert_eq!((&row["lifetimes"], &row["seconds"], &row["per_second"]), (&150.into(), &1.0.into(), &150.0.into()));
        assert_eq!((&row["spread"], &row["ratio"]), (&0.0.into(), &1.5.into()));
        assert_eq!((&row["nonzero_counters"], &row["leaked_objects"]), (&0.into(), &0.into()));
    }

    #[test]
    fn an_old_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.json");
        fs::write(&path, "old").unwrap();
        write(&path);
        assert!(fs::read_to_string(&path).unwrap().starts_with('{'));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_destination_that_is_not_written_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.json");
        fs::write(&path, "old").unwrap();
        drop(Destination::new(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_refused_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("no/such/folder.json"), folder.path().to_owned(), "/dev/null".into(), "..".into(), "".into()] {
            let error = Destination::new(&path).unwrap_err();
            assert!(format!("{error:#}").starts_with("cannot write "), "{error:#}");
        }
    }

    #[test]
    fn what_the_system_says_about_the_path_is_told() {
        let error = Destination::new(Path::new("/no/such/folder/rows.json")).unwrap_err();
        assert_eq!(format!("{error:#}"), "cannot write /no/such/folder/rows.json: No such file or directory (os error 2)");
    }

    #[test]
    fn numbers_that_nobody_measured_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.json");
        let read = |row: &str| {
            fs::write(&path, format!(r#"{{"machine": {{}}, "command": "c", "rows": [{row}]}}"#)).unwrap();
            Stored::<Value>::read(&path).map_err(|error| format!("{error:#}"))
        };
        assert!(read(r#"{"per_second": 1e9, "leaked_objects": -1, "cpus": 1, "spread": 0}"#).is_ok());
        for row in [r#"{"per_second": 1e308}"#, r#"{"a": [-1e16]}"#, r#"{"spread": -0.1}"#, r#"{"x": {"cpus": 0}}"#] {
            let error = read(row).unwrap_err();
            assert!(error.contains("nobody has measured"), "{error}");
        }
    }
}
