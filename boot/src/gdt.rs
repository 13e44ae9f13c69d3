//! Segments and interrupt stacks: a GDT, a TSS and the stacks for each CPU, at addresses that never change.
//!
//! Every vector switches to a stack of the interrupt stack table. So an interrupt leaves the interrupted code's red zone alone, which
//! code compiled for the host's target uses. Handlers run with interrupts off; what can still interrupt a handler has a stack of its own.

use core::{cell::UnsafeCell, ptr};

use x86_64::{
    VirtAddr,
    instructions::tables::load_tss,
    registers::segmentation::SegmentSelector,
    structures::{
        gdt::{Descriptor, GlobalDescriptorTable},
        tss::TaskStateSegment,
    },
};

const STACK_BYTES: usize = 8 * 1024;
const NR_STACKS: usize = 6;

/// Indices into the interrupt stack table.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(crate) enum InterruptStack {
    /// Interrupts from devices, timers and other CPUs.
    Device,
    /// Exceptions that the interrupted instruction caused, in a handler too.
    Exception,
    DoubleFault,
    NonMaskable,
    MachineCheck,
    Debug,
}

#[repr(C, align(16))]
struct Stack([u8; STACK_BYTES]);

/// What one CPU's segment registers and task register refer to.
#[repr(C, align(64))]
pub(crate) struct Segments {
    task: TaskStateSegment,
    table: GlobalDescriptorTable,
    stacks: [Stack; NR_STACKS],
}

impl Segments {
    const fn new() -> Self {
        Self { task: TaskStateSegment::new(), table: GlobalDescriptorTable::new(), stacks: [const { Stack([0; STACK_BYTES]) }; NR_STACKS] }
    }

    /// Fills `segments` in and makes this CPU use them.
    ///
    /// No segment register is loaded: the selectors are those that `entry` loaded, and a load of GS would clear its base.
    ///
    /// # Safety
    ///
    /// `segments` is valid for ever, for this CPU alone, and not in use yet.
    pub(crate) unsafe fn load(segments: *mut Segments) {
        // SAFETY: nobody else uses the memory. No reference to the stacks is made, and none to the rest outlives this function: the
        // processor reads the tables and writes the stacks on its own.
        let selector = unsafe {
            let mut task = TaskStateSegment::new();
            for index in 0..NR_STACKS {
                task.interrupt_stack_table[index] = VirtAddr::from_ptr((&raw mut (*segments).stacks[index]).wrapping_add(1));
            }
            (&raw mut (*segments).task).write(task);

            let mut table = GlobalDescriptorTable::new();
            let code = table.append(Descriptor::kernel_code_segment());
            let data = table.append(Descriptor::kernel_data_segment());
            debug_assert!((code, data) == (SegmentSelector(0x08), SegmentSelector(0x10)), "the selectors that `entry` loaded");
            let selector = table.append(Descriptor::tss_segment_unchecked(&raw const (*segments).task));
            (&raw mut (*segments).table).write(table);
            (*ptr::addr_of!((*segments).table)).load_unsafe();
            selector
        };
        // SAFETY: the selector is that of the TSS in the table just loaded.
        unsafe { load_tss(selector) };
    }
}

pcpu::per_cpu! {
    /// Each CPU's segments and interrupt stacks.
    pub(crate) static SEGMENTS: Segments = Segments::new();
}

/// The boot CPU's segments until the per-CPU areas exist: no address inside the template may be registered anywhere before.
struct EarlySegments(UnsafeCell<Segments>);

// SAFETY: only `load_early` touches it, once, on the boot CPU.
unsafe impl Sync for EarlySegments {}

static EARLY_SEGMENTS: EarlySegments = EarlySegments(UnsafeCell::new(Segments::new()));

/// Gives the boot CPU interrupt stacks before there are per-CPU areas.
///
/// # Safety
///
/// Called once, on the boot CPU.
pub(crate) unsafe fn load_early() {
    // SAFETY: a static, and the only use of it.
    unsafe { Segments::load(EARLY_SEGMENTS.0.get()) };
}
