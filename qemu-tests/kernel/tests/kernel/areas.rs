//! Bringing per-CPU areas up: what was counted before, who is who, addresses that stay, and everything that can be asked wrongly.

use core::{
    alloc::Layout,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use pcpu::{AreaLayout, CpuId, InitError, InstallError, LayoutError};
use pcpu_boot::apic;
use spin::mutex::SpinMutex;
use x86_64::instructions::{interrupts, tables::sgdt};

use crate::{
    harness::{Case, Outcome, cases, check, check_eq, on_all},
    ticker,
};

pub const CASES: &[Case] = cases![
    counts_before_init_are_counted_once,
    bad_memory_for_the_areas_is_a_named_error,
    installing_before_init_is_a_named_error,
    init_again_is_a_named_error,
    installing_twice_is_a_named_error,
    an_unknown_cpu_is_a_named_error,
    each_cpu_knows_its_number,
    numbers_ascend_with_apic_ids,
    addresses_stay_the_same,
    each_cpus_gdt_lies_in_its_area,
    each_cpus_interrupt_stack_lies_in_its_area,
];

pcpu::per_cpu! {
    static EARLY: u64 = 0;
    static EARLY_FROM_TEN: u32 = 10;
    static PLACE: u64 = 0;
    static HANDLER_STACK: usize = 0;
}

/// What was tried before init.
struct Early {
    too_small: Result<(), InitError>,
    misaligned: Result<(), InitError>,
    overlapping: Result<(), InitError>,
    with_interrupts_on: Result<(), InitError>,
    no_cpus: Option<LayoutError>,
    unit_too_small: Option<LayoutError>,
    install: Result<(), InstallError>,
    install_from_assembly: u32,
}

static EARLY_RESULTS: SpinMutex<Option<Early>> = SpinMutex::new(None);

/// To be called on the boot CPU before `pcpu::init`.
pub fn before_init() {
    EARLY.add(3);
    EARLY_FROM_TEN.add(5);

    const UNIT_BYTES: usize = 128 * 1024;
    let Ok(layout) = AreaLayout::new(2, UNIT_BYTES) else { panic!("two CPUs with {UNIT_BYTES} B are a layout") };
    let size_bytes = layout.size_bytes();
    let memory = Layout::from_size_align(size_bytes + layout.align_bytes(), layout.align_bytes());
    let memory = memory.unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: not an empty layout.
    let start = NonNull::new(unsafe { alloc::alloc::alloc(memory) }).unwrap_or_else(|| panic!("no memory for two areas"));
    let template = NonNull::new(EARLY.this_ptr()).unwrap_or_else(|| panic!("the template lies at 0"));
    let aligned_in_template = template.cast::<u8>().map_addr(|address| {
        // Cannot be zero: the template lies far above.
        core::num::NonZeroUsize::new(address.get() & !(layout.align_bytes() - 1)).unwrap_or(address)
    });
    // SAFETY: memory of our own; the boot CPU is alone, and with interrupts on nothing raises one. Where the contract is broken, the
    // call is refused before it changes anything: that is what is tried.
    let early = unsafe {
        Early {
            too_small: pcpu::init(start, size_bytes - 1, &layout),
            misaligned: pcpu::init(start.add(1), size_bytes, &layout),
            overlapping: pcpu::init(aligned_in_template, size_bytes, &layout),
            with_interrupts_on: {
                interrupts::enable();
                let result = pcpu::init(start, size_bytes, &layout);
                interrupts::disable();
                result
            },
            no_cpus: AreaLayout::new(0, UNIT_BYTES).err(),
            unit_too_small: AreaLayout::new(2, 1).err(),
            install: pcpu::install(CpuId::BOOT),
            install_from_assembly: pcpu::pcpu_install(1),
        }
    };
    // SAFETY: allocated above with the same layout.
    unsafe { alloc::alloc::dealloc(start.as_ptr(), memory) };
    *EARLY_RESULTS.lock() = Some(early);
}

fn counts_before_init_are_counted_once() -> Outcome {
    check_eq!(EARLY.sum(), 3);
    for cpu in CpuId::possible() {
        let on_boot_cpu = cpu == CpuId::BOOT;
        check_eq!(EARLY.get_on(cpu), if on_boot_cpu { 3 } else { 0 });
        check_eq!(EARLY_FROM_TEN.get_on(cpu), if on_boot_cpu { 15 } else { 10 });
    }
    Ok(())
}

fn bad_memory_for_the_areas_is_a_named_error() -> Outcome {
    let early = EARLY_RESULTS.lock();
    let Some(early) = &*early else { panic!("`before_init` was not called") };
    check!(matches!(early.too_small, Err(InitError::TooSmall { given_bytes, needed_bytes }) if given_bytes + 1 == needed_bytes));
    check!(matches!(early.misaligned, Err(InitError::Misaligned { .. })));
    check_eq!(early.overlapping, Err(InitError::OverlapsTemplate));
    check_eq!(early.with_interrupts_on, Err(InitError::InterruptsOn));
    check_eq!(early.no_cpus, Some(LayoutError::NoCpus));
    check!(matches!(early.unit_too_small, Some(LayoutError::UnitTooSmall { unit_bytes: 1, .. })));
    Ok(())
}

fn installing_before_init_is_a_named_error() -> Outcome {
    let early = EARLY_RESULTS.lock();
    let Some(early) = &*early else { panic!("`before_init` was not called") };
    check_eq!(early.install, Err(InstallError::NotInitialised));
    check_eq!(early.install_from_assembly, InstallError::NotInitialised as u32);
    Ok(())
}

fn init_again_is_a_named_error() -> Outcome {
    let layout = AreaLayout::new(CpuId::possible().len(), 128 * 1024)?;
    // SAFETY: refused before the memory is touched: that is what is tried.
    let again = pcpu::with_irqs_off(|_| unsafe { pcpu::init(NonNull::dangling(), layout.size_bytes(), &layout) });
    check_eq!(again, Err(InitError::AlreadyInitialised));
    check_eq!(EARLY.get_on(CpuId::BOOT), 3);
    Ok(())
}

fn installing_twice_is_a_named_error() -> Outcome {
    on_all(|cpu| {
        for target in CpuId::possible() {
            // SAFETY: refused before anything changes: that is what is tried.
            let (again, from_assembly) = pcpu::with_irqs_off(|_| unsafe { (pcpu::install(target), pcpu::pcpu_install(target.as_u32())) });
            check_eq!(again, Err(InstallError::AlreadyInstalled));
            check_eq!(from_assembly, InstallError::AlreadyInstalled as u32);
        }
        check_eq!(CpuId::current(), cpu);
        Ok(())
    })
}

fn an_unknown_cpu_is_a_named_error() -> Outcome {
    let nr_cpus = CpuId::possible().len() as u32;
    for unknown in [nr_cpus, nr_cpus + 1, u32::from(u16::MAX), 1 << 16, u32::MAX] {
        check_eq!(CpuId::new(unknown), None);
        // SAFETY: refused before anything changes: that is what is tried.
        let refused = pcpu::with_irqs_off(|_| unsafe { pcpu::pcpu_install(unknown) });
        check_eq!(refused, InstallError::UnknownCpu as u32);
    }
    check_eq!(CpuId::current(), CpuId::BOOT);
    Ok(())
}

fn each_cpu_knows_its_number() -> Outcome {
    let seen = AtomicU64::new(0);
    on_all(|cpu| {
        check_eq!(CpuId::current(), cpu);
        let bit = 1 << cpu.index();
        check!(seen.fetch_or(bit, Ordering::Relaxed) & bit == 0, "the number came twice");
        Ok(())
    })?;
    check_eq!(seen.into_inner().count_ones() as usize, CpuId::possible().len());
    Ok(())
}

fn numbers_ascend_with_apic_ids() -> Outcome {
    let apic_ids = [const { AtomicU32::new(0) }; 64];
    on_all(|cpu| {
        apic_ids[cpu.index()].store(apic::id(), Ordering::Relaxed);
        Ok(())
    })?;
    let ids = CpuId::possible().map(|cpu| apic_ids[cpu.index()].load(Ordering::Relaxed));
    check!(ids.is_sorted_by(|left, right| left < right));
    Ok(())
}

fn addresses_stay_the_same() -> Outcome {
    let first = [const { AtomicU64::new(0) }; 64];
    on_all(|cpu| {
        check_eq!(PLACE.this_ptr(), PLACE.ptr_on(cpu));
        // SAFETY: this CPU's own word, written through its address as other code might; nobody else uses it now.
        unsafe { PLACE.this_ptr().write(cpu.index() as u64 + 7) };
        check_eq!(PLACE.get(), cpu.index() as u64 + 7);
        first[cpu.index()].store(PLACE.this_ptr().addr() as u64, Ordering::Relaxed);
        Ok(())
    })?;
    ticker::set_handler(|_| ticker::count());
    on_all(|cpu| {
        ticker::repeat_while_ticking(ticker::SOME, core::hint::spin_loop);
        check_eq!(PLACE.this_ptr().addr() as u64, first[cpu.index()].load(Ordering::Relaxed));
        Ok(())
    })
}

/// How far that CPU's area is from the boot CPU's.
fn distance_to(cpu: CpuId) -> usize {
    PLACE.ptr_on(cpu).addr().wrapping_sub(PLACE.ptr_on(CpuId::BOOT).addr())
}

fn each_cpus_gdt_lies_in_its_area() -> Outcome {
    let boot_cpus = sgdt().base.as_u64() as usize;
    on_all(|cpu| {
        check_eq!((sgdt().base.as_u64() as usize).wrapping_sub(boot_cpus), distance_to(cpu));
        Ok(())
    })
}

fn each_cpus_interrupt_stack_lies_in_its_area() -> Outcome {
    ticker::set_handler(|frame| {
        ticker::count();
        HANDLER_STACK.set(core::ptr::from_ref(frame).addr());
    });
    on_all(|_| {
        ticker::repeat_while_ticking(ticker::SOME, core::hint::spin_loop);
        Ok(())
    })?;
    for cpu in CpuId::possible() {
        // The processor writes its frame at the top, so the addresses differ as the areas do.
        check_eq!(HANDLER_STACK.get_on(cpu).wrapping_sub(HANDLER_STACK.get_on(CpuId::BOOT)), distance_to(cpu));
    }
    Ok(())
}
