//! A limit on the memory for per-CPU chunks, reached while a bomb grows. A process of its own, since a process has one source.

use pcpu::host::Machine;
use workload::{CHUNK_LIMIT, ChunkLimit, Crew, Each, Grouped, LinuxGrouped, Orders, Strategy, Tally, Workload};

const NR_CPUS: usize = 2;
/// Besides each allocator's first.
const NR_CHUNKS: usize = 1;
/// Four counters' slots on a CPU, and what a chunk has for a CPU: the library's, and the Linux-like allocator's.
const OWN: (usize, usize) = (4 * size_of::<i64>(), pcpu::DEFAULT_UNIT_BYTES);
const LINUX: (usize, usize) = (4 * size_of::<i32>(), 256 << 10);

fn bomb<S: Strategy>(machine: Machine, live: usize, steps: usize) -> Tally {
    let orders = Orders { workload: Workload::Bomb, live, folio_order: 0, shares: false };
    let crew = Crew::<S>::new(NR_CPUS, orders).unwrap();
    let tallies = machine.run(NR_CPUS, |cpu| {
        let mut asked = 0;
        let time_is_up = || {
            asked += 1;
            asked > steps
        };
        // SAFETY: a thread is its CPU until it ends.
        unsafe { pcpu::assume_pinned(|pin| crew.work(pin, cpu.index(), time_is_up)) }
    });
    assert_eq!(crew.finish(), (0, 0));
    let mut total = Tally::default();
    tallies.into_iter().for_each(|tally| total += tally);
    total
}

#[test]
fn forks_fail_at_the_limit_and_the_system_goes_on() {
    // SAFETY: this test touches per-CPU data only inside of `run`, and starts no threads there.
    let machine = unsafe { Machine::boot(NR_CPUS) }.unwrap();
    ChunkLimit::set_all(NR_CHUNKS);
    pcpu::alloc::set_source(&CHUNK_LIMIT);
    let objects = || machine.run(1, |_| pcpu::alloc::stats().live_objects)[0];
    let objects_before = objects();

    // Three times as many spaces as all chunks have room for.
    let live = |(slots_bytes, unit_bytes): (usize, usize)| 3 * (NR_CHUNKS + 1) * unit_bytes / slots_bytes;
    let (own, linux) = (live(OWN), live(LINUX));
    let tallies = [bomb::<Grouped>(machine, own, own), bomb::<Each>(machine, own, own), bomb::<LinuxGrouped>(machine, linux, linux)];
    for tally in tallies {
        assert!(tally.failed_forks > 0);
        assert!(tally.lifetimes > tally.failed_forks);
        assert_eq!(tally.nonzero_counters, 0);
        assert_eq!(objects(), objects_before);
    }

    let after = bomb::<Grouped>(machine, 256, 5_000);
    assert_eq!((after.failed_forks, after.nonzero_counters), (0, 0));
    assert!(after.lifetimes > 1_000);
    assert_eq!(objects(), objects_before);
}
