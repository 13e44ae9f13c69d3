//! CPUs fork, exec and exit simulated address spaces, whose counters are kept in different ways, in turns.
//!
//! Words of the command line: `seconds=5` for each strategy, `strategies=each,grouped`, `workloads=bomb`, `parts=whole`, `live=512` processes at most,
//! `folio_orders=0`, `shares=true` to time what counters and the list's lock take, `rounds=5`, `chunks=3` to limit the memory for per-CPU
//! objects. Each strategy has the same number of rounds, and every round reports a row; what a machine does to one strategy by getting
//! slower it does to all.

#![cfg_attr(pcpu_kernel, no_std, no_main)]

#[cfg(not(pcpu_kernel))]
fn main() {
    println!("a kernel: run it with `cargo xtask forkbomb`");
}

#[cfg(pcpu_kernel)]
extern crate alloc;

#[cfg(pcpu_kernel)]
mod kernel {
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use core::str::FromStr;
    use pcpu::{CpuId, Pinned, marked};
    use pcpu_boot::{BootInfo, CommandLine, Exit, exit, smp, time};
    use workload::{CHUNK_LIMIT, ChunkLimit, Orders, Part, Plan, Stage, Workload, clock};

    pcpu_boot::entry!(main);

    /// Rounds of each strategy, if nothing else is asked for. Odd, so that the median is one of them.
    const NR_ROUNDS: usize = 5;

    /// Each CPU's part of a chunk. More chunks are added when a live limit asks for them.
    const UNIT_BYTES: usize = 128 * 1024;

    /// All CPUs of the machine.
    struct Cpus;

    impl Stage for Cpus {
        fn nr_cpus(&self) -> usize {
            CpuId::possible().len()
        }

        fn is_native(&self) -> bool {
            false
        }

        fn on_one(&self, work: &mut (dyn FnMut(Pinned<'_>) + Send)) {
            // SAFETY: a CPU has one task here, which stays.
            unsafe { pcpu::assume_pinned(work) };
        }

        fn on_all(&self, work: &(dyn Fn(usize, Pinned<'_>) + Sync)) {
            // SAFETY: as above.
            smp::run_on_all(|cpu| unsafe { pcpu::assume_pinned(|pin| work(cpu.index(), pin)) });
        }

        /// Marked, so that a plugin of QEMU's can count instructions.
        fn measure(&self, strategy: &str, work: &mut dyn FnMut()) {
            match strategy {
                "atomic" => marked!(0, "atomic", work()),
                "split" => marked!(1, "split", work()),
                "linux-each" => marked!(2, "linux-each", work()),
                "linux-grouped" => marked!(3, "linux-grouped", work()),
                "linux-lazy" => marked!(4, "linux-lazy", work()),
                "each" => marked!(5, "each", work()),
                "grouped" => marked!(6, "grouped", work()),
                "lazy" => marked!(7, "lazy", work()),
                "sole-user" => marked!(8, "sole-user", work()),
                _ => work(),
            }
        }
    }

    fn main(boot: &'static BootInfo) -> ! {
        let words = &boot.command_line;
        let nr_rounds = option(words, "rounds").unwrap_or(NR_ROUNDS);
        let seconds: f64 = option(words, "seconds").unwrap_or(5.0);
        let live = option(words, "live").unwrap_or(64 * boot.nr_cpus);
        let shares = option(words, "shares").unwrap_or(false);
        let strategies: Vec<_> = words.value("strategies").unwrap_or("each,grouped").split(',').collect();
        let workloads: Vec<_> = words.value("workloads").unwrap_or("bomb").split(',').map(workload).collect();
        let parts: Vec<_> = words.value("parts").unwrap_or("whole").split(',').map(part).collect();
        let folio_orders: Vec<u32> =
            words.value("folio_orders").unwrap_or("0").split(',').map(|text| number("folio_orders", text)).collect();
        if let Some(nr_chunks) = option(words, "chunks") {
            ChunkLimit::set_all(nr_chunks);
        }

        smp::start(boot, UNIT_BYTES);
        pcpu::alloc::set_source(&CHUNK_LIMIT);
        clock::set_ticks_per_second(time::tsc_hz());
        let nr_steps = nr_rounds * strategies.len() * workloads.len() * parts.len() * folio_orders.len();
        let mut step = 0;
        let mut is_clean = true;
        for &workload in &workloads {
            for &part in &parts {
                for _ in 0..nr_rounds {
                    for &folio_order in &folio_orders {
                        for strategy in &strategies {
                            defmt::println!("@progress {=usize} {=usize} {=str}, {=str}", step, nr_steps, workload.name(), strategy);
                            let orders = Orders { workload, live, folio_order, shares };
                            let plan = Plan { orders, part, seconds: seconds / nr_rounds as f64 };
                            let round = workload::run(strategy, &Cpus, &plan).unwrap_or_else(|error| panic!("{error}"));
                            defmt::println!("@row {=str}", round.to_string().as_str());
                            is_clean &= round.is_clean();
                            step += 1;
                        }
                    }
                }
            }
        }
        defmt::println!("@progress {=usize} {=usize} done", nr_steps, nr_steps);
        exit(if is_clean { Exit::Success } else { Exit::Failure })
    }

    fn workload(name: &str) -> Workload {
        Workload::from_name(name).unwrap_or_else(|| panic!("there is no workload `{name}`"))
    }

    fn part(name: &str) -> Part {
        Part::from_name(name).unwrap_or_else(|| panic!("there is no part `{name}`"))
    }

    /// The value of `key=value`, if there is one.
    fn option<T: FromStr>(words: &CommandLine, key: &str) -> Option<T> {
        words.value(key).map(|value| number(key, value))
    }

    fn number<T: FromStr>(key: &str, value: &str) -> T {
        value.parse().unwrap_or_else(|_| panic!("{key}={value} has a wrong value"))
    }
}
