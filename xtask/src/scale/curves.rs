//! The curves as files.

use super::latency::Latency;
use super::measure::{PARTS, strategies};
use super::rows::{Kind, Row};
use crate::plot::{self, Axis, Chart, Line, Lines, Point};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The curve of times has points at the slowest one of so many executions.
const ONE_IN: [f64; 7] = [2.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];

/// A folder that was seen to be writable.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes the folder if it is not there, and checks that files can be written into it.
    pub fn new(path: &Path) -> Result<Self> {
        Self::checked(path).with_context(|| format!("cannot write into {}", path.display()))
    }

    fn checked(path: &Path) -> Result<Self> {
        ensure!(!path.as_os_str().is_empty(), "it is not the name of a folder");
        fs::create_dir_all(path)?;
        // Not `tempfile_in`, whose errors name its own file and not what the system said.
        tempfile::Builder::new().make_in(path, |path| File::create_new(path))?;
        Ok(Self(path.to_owned()))
    }

    fn write(&self, name: &str, chart: &Lines) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, chart.file()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes all charts, and returns their names.
    pub fn write_all(&self, rows: &[Row], latencies: &[Latency]) -> Result<Vec<&'static str>> {
        let charts = [
            ("scale-counters.svg", throughput("An exec's counters, from 1 to many CPUs", PARTS[0], rows)),
            ("scale-whole.svg", throughput("The whole exec, on this machine's cores", PARTS[1], rows)),
            ("latency.svg", times(latencies)),
        ];
        charts.iter().map(|(name, chart)| self.write(name, chart).map(|()| *name)).collect()
    }
}

/// The curves of a part: for each strategy what was measured, and what the model says.
pub fn throughput(title: &str, part: &str, rows: &[Row]) -> Lines {
    let curve = |strategy: &str, kind: Kind| {
        let of = rows.iter().filter(|row| row.strategy == strategy && row.kind == kind && row.part == part);
        let point = |row: &Row| match row.spread {
            Some(spread) => Point::with_spread(row.cpus.into(), row.per_second, spread),
            None => Point::exact(row.cpus.into(), row.per_second),
        };
        Line { label: strategy.to_owned(), kind: plot_kind(kind), points: of.map(point).collect() }
    };
    let lines = strategies().into_iter().flat_map(|strategy| [Kind::Measured, Kind::Model].map(|kind| curve(&strategy, kind)));
    Lines {
        title: title.to_owned(),
        x: Axis::log("CPUs"),
        y: Axis::log("execs/s"),
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
    }
}

/// How long the slowest one of a number of executions takes.
pub fn times(latencies: &[Latency]) -> Lines {
    let line = |latency: &Latency| {
        let times = ONE_IN.into_iter().filter(|&one_in| one_in <= latency.lifetimes as f64);
        let points = times.filter_map(|one_in| Some(Point::exact(one_in, latency.at(1.0 - 1.0 / one_in)? as f64)));
        Line { label: latency.strategy.clone(), kind: plot::Kind::Measured, points: points.collect() }
    };
    Lines {
        title: "The slowest exec of so many, four threads on each core".to_owned(),
        x: Axis::log("the slowest of so many execs"),
        y: Axis::log("ns for an exec's counters"),
        lines: latencies.iter().map(line).collect(),
    }
}

fn plot_kind(kind: Kind) -> plot::Kind {
    match kind {
        Kind::Measured => plot::Kind::Measured,
        Kind::Model => plot::Kind::Model,
    }
}

#[cfg(test)]
mod tests {
    use super::super::latency::tests::latency;
    use super::super::rows::tests::row;
    use super::*;

    #[test]
    fn each_chart_is_a_file_and_a_model_is_named_one() {
        let folder = tempfile::tempdir().unwrap();
        let rows = [1, 2, 64].map(|cpus| row("lazy", cpus, 1e6 * f64::from(cpus), Kind::Model));
        let charts = Folder::new(&folder.path().join("new/out")).unwrap().write_all(&rows, &[latency()]).unwrap();
        for name in &charts {
            let text = fs::read_to_string(folder.path().join("new/out").join(name)).unwrap();
            assert!(text.starts_with("<svg") && text.ends_with("</svg>"), "{name}: {text}");
        }
        assert_eq!(fs::read_dir(folder.path().join("new/out")).unwrap().count(), charts.len());
        assert!(fs::read_to_string(folder.path().join("new/out").join(charts[0])).unwrap().contains("lazy (model)"));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused_with_what_the_system_says() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for path in [file.path(), Path::new("/proc/out"), Path::new("")] {
            let error = format!("{:#}", Folder::new(path).unwrap_err());
            assert!(error.starts_with("cannot write into ") && error.contains(": "), "{error}");
        }
    }

    #[test]
    fn a_curve_goes_as_far_as_there_were_executions() {
        let chart = times(&[latency()]);
        let points: Vec<_> = chart.lines[0].points.iter().map(|point| (point.x, point.y)).collect();
        // 900 of them: one in a thousand is not known.
        assert_eq!(points, [(2.0, 220.0), (10.0, 381.0), (100.0, 381.0)]);
    }
}
