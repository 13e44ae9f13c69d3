//! Starting the other CPUs, and running a function on all of them.
//!
//! All start at once. Each takes a ticket, reports its APIC id, and waits; the boot CPU sorts the ids, so that dense numbers follow them,
//! makes the per-CPU areas, and lets the others go. From then on they halt until [`run_on_all`] gives them something to do.

use alloc::{alloc::alloc, vec, vec::Vec};
use core::{
    alloc::Layout,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use pcpu::{ApicMap, AreaLayout, CpuId};
use spin::{Once, mutex::SpinMutex};
use x86_64::instructions::interrupts as irqs;

use crate::{
    BootInfo, apic, cpu, entry,
    gdt::{SEGMENTS, Segments},
    idt, interrupts, time,
};

/// The vector that wakes a halted CPU.
pub const WAKE_VECTOR: u8 = 0xf0;

/// Each CPU's stack; the boot CPU has one of its own.
pub(crate) const STACK_BYTES: usize = 64 * 1024;

const START_LIMIT_MICROS: u64 = 30_000_000;
const INIT_TO_STARTUP_MICROS: u64 = 10_000;
const STARTUP_TO_STARTUP_MICROS: u64 = 200;

/// The next ticket: an index into the stacks and [`APIC_IDS_BY_TICKET`].
pub(crate) static TICKETS: AtomicU32 = AtomicU32::new(0);
/// How many tickets are good for a stack.
pub(crate) static NR_STACKS: AtomicU32 = AtomicU32::new(0);
/// The lowest of the stacks.
pub(crate) static STACKS: AtomicPtr<u8> = AtomicPtr::new(null_mut());

static APIC_IDS_BY_TICKET: SpinMutex<Vec<u32>> = SpinMutex::new(Vec::new());
/// Set when the per-CPU areas exist.
static APIC_IDS: Once<ApicMap<'static>> = Once::new();
static NR_ONLINE: AtomicUsize = AtomicUsize::new(1);

type Task = &'static (dyn Fn(CpuId) + Sync);

/// What to run, and the number of the run.
static TASK: SpinMutex<Option<Task>> = SpinMutex::new(None);
static RUN: AtomicU32 = AtomicU32::new(0);
static NR_RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Makes the per-CPU areas, of `unit_bytes` for each CPU, and starts all other CPUs. The boot CPU calls it once, with interrupts off;
/// they are on when it returns.
///
/// # Panics
/// When an area of that size cannot be made or not all CPUs start: nobody could go on from there.
pub fn start(boot: &BootInfo, unit_bytes: usize) {
    interrupts::set_handler(WAKE_VECTOR, |_| ());
    let apic_ids = wake_all(boot.nr_cpus);
    init_areas(boot.nr_cpus, unit_bytes);
    // SAFETY: the boot CPU's own copy, which nobody uses yet.
    unsafe { Segments::load(SEGMENTS.this_ptr()) };
    APIC_IDS.call_once(|| apic_ids);
    wait_until("was installed", boot.nr_cpus, || NR_ONLINE.load(Ordering::Acquire));
    irqs::enable();
}

/// Starts the other CPUs and collects their APIC ids: the boot CPU's first, then ascending.
fn wake_all(nr_cpus: usize) -> ApicMap<'static> {
    let nr_others = nr_cpus - 1;
    if nr_others > 0 {
        STACKS.store(allocate(nr_others * STACK_BYTES, 4096).as_ptr(), Ordering::Relaxed);
        NR_STACKS.store(nr_others as u32, Ordering::Release);
        // SAFETY: page 8 is free, no other CPU runs anything, and the trampoline is in place before anyone starts there. The second
        // start-up interrupt is for processors that missed the first; others ignore it.
        unsafe {
            entry::place_trampoline();
            apic::send_init_to_all_others();
            time::spin_micros(INIT_TO_STARTUP_MICROS);
            for _ in 0..2 {
                apic::send_startup_to_all_others(entry::TRAMPOLINE_PAGE);
                time::spin_micros(STARTUP_TO_STARTUP_MICROS);
            }
        }
        wait_until("started", nr_cpus, || 1 + APIC_IDS_BY_TICKET.lock().len());
    }
    let mut others = core::mem::take(&mut *APIC_IDS_BY_TICKET.lock());
    others.sort_unstable();
    let mut apic_ids = vec![apic::id()];
    apic_ids.append(&mut others);
    ApicMap::new(apic_ids.leak()).unwrap_or_else(|error| panic!("the machine's APIC ids: {error}"))
}

fn init_areas(nr_cpus: usize, unit_bytes: usize) {
    let layout = AreaLayout::new(nr_cpus, unit_bytes).unwrap_or_else(|error| panic!("per-CPU areas of {unit_bytes} B: {error}"));
    let memory = allocate(layout.size_bytes(), layout.align_bytes());
    // SAFETY: memory from the heap that is never given back. This is the boot CPU with interrupts off; the others wait without
    // touching per-CPU data. The exception handlers, NMI included, use no per-CPU data but to report a panic, and nothing in the template is
    // registered: the boot CPU uses the early segments. `entry` loaded GS for the last time.
    unsafe { pcpu::init(memory, layout.size_bytes(), &layout) }.unwrap_or_else(|error| panic!("per-CPU areas: {error}"));
}

fn allocate(bytes: usize, align_bytes: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(bytes, align_bytes).unwrap_or_else(|error| panic!("{bytes} B: {error}"));
    // SAFETY: the size is not zero: there is at least one CPU.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| panic!("no memory: {bytes} B for the CPUs' stacks or areas"))
}

fn wait_until(what: &str, nr_cpus: usize, mut nr_now: impl FnMut() -> usize) {
    let limit = time::micros_since_boot() + START_LIMIT_MICROS;
    while nr_now() < nr_cpus {
        assert!(time::micros_since_boot() < limit, "only {} of {nr_cpus} CPUs {what}", nr_now());
        core::hint::spin_loop();
    }
}

/// Every other CPU's first Rust function, called by `entry`'s assembly on the stack that goes with the ticket.
pub(crate) extern "C" fn start_other_cpu() -> ! {
    let apic_id = apic::id();
    APIC_IDS_BY_TICKET.lock().push(apic_id);
    let cpu = APIC_IDS.wait().cpu_of(apic_id).unwrap_or_else(|| panic!("APIC id {apic_id} came up twice"));
    // SAFETY: this CPU's own copy, which nobody uses yet.
    unsafe { Segments::load(SEGMENTS.ptr_on(cpu)) };
    idt::load();
    cpu::enable_features();
    apic::enable();
    // SAFETY: no selector is loaded after this, and nothing but pcpu changes GS base.
    unsafe { pcpu::install(cpu) }.unwrap_or_else(|error| panic!("CPU {cpu}: {error}"));
    NR_ONLINE.fetch_add(1, Ordering::Release);
    serve(cpu)
}

/// Runs what [`run_on_all`] gives, for ever.
fn serve(cpu: CpuId) -> ! {
    let mut done = 0;
    loop {
        // With interrupts off between the look and the halt no wake-up is missed.
        irqs::disable();
        let run = RUN.load(Ordering::Acquire);
        if run == done {
            irqs::enable_and_hlt();
            continue;
        }
        irqs::enable();
        done = run;
        let task = (*TASK.lock()).unwrap_or_else(|| panic!("a run without a task"));
        task(cpu);
        if NR_RUNNING.fetch_sub(1, Ordering::AcqRel) == 1 {
            apic::send(CpuId::BOOT, WAKE_VECTOR);
        }
    }
}

/// Runs `task` on every CPU at once and returns when all have finished. To be called on the boot CPU, with interrupts on, and not
/// from a task.
///
/// # Panics
/// When called otherwise.
pub fn run_on_all(task: impl Fn(CpuId) + Sync) {
    assert!(irqs::are_enabled(), "`run_on_all` halts the boot CPU while it waits, so interrupts must be on");
    let borrowed: &(dyn Fn(CpuId) + Sync) = &task;
    // SAFETY: the other CPUs use it before they are counted down in `NR_RUNNING`, and this function returns after all were.
    let task: Task = unsafe { core::mem::transmute::<&(dyn Fn(CpuId) + Sync), Task>(borrowed) };
    assert!(CpuId::current() == CpuId::BOOT, "`run_on_all` is for the boot CPU");
    assert!(TASK.lock().replace(task).is_none(), "`run_on_all` inside a task");
    let nr_others = CpuId::possible().len() - 1;
    NR_RUNNING.store(nr_others, Ordering::Relaxed);
    RUN.fetch_add(1, Ordering::Release);
    if nr_others > 0 {
        apic::send_to_all_others(WAKE_VECTOR);
    }
    task(CpuId::BOOT);
    loop {
        irqs::disable();
        if NR_RUNNING.load(Ordering::Acquire) == 0 {
            break;
        }
        irqs::enable_and_hlt();
    }
    irqs::enable();
    *TASK.lock() = None;
}

/// The APIC id of a CPU.
pub(crate) fn apic_id_of(cpu: CpuId) -> u32 {
    APIC_IDS.get().and_then(|ids| ids.apic_id_of(cpu)).unwrap_or_else(|| panic!("CPU {cpu} has no APIC id yet"))
}
