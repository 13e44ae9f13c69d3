//! What the boot CPU does before `init`; one test, since a process initialises once.

mod common;

use common::machine;
use core::cell::Cell;
use core::ptr::NonNull;
use pcpu::{
    AllocError, AreaLayout, Counter, CpuId, DEFAULT_UNIT_BYTES, InitError, InstallError, Local, PerCpuBox, counters, pcpu_install, per_cpu,
    with_irqs_off,
};

const NR_CPUS: usize = 4;

#[repr(align(256))]
struct Aligned([u8; 3]);

per_cpu! {
    static EARLY: u64 = 100;
    static UNTOUCHED: [u16; 3] = [1, 2, 3];
    static ALIGNED: Aligned = Aligned([1, 2, 3]);
    static OBJECT: Local<Cell<&'static str>> = Local::new(Cell::new("pristine"));
}

counters! {
    static EARLY_EVENTS: EventCounter;
    static EARLY_COUNTER: Counter = 7;
    static EARLY_SET: CounterSet<3> = [1, 2, 3], batch: pcpu::Batch::new(4).unwrap();
    static EARLY_MARK: HighWater;
}

/// Counts on the static counters, 100 each.
fn count() {
    (0..100).for_each(|_| {
        EARLY_EVENTS.inc();
        EARLY_COUNTER.add(1);
        pcpu::with_pin(|pin| EARLY_SET.add_pinned(pin, 2, 1));
    });
    EARLY_MARK.record(5);
}

#[test]
fn bad_input_changes_nothing_and_early_counts_are_counted_once() {
    // The boot CPU works in the template.
    assert_eq!(CpuId::current(), CpuId::BOOT);
    assert_eq!(CpuId::possible().len(), 1);
    assert_eq!(CpuId::new(1), None);
    (0..42).for_each(|_| EARLY.inc());
    assert_eq!(EARLY.sum(), 142);
    with_irqs_off(|irqs_off| OBJECT.borrow_irqs_off(irqs_off).set("early"));

    count();
    assert_eq!((EARLY_EVENTS.sum(), EARLY_COUNTER.sum(), EARLY_SET.sum_all(), EARLY_MARK.max()), (100, 107, [1, 2, 103], 5));
    assert!(EARLY_COUNTER.bounds().contains(&107) && EARLY_SET.bounds(2).contains(&103));
    assert_eq!(EARLY_SET.bounds(0), EARLY_SET.bounds_nested(0, 3));

    // Without areas there is nothing to allocate from, and nothing to install.
    assert_eq!(PerCpuBox::<u64>::zeroed().err(), Some(AllocError::NotInitialised));
    assert_eq!(Counter::new(0).err(), Some(AllocError::NotInitialised));
    // SAFETY: fails.
    assert_eq!(unsafe { pcpu::install(CpuId::BOOT) }, Err(InstallError::NotInitialised));
    // SAFETY: fails.
    assert_eq!(unsafe { pcpu_install(0) }, InstallError::NotInitialised as u32);

    let layout = AreaLayout::new(NR_CPUS, DEFAULT_UNIT_BYTES).unwrap();
    assert_eq!(layout.align_bytes(), 256, "the most aligned static decides");
    let size_bytes = layout.size_bytes();
    let mut memory = vec![0xa5u8; size_bytes + 512];
    let aligned = memory.as_mut_ptr().expose_provenance().next_multiple_of(256);
    let template = NonNull::new(EARLY.this_ptr().cast::<u8>()).unwrap();
    let aligned_in_template = template.map_addr(|address| core::num::NonZero::new(address.get() & !255).unwrap());
    // SAFETY: every call fails, so nothing is written and nothing is promised.
    let init = |memory, bytes, layout: &AreaLayout| unsafe { pcpu::init(memory, bytes, layout) };
    let at = |offset: usize| NonNull::new(core::ptr::with_exposed_provenance_mut::<u8>(aligned + offset)).unwrap();
    assert_eq!(init(at(0), size_bytes - 1, &layout), Err(InitError::TooSmall { given_bytes: size_bytes - 1, needed_bytes: size_bytes }));
    assert_eq!(init(at(64), size_bytes, &layout), Err(InitError::Misaligned { align_bytes: 256 }));
    assert_eq!(init(at(1), size_bytes, &layout), Err(InitError::Misaligned { align_bytes: 256 }));
    assert_eq!(init(aligned_in_template, size_bytes, &layout), Err(InitError::OverlapsTemplate));
    let before_template = aligned_in_template.map_addr(|address| core::num::NonZero::new(address.get() - size_bytes / 256 * 256).unwrap());
    assert_eq!(init(before_template, size_bytes, &layout), Err(InitError::OverlapsTemplate), "its end");
    let last = NonNull::new(core::ptr::without_provenance_mut(usize::MAX & !255)).unwrap();
    assert_eq!(init(last, size_bytes, &layout), Err(InitError::Wraps));
    let far = NonNull::new(core::ptr::without_provenance_mut::<u8>(1 << 62)).unwrap();
    assert!(matches!(init(far, size_bytes, &layout), Err(InitError::NonCanonicalDelta { .. })));
    // The first CPUs' deltas are canonical, a later one's is not.
    let template_start = (layout.stride_bytes() / 256).next_power_of_two() * 256;
    let edge = (1usize << 47).wrapping_add(aligned_in_template.addr().get()) - template_start;
    let edge = NonNull::new(core::ptr::without_provenance_mut::<u8>(edge & !255)).unwrap();
    assert!(matches!(init(edge, size_bytes, &layout), Err(InitError::NonCanonicalDelta { .. })));
    assert!(memory.iter().all(|&byte| byte == 0xa5), "a failed init writes nothing");
    assert_eq!(EARLY.sum(), 142);
    EARLY.inc();

    machine(NR_CPUS).run(NR_CPUS, |cpu| {
        assert_eq!(CpuId::current(), cpu);
        assert_eq!(EARLY.get(), if cpu == CpuId::BOOT { 143 } else { 100 });
        // SAFETY: nobody writes.
        unsafe {
            assert_eq!(*UNTOUCHED.this_ptr(), [1, 2, 3]);
            assert_eq!((*ALIGNED.this_ptr()).0, [1, 2, 3]);
        }
        assert_eq!(ALIGNED.this_ptr() as usize % 256, 0, "on every CPU");
        let seen = with_irqs_off(|irqs_off| OBJECT.borrow_irqs_off(irqs_off).get());
        assert_eq!(seen, if cpu == CpuId::BOOT { "early" } else { "pristine" });
    });
    machine(NR_CPUS).run(NR_CPUS, |_| count());
    machine(NR_CPUS).run(1, |_| {
        assert_eq!((EARLY_EVENTS.sum(), EARLY_COUNTER.sum(), EARLY_SET.sum_all(), EARLY_MARK.max()), (500, 507, [1, 2, 503], 5));
        assert!(EARLY_COUNTER.bounds().contains(&507) && EARLY_SET.bounds(2).contains(&503));
        assert_eq!(EARLY.sum(), 143 + 3 * 100);
        assert_eq!(init(at(0), size_bytes, &layout), Err(InitError::AlreadyInitialised));
        // SAFETY: fails: this thread is CPU 0.
        assert_eq!(unsafe { pcpu::install(CpuId::BOOT) }, Err(InstallError::AlreadyInstalled));
        // SAFETY: fails.
        assert_eq!(unsafe { pcpu_install(0) }, InstallError::AlreadyInstalled as u32);
        // SAFETY: fails.
        assert_eq!(unsafe { pcpu_install(NR_CPUS as u32) }, InstallError::UnknownCpu as u32);
        assert_eq!(CpuId::new(NR_CPUS as u32), None);
        assert_eq!(CpuId::current(), CpuId::BOOT);
        assert!(memory.iter().all(|&byte| byte == 0xa5));
    });
}
