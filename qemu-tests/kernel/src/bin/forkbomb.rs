//! CPUs fork, exec and exit simulated address spaces, whose counters are kept in different ways, in turns.
//!
//! Words of the command line: `seconds=5` for each strategy, `strategies=each,grouped`, `live=512` processes at most. Each strategy has the
//! same number of rounds, and every round reports a row; what a machine does to one strategy by getting slower it does to all.

#![cfg_attr(pcpu_kernel, no_std, no_main)]

#[cfg(not(pcpu_kernel))]
fn main() {
    println!("a kernel: run it with `cargo xtask forkbomb`");
}

#[cfg(pcpu_kernel)]
extern crate alloc;

#[cfg(pcpu_kernel)]
mod kernel {
    use alloc::vec::Vec;
    use core::str::FromStr;
    use pcpu::{AllocError, CpuId};
    use pcpu_boot::{BootInfo, CommandLine, Exit, exit, smp, time};
    use spin::Mutex;
    use workload::{Bomb, Each, Grouped, Strategy, Tally};

    pcpu_boot::entry!(main);

    /// Rounds of each strategy. Odd, so that the median is one of them.
    const NR_ROUNDS: usize = 5;

    /// Each CPU's part of a chunk. More chunks are added when a live limit asks for them.
    const UNIT_BYTES: usize = 128 * 1024;

    /// What one round is to do.
    #[derive(Clone, Copy)]
    struct Plan {
        seconds: f64,
        live: usize,
    }

    fn main(boot: &'static BootInfo) -> ! {
        let words = &boot.command_line;
        let seconds: f64 = option(words, "seconds").unwrap_or(5.0);
        let plan = Plan { seconds: seconds / NR_ROUNDS as f64, live: option(words, "live").unwrap_or(64 * boot.nr_cpus) };
        let strategies = strategies(words.value("strategies").unwrap_or("each,grouped"));

        smp::start(boot, UNIT_BYTES);
        pcpu::alloc::set_source(&pcpu::alloc::Heap);
        let nr_steps = NR_ROUNDS * strategies.len();
        let mut is_clean = true;
        for (step, (name, round)) in strategies.iter().cycle().take(nr_steps).enumerate() {
            defmt::println!("@progress {=usize} {=usize} {=str}", step, nr_steps, name);
            is_clean &= round(plan);
        }
        defmt::println!("@progress {=usize} {=usize} done", nr_steps, nr_steps);
        exit(if is_clean { Exit::Success } else { Exit::Failure })
    }

    /// The value of `key=value`, if there is one.
    fn option<T: FromStr>(words: &CommandLine, key: &str) -> Option<T> {
        words.value(key).map(|value| value.parse().unwrap_or_else(|_| panic!("{key}={value} is not a number")))
    }

    type Round = fn(Plan) -> bool;

    /// The strategies of a comma-separated list, with their names.
    fn strategies(list: &'static str) -> Vec<(&'static str, Round)> {
        let known = |name| match name {
            Each::NAME => (name, run::<Each> as Round),
            Grouped::NAME => (name, run::<Grouped> as Round),
            _ => panic!("there is no strategy `{name}`"),
        };
        list.split(',').map(known).collect()
    }

    /// Runs one round and reports its row. Tells whether every counter ended at zero and nothing leaked.
    fn run<S: Strategy<Error = AllocError> + Send>(plan: Plan) -> bool {
        let nr_cpus = CpuId::possible().len();
        let objects_before = pcpu::alloc::stats().live_objects;
        let bomb = Bomb::<S>::new(nr_cpus, plan.live).unwrap_or_else(|_| panic!("live={} is too little for {nr_cpus} CPUs", plan.live));
        let total = Mutex::new(Tally::default());

        let hz = time::tsc_hz() as f64;
        let start = time::tsc();
        let end = start + (plan.seconds * hz) as u64;
        smp::run_on_all(|cpu| {
            let (tally, outcome) = bomb.work(cpu.index(), || time::tsc() >= end);
            if let Err(error) = outcome {
                panic!("{} counters for {} live processes: {error}", S::NAME, plan.live);
            }
            *total.lock() += tally;
        });
        let seconds = (time::tsc() - start) as f64 / hz;
        drop(bomb);

        let tally = total.into_inner();
        let leaked_objects = pcpu::alloc::stats().live_objects as i64 - objects_before as i64;
        defmt::println!(
            "@row workload=bomb strategy={=str} cpus={=usize} possible_cpus={=usize} native=false lifetimes={=u64} seconds={=f64} \
             per_second={=f64} nonzero_counters={=u64} leaked_objects={=i64}",
            S::NAME,
            nr_cpus,
            nr_cpus,
            tally.lifetimes,
            seconds,
            tally.lifetimes as f64 / seconds,
            tally.nonzero_counters,
            leaked_objects,
        );
        tally.nonzero_counters == 0 && leaked_objects == 0
    }
}
