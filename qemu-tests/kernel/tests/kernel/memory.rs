//! Memory, the kernel's heap and per-CPU objects, from all CPUs at once.

use alloc::{collections::BTreeSet, vec, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};

use pcpu::{AllocError, AllocFlags, Batch, Counter, CpuId, PerCpuBox, alloc::stats};
use spin::mutex::SpinMutex;

use crate::{
    harness::{Case, Outcome, cases, check, check_eq, on_all},
    ticker,
};

pub const CASES: &[Case] = cases![
    the_heap_serves_all_cpus_at_once,
    new_objects_are_zero_on_every_cpu,
    live_objects_never_overlap,
    what_one_cpu_allocates_another_may_free,
    objects_beyond_a_chunk_come_from_further_chunks,
    allocating_in_interrupts_too_leaves_nothing_behind,
    impossible_objects_are_named_errors,
];

const ROUNDS: usize = 50;

fn the_heap_serves_all_cpus_at_once() -> Outcome {
    on_all(|cpu| {
        for round in 0..ROUNDS {
            let value = (cpu.index() * ROUNDS + round) as u64;
            let vectors: Vec<Vec<u64>> = (1..20).map(|length| vec![value; length * 7]).collect();
            check!(vectors.iter().flatten().all(|&found| found == value), "another CPU wrote into this CPU's memory");
        }
        Ok(())
    })
}

fn new_objects_are_zero_on_every_cpu() -> Outcome {
    let live_before = stats().live_objects;
    on_all(|cpu| {
        for _ in 0..ROUNDS {
            let object = PerCpuBox::<[u64; 3]>::zeroed()?;
            for other in CpuId::possible() {
                // SAFETY: an object of this CPU's own, which nobody else uses.
                unsafe {
                    check_eq!(object.ptr_on(other).read(), [0; 3]);
                    object.ptr_on(other).write([cpu.index() as u64 + 1; 3]);
                }
            }
        }
        Ok(())
    })?;
    check_eq!(stats().live_objects, live_before);
    Ok(())
}

fn live_objects_never_overlap() -> Outcome {
    let live_before = stats().live_objects;
    let all: SpinMutex<Vec<PerCpuBox<u64>>> = SpinMutex::new(Vec::new());
    on_all(|_| {
        let mine = (0..ROUNDS).map(|_| PerCpuBox::zeroed()).collect::<Result<Vec<_>, _>>()?;
        all.lock().extend(mine);
        Ok(())
    })?;
    let all = all.into_inner();
    check_eq!(all.len(), ROUNDS * CpuId::possible().len());
    check_eq!(stats().live_objects - live_before, all.len() as u64);
    let addresses: BTreeSet<usize> = all.iter().map(|object| object.template_address()).collect();
    check_eq!(addresses.len(), all.len());
    check!(addresses.iter().zip(addresses.iter().skip(1)).all(|(left, right)| right - left >= size_of::<u64>()));
    drop(all);
    check_eq!(stats().live_objects, live_before);
    Ok(())
}

fn what_one_cpu_allocates_another_may_free() -> Outcome {
    let live_before = stats().live_objects;
    let waiting: SpinMutex<Vec<PerCpuBox<u64>>> = SpinMutex::new(Vec::new());
    on_all(|_| {
        for _ in 0..ROUNDS {
            let object = PerCpuBox::<u64>::zeroed()?;
            object.add(5);
            waiting.lock().push(object);
            // Mostly another CPU's.
            let taken = { waiting.lock().swap_remove(0) };
            check_eq!(taken.sum(), 5);
        }
        Ok(())
    })?;
    drop(waiting);
    check_eq!(stats().live_objects, live_before);
    Ok(())
}

fn objects_beyond_a_chunk_come_from_further_chunks() -> Outcome {
    struct Large {
        #[expect(dead_code, reason = "makes the object large")]
        rest: [u64; 511],
        last: u64,
    }
    // SAFETY: zero is a value of integers.
    unsafe impl pcpu::Zeroable for Large {}
    const NR: usize = 48;
    let before = stats();
    let objects = (0..NR).map(|_| PerCpuBox::<Large>::zeroed()).collect::<Result<Vec<_>, _>>()?;
    check!(stats().chunks > before.chunks, "{NR} objects of {} B fit into {} chunks", size_of::<Large>(), before.chunks);
    on_all(|_| {
        for (index, object) in objects.iter().enumerate() {
            pcpu::field!(object => Large, last).add(index as u64);
        }
        Ok(())
    })?;
    for (index, object) in objects.iter().enumerate() {
        check_eq!(pcpu::field!(object => Large, last).sum(), index as u64 * CpuId::possible().len() as u64);
    }
    drop(objects);
    check_eq!(stats().live_objects, before.live_objects);
    Ok(())
}

fn allocating_in_interrupts_too_leaves_nothing_behind() -> Outcome {
    static ALLOCATED: AtomicU64 = AtomicU64::new(0);
    static REFUSED: AtomicU64 = AtomicU64::new(0);
    let live_before = stats().live_objects;
    ticker::set_handler(|_| {
        ticker::count();
        match Counter::with(1, Batch::DEFAULT, AllocFlags::INTERRUPT) {
            Ok(counter) => {
                counter.add(1);
                assert!(counter.sum() == 2);
                ALLOCATED.fetch_add(1, Ordering::Relaxed);
            }
            Err(AllocError::ChunksFull) => {
                REFUSED.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => panic!("{error}"),
        }
    });
    let ticks_before = ticker::taken();
    on_all(|_| {
        let mut outcome = Ok(());
        ticker::repeat_while_ticking(ticker::SOME, || {
            if let Err(error) = Counter::new(0) {
                outcome = Err(error);
            }
        });
        Ok(outcome?)
    })?;
    check_eq!(ALLOCATED.swap(0, Ordering::Relaxed) + REFUSED.swap(0, Ordering::Relaxed), ticker::taken() - ticks_before);
    check_eq!(stats().live_objects, live_before);
    Ok(())
}

fn impossible_objects_are_named_errors() -> Outcome {
    #[derive(Debug)]
    #[repr(align(8192))]
    struct Page(#[expect(dead_code, reason = "only its layout matters")] [u8; 8192]);
    // SAFETY: zero is a value of an array of bytes.
    unsafe impl pcpu::Zeroable for Page {}

    let before = stats();
    check!(matches!(PerCpuBox::<[u64; 1 << 16]>::zeroed(), Err(AllocError::TooLarge { size_bytes: 0x8_0000, .. })));
    check!(matches!(PerCpuBox::<Page>::zeroed(), Err(AllocError::AlignTooLarge { align_bytes: 8192, .. })));
    check_eq!(pcpu::alloc::allocate(0, 8, AllocFlags::PROCESS), Err(AllocError::ZeroSize));
    check_eq!(pcpu::alloc::allocate(8, 3, AllocFlags::PROCESS), Err(AllocError::AlignNotPowerOfTwo { align_bytes: 3 }));
    let after = stats();
    check_eq!((after.live_objects, after.live_bytes, after.chunks), (before.live_objects, before.live_bytes, before.chunks));
    Ok(())
}
