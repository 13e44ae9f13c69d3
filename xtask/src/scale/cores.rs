//! Whether this machine's cores are its threads' alone.

use serde::Serialize;
use std::fs;
use std::path::Path;

/// What is known about the cores.
#[derive(Debug, Serialize)]
pub struct Cores {
    /// Threads of the processor for which the system tells that they share a core with another one.
    pub nr_sharing: usize,
    /// Of the time of all cores during the measurement, what the hypervisor gave to other machines; `None` if the system does not tell.
    pub stolen_share: Option<f64>,
    #[serde(skip)]
    before: Option<Times>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    all: u64,
    stolen: u64,
}

impl Times {
    /// From the first line of `/proc/stat`: user, nice, system, idle, waiting, two kinds of interrupts, stolen, and parts of those.
    fn parse(stat: &str) -> Option<Self> {
        const STOLEN: usize = 7;
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let times: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        let times = times.get(..=STOLEN)?;
        Some(Times { all: times.iter().sum(), stolen: times[STOLEN] })
    }

    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }
}

impl Cores {
    /// Before the measurement.
    pub fn look() -> Self {
        Self { nr_sharing: nr_sharing(Path::new("/sys/devices/system/cpu")), stolen_share: None, before: Times::now() }
    }

    /// After it.
    pub fn look_again(self) -> Self {
        let share = |before: Times, now: Times| {
            let all = now.all.saturating_sub(before.all);
            (all > 0).then(|| now.stolen.saturating_sub(before.stolen) as f64 / all as f64)
        };
        Self { stolen_share: self.before.zip(Times::now()).and_then(|(before, now)| share(before, now)), ..self }
    }

    /// For people.
    pub fn sentence(&self) -> String {
        let siblings = match self.nr_sharing {
            0 => "No core is shared by two threads of the processor, as far as the system tells".to_owned(),
            nr => format!("{nr} of the processor's threads share their cores, so that two of them are less than two cores"),
        };
        match self.stolen_share {
            Some(share) => format!("{siblings}; a hypervisor took {:.1} % of the cores' time for others.", share * 100.0),
            None => format!("{siblings}."),
        }
    }
}

/// How many threads of the processor have a sibling.
fn nr_sharing(cpus: &Path) -> usize {
    let folders = fs::read_dir(cpus).into_iter().flatten().flatten();
    let lists = folders.filter_map(|folder| fs::read_to_string(folder.path().join("topology/thread_siblings_list")).ok());
    lists.filter(|list| list.contains([',', '-'])).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let stat = "cpu  10 20 30 40 50 60 70 80 5 5\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(Times::parse(stat), Some(Times { all: 360, stolen: 80 }));
        assert_eq!(Times::parse("cpu  10 20\n"), None);
        assert_eq!(Times::parse("intr 3\n"), None);
    }

    #[test]
    fn threads_with_siblings_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        for (name, siblings) in [("cpu0", "0,2\n"), ("cpu1", "1\n"), ("cpu2", "0,2\n"), ("cpufreq", "")] {
            let topology = folder.path().join(name).join("topology");
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join("thread_siblings_list"), siblings).unwrap();
        }
        assert_eq!(nr_sharing(folder.path()), 2);
        let cores = Cores { nr_sharing: 2, stolen_share: Some(0.25), before: None };
        assert!(cores.sentence().starts_with("2 of the processor's threads share") && cores.sentence().contains("25.0 %"));
    }
}
