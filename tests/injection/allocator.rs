//! Allocation and free.

use core::cell::Cell;
use pcpu::host::{irq_enable, irq_save_and_disable, irqs_are_on};
use pcpu::{AllocError, AllocFlags, CpuId, PerCpuBox, alloc};

use crate::cpus::migrate_to;
use crate::explorer::{Explorer, Plan};
use crate::injections::{AWAY_AND_BACK, NEVER_WAITING, ON_HITS, WAITING};
use crate::objects::{Objects, SIZE};
use crate::prove;
use crate::stepper;

/// How many gaps of the long operations are tried one by one; the storms have something in each.
const SAMPLE: usize = 60;

const HIT: &[Plan<'static, Objects>] = &[
    Plan::Single { at_most: usize::MAX, injections: ON_HITS },
    Plan::Single { at_most: SAMPLE, injections: NEVER_WAITING },
    Plan::Single { at_most: SAMPLE, injections: WAITING },
];

const MISS: &[Plan<'static, Objects>] = &[
    Plan::Single { at_most: SAMPLE, injections: NEVER_WAITING },
    Plan::Single { at_most: SAMPLE, injections: WAITING },
    Plan::Storm { spacing: 1, injections: ON_HITS },
    Plan::Storm { spacing: 7, injections: ON_HITS },
    Plan::Storm { spacing: 101, injections: NEVER_WAITING },
    Plan::Storm { spacing: 103, injections: WAITING },
];

fn allocate(world: &Objects, explorer: &mut Explorer<'_, Objects>) {
    let handle = explorer.step(|| alloc::allocate(SIZE, 8, AllocFlags::PROCESS)).expect("there is room");
    world.remember(handle, SIZE);
}

fn free_clean(world: &Objects, explorer: &mut Explorer<'_, Objects>) {
    let object = world.forget().expect("there are objects");
    // SAFETY: allocated with that size, forgotten, and clean.
    explorer.step(|| unsafe { alloc::free_clean(object.handle, SIZE, 8) });
}

#[test]
fn an_allocation_hit_can_be_disturbed_after_every_instruction() {
    prove("allocate, hit", HIT, |world, explorer| {
        world.stock(SIZE, [8, 8, 8], 40);
        allocate(world, explorer);
    });
}

#[test]
fn a_free_hit_can_be_disturbed_after_every_instruction() {
    prove("free_clean, hit", HIT, |world, explorer| {
        world.stock(SIZE, [8, 8, 8], 40);
        free_clean(world, explorer);
    });
}

#[test]
fn a_hit_can_go_away_and_come_back_at_any_two_instructions() {
    let plans: Vec<_> = AWAY_AND_BACK.iter().map(|&injections| Plan::Sequence { injections }).collect();
    for (this, other) in [(8, 8), (8, 0), (8, 32), (1, 8)] {
        prove(&format!("allocate, {this} in stock, {other} elsewhere"), &plans, |world, explorer| {
            world.stock(SIZE, [this, other, other], 40);
            allocate(world, explorer);
        });
        prove(&format!("free_clean, {this} in stock, {other} elsewhere"), &plans, |world, explorer| {
            world.stock(SIZE, [this, other, other], 40);
            free_clean(world, explorer);
        });
    }
}

#[test]
fn a_refill_can_be_disturbed_after_every_instruction() {
    prove("allocate, miss", MISS, |world, explorer| {
        world.stock(SIZE, [0, 8, 8], 40);
        allocate(world, explorer);
    });
}

#[test]
fn a_flush_can_be_disturbed_after_every_instruction() {
    prove("free_clean, miss", MISS, |world, explorer| {
        world.stock(SIZE, [32, 8, 8], 40);
        free_clean(world, explorer);
    });
}

#[test]
fn an_allocation_that_adds_a_chunk_can_be_disturbed_after_every_instruction() {
    prove("allocate, new chunk", MISS, |world, explorer| {
        for size_bytes in [4096, 2048, 1024, 512, 256, 128, 64, 32, SIZE] {
            while world.allocate_of(size_bytes, AllocFlags::INTERRUPT) {}
        }
        allocate(world, explorer);
    });
}

#[test]
fn large_objects_can_be_disturbed_after_every_instruction() {
    const LARGE: usize = 8192;
    prove("allocate and free, large", MISS, |world, explorer| {
        world.stock(SIZE, [8, 8, 8], 40);
        let freed = explorer.step(|| {
            let handle = alloc::allocate(LARGE, 8, AllocFlags::PROCESS)?;
            // SAFETY: allocated above and not written to.
            unsafe { alloc::free_clean(handle, LARGE, 8) };
            Ok::<(), AllocError>(())
        });
        assert_eq!(freed, Ok(()));
    });
}

#[test]
fn a_cleaning_free_and_a_box_can_be_disturbed_after_every_instruction() {
    prove("PerCpuBox::zeroed, drop", MISS, |world, explorer| {
        world.stock(SIZE, [8, 8, 8], 40);
        let made = explorer.step(|| PerCpuBox::<[u64; 2]>::zeroed().map(drop));
        assert_eq!(made, Ok(()));
    });
}

#[test]
fn a_prefill_can_be_disturbed_after_every_instruction() {
    prove("prefill", MISS, |world, explorer| {
        world.stock(SIZE, [3, 8, 8], 40);
        assert_eq!(explorer.step(|| alloc::prefill(SIZE, 8, 5)), Ok(()));
    });
}

#[test]
fn a_drain_can_be_disturbed_after_every_instruction() {
    prove("drain_this_cpu", MISS, |world, explorer| {
        world.stock(SIZE, [8, 8, 8], 40);
        explorer.step(alloc::drain_this_cpu);
    });
}

/// Runs `f` on the boot CPU while CPU 2 is inside the allocator's lock.
fn while_cpu_2_holds_the_lock(f: impl FnOnce()) {
    let holds_lock = || {
        // A large object is not to be had without the lock.
        let probe = alloc::allocate(4096, 8, AllocFlags::NMI);
        // SAFETY: allocated above and not written to.
        let _ = probe.map(|handle| unsafe { alloc::free_clean(handle, 4096, 8) });
        probe == Err(AllocError::WouldWait)
    };
    let f = Cell::new(Some(f));
    migrate_to(CpuId::new(2).expect("possible"));
    stepper::step(alloc::drain_this_cpu, &mut |_| {
        if irqs_are_on() || !holds_lock() {
            return true;
        }
        migrate_to(CpuId::BOOT);
        irq_enable();
        f.take().expect("the stepping ends here")();
        irq_save_and_disable();
        migrate_to(CpuId::new(2).expect("possible"));
        false
    });
    migrate_to(CpuId::BOOT);
    assert!(f.take().is_none(), "the drain was caught inside the lock");
}

#[test]
fn a_free_while_the_allocator_is_locked_can_be_disturbed_after_every_instruction() {
    let plans = [Plan::Single { at_most: 4 * SAMPLE, injections: NEVER_WAITING }, Plan::Storm { spacing: 1, injections: NEVER_WAITING }];
    prove("free_clean, locked by another CPU", &plans, |world, explorer| {
        world.stock(SIZE, [32, 32, 8], 40);
        while_cpu_2_holds_the_lock(|| free_clean(world, explorer));
    });
}
