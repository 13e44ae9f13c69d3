//! What happens in the gaps.

use pcpu::{AllocFlags, CpuId, alloc, with_irqs_off};

use crate::cpus::{migrate_to, next_cpu, on_another_cpu};
use crate::explorer::{Injection, When};
use crate::objects::Objects;

/// More than a CPU has in stock in any case.
const MANY: usize = 36;

/// Runs `f` as an interrupt or NMI handler runs, with interrupts off.
fn in_handler(f: impl FnOnce()) {
    with_irqs_off(|_| f());
}

fn allocate(world: &Objects, nr: usize, flags: AllocFlags) {
    for _ in 0..nr {
        world.allocate(flags);
    }
}

fn free(world: &Objects, nr: usize) {
    (0..nr).for_each(|_| world.free_last());
}

const fn anywhere(name: &'static str, action: fn(&Objects)) -> Injection<Objects> {
    Injection { name, when: When::Always, action }
}

const fn with_irqs_on(name: &'static str, action: fn(&Objects)) -> Injection<Objects> {
    Injection { name, when: When::IrqsOn, action }
}

/// What can meet a hit half-way.
pub const ON_HITS: &[Injection<Objects>] = &[
    NMI_ALLOCATES,
    NMI_FREES,
    MOVES,
    with_irqs_on("another task allocates, and the task moves to another CPU", |world| {
        allocate(world, 1, AllocFlags::PROCESS);
        migrate_to(next_cpu());
    }),
    with_irqs_on("another task frees, and the task moves to another CPU", |world| {
        free(world, 1);
        migrate_to(next_cpu());
    }),
];

/// What never waits, and so can happen anywhere, even while this CPU or another one holds the allocator's lock.
pub const NEVER_WAITING: &[Injection<Objects>] = &[
    NMI_ALLOCATES,
    NMI_FREES,
    anywhere("an NMI allocates many", |world| in_handler(|| allocate(world, MANY, AllocFlags::NMI))),
    anywhere("an NMI frees many", |world| in_handler(|| free(world, MANY))),
    anywhere("another CPU allocates", |world| on_another_cpu(|| allocate(world, 1, AllocFlags::NMI))),
    anywhere("another CPU frees many", |world| on_another_cpu(|| free(world, MANY))),
    MOVES,
];

/// What may wait for the lock, or call the memory source.
pub const WAITING: &[Injection<Objects>] = &[
    with_irqs_on("an interrupt allocates many", |world| in_handler(|| allocate(world, MANY, AllocFlags::INTERRUPT))),
    with_irqs_on("an interrupt frees many and allocates", |world| {
        in_handler(|| {
            free(world, MANY);
            allocate(world, 1, AllocFlags::INTERRUPT);
        });
    }),
    with_irqs_on("an interrupt drains the CPU", |_| in_handler(alloc::drain_this_cpu)),
    with_irqs_on("the task moves to another CPU after another task allocated there", |world| {
        migrate_to(next_cpu());
        allocate(world, 1, AllocFlags::PROCESS);
    }),
    with_irqs_on("the task moves to another CPU after another task freed there", |world| {
        migrate_to(next_cpu());
        free(world, 1);
    }),
];

/// What happens to the counters and words.
pub const COUNTING: &[Injection<Objects>] = &[
    anywhere("an NMI counts", |world| in_handler(|| world.count())),
    anywhere("another CPU counts", |world| on_another_cpu(|| world.count())),
    MOVES,
    with_irqs_on("another task counts, and the task moves to another CPU", |world| {
        world.count();
        migrate_to(next_cpu());
    }),
    with_irqs_on("the task moves to another CPU after another task counted there", |world| {
        migrate_to(next_cpu());
        world.count();
    }),
];

/// What can meet a promotion: another one, and adds.
pub const PROMOTING: &[Injection<Objects>] = &[
    anywhere("an NMI promotes", |world| {
        in_handler(|| {
            let _ = world.lazy.promote(AllocFlags::NMI);
        });
    }),
    with_irqs_on("another CPU promotes", |world| {
        on_another_cpu(|| world.lazy.promote(AllocFlags::PROCESS).expect("room"));
    }),
    anywhere("an NMI counts", |world| in_handler(|| world.count())),
    anywhere("another CPU counts", |world| on_another_cpu(|| world.count())),
    MOVES,
];

/// What happens to the counter with a limit, which is not for NMIs.
pub const SPENDING: &[Injection<Objects>] = &[
    with_irqs_on("an interrupt spends", |world| in_handler(|| world.spend(1))),
    with_irqs_on("an interrupt spends much", |world| in_handler(|| world.spend(150))),
    with_irqs_on("another CPU spends", |world| on_another_cpu(|| world.spend(40))),
    with_irqs_on("the task moves to another CPU after another task spent there", |world| {
        migrate_to(next_cpu());
        world.spend(33);
    }),
    MOVES,
];

const NMI_ALLOCATES: Injection<Objects> = anywhere("an NMI allocates", |world| in_handler(|| allocate(world, 1, AllocFlags::NMI)));
const NMI_FREES: Injection<Objects> = anywhere("an NMI frees", |world| in_handler(|| free(world, 1)));
const MOVES: Injection<Objects> = with_irqs_on("the task moves to another CPU", |_| migrate_to(next_cpu()));
const MOVES_BACK: Injection<Objects> = with_irqs_on("the task moves back", |_| migrate_to(CpuId::BOOT));
const TASK_ALLOCATES: Injection<Objects> = with_irqs_on("another task allocates there", |world| allocate(world, 1, AllocFlags::PROCESS));
const TASK_FREES: Injection<Objects> = with_irqs_on("another task frees there", |world| free(world, 1));

/// Away and back, with what other tasks do on either CPU meanwhile.
pub const AWAY_AND_BACK: &[&[Injection<Objects>]] = &[
    &[MOVES, MOVES_BACK],
    &[MOVES, MOVES],
    &[MOVES, TASK_ALLOCATES, MOVES_BACK],
    &[MOVES, TASK_FREES, MOVES_BACK],
    &[TASK_ALLOCATES, MOVES, MOVES_BACK],
    &[TASK_FREES, MOVES, MOVES_BACK],
    &[TASK_ALLOCATES, MOVES, TASK_FREES, MOVES_BACK],
    &[TASK_FREES, MOVES, TASK_ALLOCATES, MOVES_BACK],
];

const TASK_COUNTS: Injection<Objects> = with_irqs_on("another task counts there", |world| world.count());

/// The same for counters.
pub const COUNTING_AWAY_AND_BACK: &[&[Injection<Objects>]] = &[
    &[MOVES, MOVES_BACK],
    &[MOVES, TASK_COUNTS, MOVES_BACK],
    &[TASK_COUNTS, MOVES, TASK_COUNTS, MOVES_BACK],
    &[MOVES, TASK_COUNTS, MOVES, MOVES_BACK],
];
