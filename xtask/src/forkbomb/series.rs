//! What is measured in one go: a boot of the kernel, or a native process.

use crate::cli::{Forkbomb, Strategy, Workload, name};
use crate::distinct::distinct;
use crate::host::Host;
use anyhow::{Result, ensure};
use std::time::Duration;

/// Rounds that strategies take turns in, where a time for each strategy is given. Odd, so that the median is one of them.
const NR_ROUNDS: u32 = 5;

/// Room for a parent, two children and a mailbox.
const MIN_LIVE_PER_CPU: u32 = 4;

/// Of which the tables and lists fit into the kernel's memory.
pub const MAX_LIVE: u32 = 100_000;

/// Which table a series is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A line for each strategy, workload and number of CPUs.
    Lines,
    /// Strategies by workloads, and what can be taken from that.
    Matrix,
    /// Folio orders: the shares of counters and of the list's lock.
    Folios,
    /// The counters of an exec alone.
    Alone,
    /// Threads that add to the same counters.
    Threads,
    /// Memory of a bomb's counters.
    Memory,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Series {
    pub view: View,
    pub native: bool,
    pub cpus: u32,
    /// Native only: a kernel's CPUs all run.
    pub possible_cpus: u32,
    pub workloads: Vec<String>,
    pub parts: Vec<&'static str>,
    pub strategies: Vec<String>,
    pub live: u32,
    pub folio_orders: Vec<u32>,
    /// Chunks that a kernel's per-CPU objects may take.
    pub chunk_limit: Option<u32>,
    /// For each row.
    pub seconds: Duration,
    pub rounds: u32,
}

impl Series {
    /// What this asks for.
    pub fn of(options: &Forkbomb, host: &Host) -> Vec<Series> {
        if options.is_everything() { Self::everything(host) } else { Self::chosen(options, host) }
    }

    fn chosen(options: &Forkbomb, host: &Host) -> Vec<Series> {
        let workloads = match options.workload.as_slice() {
            [] => vec![name(Workload::Bomb)],
            some => Workload::expanded(some),
        };
        let strategies = match options.strategy.as_slice() {
            [] => vec![name(Strategy::Each), name(Strategy::Grouped)],
            some => Strategy::expanded(some),
        };
        let cpus = match options.cpus.as_slice() {
            [] if options.native => vec![host.host_cpus as u32],
            [] => vec![1, 2, 4, 8],
            some => distinct(some.iter().copied()),
        };
        let view = if !options.folio_order.is_empty() {
            View::Folios
        } else if workloads.len() > 1 {
            View::Matrix
        } else {
            View::Lines
        };
        let seconds = options.seconds.unwrap_or(Duration::from_secs(5));
        // The original prints what it reached each second.
        let rounds = if workloads == [name(Workload::Doexec)] && view == View::Lines {
            (seconds.as_secs() as u32).max(NR_ROUNDS)
        } else {
            NR_ROUNDS
        };
        let one = |&cpus: &u32| Series {
            view,
            native: options.native,
            cpus,
            possible_cpus: options.possible_cpus.unwrap_or(cpus),
            workloads: workloads.clone(),
            parts: vec!["whole"],
            strategies: strategies.clone(),
            live: options.live.unwrap_or(cpus * options.live_per_cpu),
            folio_orders: if options.folio_order.is_empty() { vec![0] } else { distinct(options.folio_order.iter().copied()) },
            chunk_limit: options.chunk_limit,
            seconds,
            rounds,
        };
        cpus.iter().map(one).collect()
    }

    /// All tables, within three minutes on two CPUs.
    fn everything(host: &Host) -> Vec<Series> {
        const CPUS: u32 = 2;
        let cores = (host.host_cpus as u32).clamp(1, CPUS);
        let names = |strategies: &[Strategy]| strategies.iter().map(|&strategy| name(strategy)).collect::<Vec<_>>();
        let base = Series {
            view: View::Lines,
            native: false,
            cpus: CPUS,
            possible_cpus: CPUS,
            workloads: vec![name(Workload::Bomb)],
            parts: vec!["whole"],
            strategies: names(&[Strategy::Each, Strategy::Grouped]),
            live: 64 * CPUS,
            folio_orders: vec![0],
            chunk_limit: None,
            seconds: Duration::from_millis(1500),
            rounds: NR_ROUNDS,
        };
        let all = Strategy::expanded(&[Strategy::All]);
        let mut series: Vec<_> = [1, 2, 4, 8].map(|cpus| Series { cpus, possible_cpus: cpus, live: 64 * cpus, ..base.clone() }).into();
        series.push(Series {
            view: View::Matrix,
            workloads: Workload::expanded(&[Workload::All]),
            strategies: all.clone(),
            seconds: Duration::from_millis(300),
            rounds: 3,
            ..base.clone()
        });
        let native = Series { native: true, cpus: cores, possible_cpus: 256, ..base.clone() };
        series.push(Series {
            view: View::Folios,
            workloads: vec![name(Workload::Doexec)],
            strategies: names(&[Strategy::LinuxEach, Strategy::LinuxGrouped, Strategy::Each, Strategy::Grouped, Strategy::Lazy]),
            folio_orders: (0..=4).collect(),
            possible_cpus: 26,
            seconds: Duration::from_millis(400),
            ..native.clone()
        });
        series.push(Series {
            view: View::Alone,
            workloads: vec![name(Workload::Exec)],
            parts: vec!["counters", "lifecycle"],
            strategies: all.clone(),
            seconds: Duration::from_millis(400),
            rounds: 31,
            ..native.clone()
        });
        series.push(Series {
            view: View::Threads,
            workloads: vec![name(Workload::Threads)],
            strategies: all.clone(),
            seconds: Duration::from_millis(300),
            ..native.clone()
        });
        series.extend([1_000, 10_000].map(|live| Series {
            view: View::Memory,
            strategies: all.clone(),
            live,
            // Long enough for the slowest to get there.
            seconds: Duration::from_micros(u64::from(live) * 150).max(Duration::from_millis(500)),
            rounds: 1,
            ..native.clone()
        }));
        series
    }

    /// The counters of an exec alone, or also the processes around them, of all strategies on native threads.
    pub fn execs(cpus: u32, possible_cpus: u32, parts: &[&'static str], seconds: Duration, rounds: u32) -> Series {
        Series {
            view: View::Alone,
            native: true,
            cpus,
            possible_cpus,
            workloads: vec![name(Workload::Exec)],
            parts: parts.to_vec(),
            strategies: Strategy::expanded(&[Strategy::All]),
            live: 64 * cpus,
            folio_orders: vec![0],
            chunk_limit: None,
            seconds,
            rounds,
        }
    }

    /// How long the rounds take at least.
    pub fn duration(&self) -> Duration {
        let rows = self.workloads.len() * self.parts.len() * self.strategies.len() * self.folio_orders.len();
        self.seconds * rows as u32
    }

    /// Fails when it cannot be measured on `host`, before anything is.
    pub fn check(&self, host: &Host) -> Result<()> {
        ensure!(
            !self.native || self.cpus as usize <= host.host_cpus,
            "--native runs a thread on each core: {} are wanted, and this machine has {}",
            self.cpus,
            host.host_cpus
        );
        ensure!(self.cpus <= self.possible_cpus, "{} CPUs cannot run where {} are possible", self.cpus, self.possible_cpus);
        check_live(self.cpus, self.live)
    }

    fn shares(&self) -> bool {
        self.view == View::Folios
    }

    /// Whether each round is shown when it has ended.
    pub fn shows_rounds(&self) -> bool {
        self.view == View::Lines && self.workloads == [name(Workload::Doexec)]
    }

    /// The kernel's command line.
    pub fn kernel_words(&self) -> String {
        let limit = self.chunk_limit.map_or_else(String::new, |nr| format!(" chunks={nr}"));
        format!(
            "seconds={} rounds={} strategies={} workloads={} parts={} live={} folio_orders={} shares={}{limit}",
            self.seconds.as_secs_f64(),
            self.rounds,
            self.strategies.join(","),
            self.workloads.join(","),
            self.parts.join(","),
            self.live,
            list(&self.folio_orders),
            self.shares()
        )
    }

    /// The native process's arguments.
    pub fn native_arguments(&self) -> Vec<String> {
        let mut arguments: Vec<_> = [
            ("--seconds", self.seconds.as_secs_f64().to_string()),
            ("--rounds", self.rounds.to_string()),
            ("--cpus", self.cpus.to_string()),
            ("--possible-cpus", self.possible_cpus.to_string()),
            ("--strategies", self.strategies.join(",")),
            ("--workloads", self.workloads.join(",")),
            ("--parts", self.parts.join(",")),
            ("--live", self.live.to_string()),
            ("--folio-orders", list(&self.folio_orders)),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect();
        arguments.extend(self.shares().then(|| "--shares".to_owned()));
        arguments.extend(self.chunk_limit.iter().flat_map(|nr| ["--chunk-limit".to_owned(), nr.to_string()]));
        arguments
    }
}

/// Fails where a kernel has not the memory for so many processes at once, or where CPUs would wait for each other.
pub fn check_live(cpus: u32, live: u32) -> Result<()> {
    ensure!(live >= cpus * MIN_LIVE_PER_CPU, "--live {live} is too few for {cpus} CPUs: each needs {MIN_LIVE_PER_CPU}");
    ensure!(live <= MAX_LIVE, "{live} processes at once on {cpus} CPUs are too many: at most {MAX_LIVE}");
    Ok(())
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host { host_cpus: 2, ..Host::default() }
    }

    #[test]
    fn everything_is_measured_within_two_minutes() {
        let series = Series::everything(&host());
        let views: Vec<_> = series.iter().map(|series| series.view).collect();
        for view in [View::Lines, View::Matrix, View::Folios, View::Alone, View::Threads, View::Memory] {
            assert!(views.contains(&view), "{view:?}");
        }
        // The rest of three minutes is for boots, and for rounds that take longer than they should.
        assert!(series.iter().map(Series::duration).sum::<Duration>() < Duration::from_secs(100));
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let good = Series::everything(&host()).remove(0);
        assert!(Series::everything(&host()).iter().all(|series| series.check(&host()).is_ok()));
        let refused = |series: Series, why: &str| {
            let error = series.check(&host()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(Series { native: true, cpus: 3, possible_cpus: 3, ..good.clone() }, "this machine has 2");
        refused(Series { cpus: 4, possible_cpus: 2, ..good.clone() }, "4 CPUs cannot run where 2 are possible");
        refused(Series { cpus: 8, possible_cpus: 8, live: 31, ..good.clone() }, "--live 31");
        refused(Series { live: MAX_LIVE + 1, ..good }, "at most 100000");
    }

    #[test]
    fn the_kernel_and_the_native_process_are_told_the_same() {
        let series = Series { folio_orders: vec![0, 4], view: View::Folios, ..Series::everything(&host())[4].clone() };
        assert!(series.kernel_words().contains("folio_orders=0,4 shares=true"));
        let arguments = series.native_arguments().join(" ");
        assert!(arguments.contains("--folio-orders 0,4 --shares"), "{arguments}");
        assert!(arguments.contains("--strategies atomic,split,linux-each,"), "{arguments}");
    }
}
