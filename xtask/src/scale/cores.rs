//! Whether this machine's cores are its threads' alone.

use serde::Serialize;
use std::fs;
use std::path::Path;

/// When others use a larger part of the cores' time, times of several threads say little.
const BUSY: f64 = 0.05;

/// What is known about the cores.
#[derive(Debug, Serialize)]
pub struct Cores {
    /// Threads of the processor for which the system tells that they share a core with another one.
    pub nr_sharing: usize,
    /// Of the time of all cores during the measurement, what the hypervisor gave to other machines; `None` if the system does not tell.
    pub stolen_share: Option<f64>,
    /// The same for what other processes of this machine used.
    pub others_share: Option<f64>,
    #[serde(skip)]
    before: Option<Times>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    all: u64,
    stolen: u64,
    /// Neither idle, nor waiting for a device, nor stolen.
    used: u64,
    /// Used by this process, and by those that it started and that have ended.
    own: u64,
}

/// From `/proc/self/stat`: after the name in parentheses, the state and ten numbers, four times: of this process in user mode and in the system, and
/// of the processes that it waited for.
fn own_time(stat: &str) -> Option<u64> {
    const FIRST: usize = 11;
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Option<Vec<u64>> = fields.split_whitespace().skip(FIRST).take(4).map(|field| field.parse().ok()).collect();
    times.filter(|times| times.len() == 4).map(|times| times.iter().sum())
}

impl Times {
    /// From the first line of `/proc/stat`: user, nice, system, idle, waiting, two kinds of interrupts, stolen, and parts of those.
    fn parse(stat: &str, own_stat: &str) -> Option<Self> {
        const IDLE: usize = 3;
        const WAITING: usize = 4;
        const STOLEN: usize = 7;
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let times: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        let times = times.get(..=STOLEN)?;
        let all = times.iter().sum();
        Some(Times { all, stolen: times[STOLEN], used: all - times[IDLE] - times[WAITING] - times[STOLEN], own: own_time(own_stat)? })
    }

    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, &fs::read_to_string("/proc/self/stat").ok()?)
    }
}

impl Cores {
    /// Before the measurement.
    pub fn look() -> Self {
        let nr_sharing = nr_sharing(Path::new("/sys/devices/system/cpu"));
        Self { nr_sharing, stolen_share: None, others_share: None, before: Times::now() }
    }

    /// After it.
    pub fn look_again(self) -> Self {
        self.until(Times::now())
    }

    fn until(self, now: Option<Times>) -> Self {
        let between = |of: fn(Times) -> u64| {
            let (before, now) = (self.before?, now?);
            let all = now.all.saturating_sub(before.all);
            (all > 0).then(|| of(now).saturating_sub(of(before)) as f64 / all as f64)
        };
        let used = between(|times| times.used);
        let own = between(|times| times.own);
        Self { stolen_share: between(|times| times.stolen), others_share: used.zip(own).map(|(used, own)| (used - own).max(0.0)), ..self }
    }

    /// Whether others used so much that several threads did not have their cores.
    pub fn are_busy(&self) -> bool {
        self.others_share.unwrap_or(0.0) + self.stolen_share.unwrap_or(0.0) > BUSY
    }

    /// For people.
    pub fn sentence(&self) -> String {
        let siblings = match self.nr_sharing {
            0 => "No core is shared by two threads of the processor, as far as the system tells".to_owned(),
            nr => format!("{nr} of the processor's threads share their cores, so that two of them are less than two cores"),
        };
        let percent = |share: Option<f64>| share.map_or_else(|| "an unknown part".to_owned(), |share| format!("{:.1} %", share * 100.0));
        format!(
            "{siblings}. Of the cores' time other processes used {}, and a hypervisor took {} for others.",
            percent(self.others_share),
            percent(self.stolen_share)
        )
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

    const OWN: &str = "77 (a (name) of) S 1 2 3 4 5 6 7 8 9 10 1 2 3 4 20 0";

    #[test]
    fn times_are_read_from_what_the_system_tells() {
        let stat = "cpu  10 20 30 40 50 60 70 80 5 5\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(Times::parse(stat, OWN), Some(Times { all: 360, stolen: 80, used: 190, own: 10 }));
        assert_eq!(Times::parse("cpu  10 20\n", OWN), None);
        assert_eq!(Times::parse(stat, "77 (name) S 1 2"), None);
    }

    #[test]
    fn what_others_used_is_what_was_used_less_ones_own() {
        let times = |all, stolen, used, own| Some(Times { all, stolen, used, own });
        let cores = |now| Cores { nr_sharing: 0, stolen_share: None, others_share: None, before: times(100, 10, 50, 5) }.until(now);
        let busy = cores(times(300, 20, 150, 55));
        assert_eq!((busy.stolen_share, busy.others_share, busy.are_busy()), (Some(0.05), Some(0.25), true));
        assert!(!cores(times(300, 10, 150, 105)).are_busy());
        assert!(cores(None).sentence().contains("an unknown part"));
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
        let cores = Cores { nr_sharing: 2, stolen_share: Some(0.25), others_share: None, before: None };
        assert!(cores.sentence().starts_with("2 of the processor's threads share") && cores.sentence().contains("25.0 %"));
    }
}
