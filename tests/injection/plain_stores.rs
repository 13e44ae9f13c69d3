//! The harness finds what it is there for: a magazine whose cells are written by plain stores, as the library's must not be.
//!
//! A copy of the library's hit path, small enough to be read beside it; with compare-exchanges it passes, with stores it must fail.

use core::arch::asm;
use core::cell::Cell;
use core::mem::offset_of;
use pcpu::{CpuId, field, per_cpu, with_irqs_off};

use crate::cpus::{copy_on, migrate_to, next_cpu, on_boot_cpu};
use crate::explorer::{Explored, Explorer, Failure, Injection, Plan, When, World, explore};

const CELLS: usize = 8;
/// The handles are `1..=NR_HANDLES`.
const NR_HANDLES: usize = 10;

struct Magazine {
    hint: usize,
    cells: [usize; CELLS],
}

per_cpu! {
    static MAGAZINE: Magazine = Magazine { hint: 0, cells: [0; CELLS] };
}

fn cell(index: usize) -> usize {
    assert!(index < CELLS);
    MAGAZINE.template_address() + offset_of!(Magazine, cells) + index * size_of::<usize>()
}

fn load(cell: usize) -> usize {
    let value;
    // SAFETY: a cell's address in template space.
    unsafe { asm!("mov {}, gs:[{}]", out(reg) value, in(reg) cell, options(nostack, preserves_flags)) };
    value
}

/// Writes `new` into a cell that held `old` when it was loaded. `false` if it holds something else by now.
type Write = fn(cell: usize, old: usize, new: usize) -> bool;

fn compare_exchange(cell: usize, old: usize, new: usize) -> bool {
    let found: usize;
    // SAFETY: a cell's address in template space.
    unsafe { asm!("cmpxchg gs:[{}], {}", in(reg) cell, in(reg) new, inout("rax") old => found, options(nostack)) };
    found == old
}

fn plain_store(cell: usize, _: usize, new: usize) -> bool {
    // SAFETY: a cell's address in template space.
    unsafe { asm!("mov gs:[{}], {}", in(reg) cell, in(reg) new, options(nostack, preserves_flags)) };
    true
}

fn take(write: Write) -> Option<usize> {
    let index = field!(MAGAZINE, hint).get().checked_sub(1)?;
    let handle = load(cell(index));
    if handle == 0 || !write(cell(index), handle, 0) {
        return None;
    }
    field!(MAGAZINE, hint).set(index);
    Some(handle)
}

fn put(write: Write, handle: usize) -> bool {
    let index = field!(MAGAZINE, hint).get();
    if index >= CELLS || load(cell(index)) != 0 || !write(cell(index), 0, handle) {
        return false;
    }
    field!(MAGAZINE, hint).set(index + 1);
    true
}

/// Where each handle is, but for those in cells.
struct Handles {
    in_use: [Cell<bool>; NR_HANDLES],
}

impl Handles {
    fn got(&self, handle: Option<usize>) {
        if let Some(handle) = handle {
            assert!(!self.in_use[handle - 1].replace(true), "an object was handed out twice");
        }
    }

    /// A handle in use.
    fn any(&self) -> Option<usize> {
        self.in_use.iter().position(Cell::get).map(|index| index + 1)
    }

    /// Another context, which does it right, puts one.
    fn put_one(&self) {
        if let Some(handle) = self.any() {
            let put = put(compare_exchange, handle);
            self.in_use[handle - 1].set(!put);
        }
    }
}

impl World for Handles {
    /// Three handles in use, three in stock on the boot CPU, and four on the next one.
    fn new() -> Self {
        for (cpu, handles) in [(1, 7..=10), (0, 4..=6)] {
            migrate_to(CpuId::new(cpu).expect("possible"));
            handles.for_each(|handle| assert!(put(compare_exchange, handle)));
        }
        Handles { in_use: core::array::from_fn(|index| Cell::new(index < 3)) }
    }

    fn finish(self, _: usize) {
        migrate_to(CpuId::BOOT);
        let mut nr_seen = self.in_use.each_ref().map(|in_use| u32::from(in_use.get()));
        for cpu in CpuId::possible() {
            for index in 0..CELLS {
                // SAFETY: a cell on a CPU that does not run.
                let handle = unsafe { copy_on::<usize>(cpu, cell(index)).replace(0) };
                if handle > 0 {
                    nr_seen[handle - 1] += 1;
                }
            }
            // SAFETY: as above.
            unsafe { (*MAGAZINE.ptr_on(cpu)).hint = 0 };
        }
        assert!(nr_seen.iter().all(|&nr| nr <= 1), "an object is in two places");
        assert!(nr_seen.iter().all(|&nr| nr >= 1), "an object was lost");
    }
}

const INTERRUPTS: &[Injection<Handles>] = &[
    Injection { name: "an interrupt takes", when: When::Always, action: |world| with_irqs_off(|_| world.got(take(compare_exchange))) },
    Injection { name: "an interrupt puts", when: When::Always, action: |world| with_irqs_off(|_| world.put_one()) },
];

const MIGRATIONS: &[Injection<Handles>] =
    &[Injection { name: "the task moves to another CPU", when: When::IrqsOn, action: |_| migrate_to(next_cpu()) }];

fn explore_take(write: Write, injections: &[Injection<Handles>]) -> Result<Explored, Failure> {
    let case = |world: &Handles, explorer: &mut Explorer<'_, Handles>| world.got(explorer.step(|| take(write)));
    on_boot_cpu(|| explore("take", &[Plan::Single { at_most: usize::MAX, injections }], case))
}

fn explore_put(write: Write, injections: &[Injection<Handles>]) -> Result<Explored, Failure> {
    let case = |world: &Handles, explorer: &mut Explorer<'_, Handles>| {
        let handle = world.any().expect("some are in use");
        world.in_use[handle - 1].set(false);
        let put = explorer.step(|| put(write, handle));
        // Once it is in a cell somebody else may have taken it already.
        if !put {
            world.in_use[handle - 1].set(true);
        }
    };
    on_boot_cpu(|| explore("put", &[Plan::Single { at_most: usize::MAX, injections }], case))
}

#[test]
fn a_magazine_with_compare_exchanges_passes() {
    for injections in [INTERRUPTS, MIGRATIONS] {
        for outcome in [explore_take(compare_exchange, injections), explore_put(compare_exchange, injections)] {
            assert!(outcome.expect("nothing goes wrong").nr_schedules > 10);
        }
    }
}

#[test]
fn a_magazine_with_plain_stores_is_found_out() {
    for (outcome, what) in [
        (explore_take(plain_store, INTERRUPTS), "handed out twice"),
        (explore_put(plain_store, INTERRUPTS), "lost"),
        // On the other CPU another handle is in the cell, which the store overwrites.
        (explore_take(plain_store, MIGRATIONS), "in two places"),
        (explore_put(plain_store, MIGRATIONS), "lost"),
    ] {
        match outcome {
            Ok(explored) => panic!("{} schedules, and none shows that an object is {what}", explored.nr_schedules),
            Err(Failure(report)) => assert!(report.contains(what), "{report}"),
        }
    }
}
