//! Runs the real code on host threads: each thread is a CPU, with its own GS base, so `cargo test` exercises the same instructions as a
//! kernel. Linux on x86_64 leaves GS to programs. For this crate's tests and for an embedder's.
//!
//! Interrupts are simulated as far as a flag: [`with_irqs_off`](crate::with_irqs_off) clears it and brings it back.
//!
//! # Without a machine
//!
//! Before [`Machine::boot`] there is one CPU, the boot CPU, and every thread of the process takes itself for it:
//!
//! * [`with_irqs_off`](crate::with_irqs_off) and [`with_pin`](crate::with_pin) let one thread in at a time, so that [`Local`](crate::Local)s are
//!   as sound as in a kernel. A thread that waits inside for another one that wants in waits for ever.
//! * Operations on words and counters take no token and stay single instructions, which are atomic on one CPU and not between threads: of two
//!   at the same time one may be lost, or an exchange may succeed twice. No memory safety of this crate depends on their values.
//!
//! After it, threads that are no CPU do not touch per-CPU data, by the contract of `boot`: the process would die by SIGSEGV, with a word on the
//! standard error. A counter's or a box's drop is such a touch too.

mod fault;

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;
use std::alloc::Layout;
use std::any::Any;
use std::boxed::Box;
use std::format;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::vec::Vec;

use crate::arch;
use crate::area::{self, AreaLayout, DEFAULT_UNIT_BYTES, InitError, LayoutError};
use crate::cpu::CpuId;

/// A thread's simulated interrupt flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Irqs {
    /// The thread is no CPU, and has no flag. It works in the template, with others like it.
    NoCpu,
    Off,
    On,
}

std::thread_local! {
    static IRQS: Cell<Irqs> = const { Cell::new(Irqs::NoCpu) };
}

/// Whether simulated interrupts are on: whether a harness that stops this thread may run an interrupt handler or move it to another CPU.
#[doc(hidden)]
pub fn irqs_are_on() -> bool {
    IRQS.get() == Irqs::On
}

/// Turns simulated interrupts off and tells whether they were on.
#[doc(hidden)]
pub fn irq_save_and_disable() -> bool {
    match IRQS.get() {
        Irqs::On => {
            IRQS.set(Irqs::Off);
            true
        }
        Irqs::Off => false,
        Irqs::NoCpu => arch::enter_template(),
    }
}

/// Turns simulated interrupts on, as they are on another CPU that the thread is about to play.
#[doc(hidden)]
pub fn irq_enable() {
    match IRQS.get() {
        Irqs::On | Irqs::Off => IRQS.set(Irqs::On),
        Irqs::NoCpu => arch::leave_template(),
    }
}

/// The process's machine: as a kernel has, one for ever.
static BOOTED: Mutex<Option<usize>> = Mutex::new(None);
/// Held while CPUs run, so that no CPU is two threads at once.
static RUNNING: Mutex<()> = Mutex::new(());

/// Why there is no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BootError {
    /// The layout is impossible.
    Layout(LayoutError),
    /// The host has no memory for the areas.
    NoMemory,
    /// The areas could not be built.
    Init(InitError),
    /// This process's machine has another number of possible CPUs.
    OtherMachine {
        /// That number.
        nr_possible: usize,
    },
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootError::Layout(error) => error.fmt(f),
            BootError::NoMemory => f.write_str("the host has no memory for the per-CPU areas"),
            BootError::Init(error) => error.fmt(f),
            BootError::OtherMachine { nr_possible } => {
                write!(f, "this process's machine has {nr_possible} possible CPUs; a process has one machine")
            }
        }
    }
}

impl std::error::Error for BootError {}

/// A machine whose CPUs are threads of this process.
///
/// ```
/// pcpu::per_cpu! {
///     static EVENTS: u64 = 0;
/// }
/// // SAFETY: only threads of the machine's touch per-CPU data.
/// let machine = unsafe { pcpu::host::Machine::boot(4) }?;
/// machine.run(4, |cpu| (0..=cpu.as_u32()).for_each(|_| EVENTS.inc()));
/// assert_eq!(machine.run(1, |_| EVENTS.sum()), [1 + 2 + 3 + 4]);
/// # Ok::<(), pcpu::host::BootError>(())
/// ```
///
/// What several runs share is made and dropped on a CPU:
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(4) }?;
/// let faults = machine.on_boot_cpu(|| pcpu::Counter::new(0)).expect("memory");
/// machine.run(4, |_| faults.add(5));
/// assert_eq!(machine.on_boot_cpu(|| faults.sum()), 20);
/// machine.on_boot_cpu(|| drop(faults));
/// # Ok::<(), pcpu::host::BootError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    nr_possible: usize,
}

impl Machine {
    /// The process's machine, with that many possible CPUs and the default unit; booted by the first call. Further chunks come from
    /// the heap.
    ///
    /// # Errors
    /// An impossible layout, no memory, or a machine with another number of CPUs was booted before.
    ///
    /// # Safety
    ///
    /// From now on per-CPU data is touched by threads that [`run`](Self::run) starts, and by no others: not by the caller outside of `run`,
    /// not by threads that those threads spawn. What owns per-CPU data, as counters do, touches it when it is dropped.
    pub unsafe fn boot(nr_possible: usize) -> Result<Machine, BootError> {
        let mut booted = BOOTED.lock().unwrap_or_else(PoisonError::into_inner);
        match *booted {
            Some(there) if there == nr_possible => {
                fault::provoke();
                return Ok(Machine { nr_possible });
            }
            Some(nr_possible) => return Err(BootError::OtherMachine { nr_possible }),
            None => {}
        }
        let layout = AreaLayout::new(nr_possible, DEFAULT_UNIT_BYTES).map_err(BootError::Layout)?;
        let heap_layout = Layout::from_size_align(layout.size_bytes(), layout.align_bytes()).map_err(|_| BootError::NoMemory)?;
        // SAFETY: an area is never empty.
        let memory = NonNull::new(unsafe { std::alloc::alloc(heap_layout) }).ok_or(BootError::NoMemory)?;
        // A thread of its own: `init` makes its caller the boot CPU, and the boot CPU ends with it.
        let outcome = thread::scope(|scope| {
            // SAFETY: a raw pointer's address, for one thread.
            let memory = memory.as_ptr().expose_provenance();
            scope
                .spawn(move || {
                    IRQS.set(Irqs::Off);
                    let memory = NonNull::new(core::ptr::with_exposed_provenance_mut(memory)).expect("checked above");
                    // SAFETY: new memory, leaked below; this thread is CPU 0 until it ends, the only one, without simulated interrupts;
                    // nothing else uses GS on Linux. The rest is the caller's promise.
                    let outcome = unsafe { area::init(memory, layout.size_bytes(), &layout) };
                    if outcome.is_ok() {
                        area::leave(CpuId::BOOT);
                    }
                    outcome
                })
                .join()
        });
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // SAFETY: allocated above with that layout; `init` failed, so nobody uses it.
                unsafe { std::alloc::dealloc(memory.as_ptr(), heap_layout) };
                return Err(BootError::Init(error));
            }
            Err(panic) => resume_unwind(panic),
        }
        crate::alloc::set_source(&crate::alloc::Heap);
        fault::explain();
        fault::provoke();
        *booted = Some(nr_possible);
        Ok(Machine { nr_possible })
    }

    /// Runs `on_cpu` on CPUs `0..nr_cpus` at once, each a thread, and returns their results in the order of the CPUs.
    ///
    /// All CPUs are installed before the first one begins, and until the last one is done. Runs of one process wait for each other; a run
    /// inside a run would wait for ever and panics instead.
    ///
    /// # Panics
    ///
    /// If `nr_cpus` is 0 or more than possible, if the host refuses a thread, or if a CPU panics, with its panic. What the other CPUs returned
    /// is then dropped on them, since it may own per-CPU data. Later runs work.
    pub fn run<R: Send>(&self, nr_cpus: usize, on_cpu: impl Fn(CpuId) -> R + Sync) -> Vec<R> {
        assert!((1..=self.nr_possible).contains(&nr_cpus), "1 to {} CPUs can run, not {nr_cpus}", self.nr_possible);
        assert!(IRQS.get() == Irqs::NoCpu, "a run inside a run");
        fault::provoke();
        let _alone = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let (all_installed, all_done) = (Meeting::of(nr_cpus), Meeting::of(nr_cpus));
        let cpu_thread = |cpu: CpuId| -> Outcome<R> {
            // SAFETY: `_alone` keeps other threads from being this CPU; it is uninstalled before the thread ends.
            if let Err(error) = unsafe { area::install(cpu) } {
                all_installed.cancel();
                panic!("CPU {cpu}: {error}");
            }
            let _uninstall = Uninstall(cpu);
            IRQS.set(Irqs::On);
            if !all_installed.attend() {
                return Outcome::NotRun;
            }
            let result = match catch_unwind(AssertUnwindSafe(|| on_cpu(cpu))) {
                Ok(result) => result,
                Err(panic) => {
                    all_done.cancel();
                    return Outcome::Panicked(panic);
                }
            };
            if all_done.attend() {
                Outcome::Done(result)
            } else {
                drop(result);
                Outcome::NotRun
            }
        };
        let cpu_thread = &cpu_thread;
        let outcomes: Result<Vec<_>, (CpuId, std::io::Error)> = thread::scope(|scope| {
            let spawn = |index| {
                let cpu = CpuId::from_index(index);
                let thread = thread::Builder::new().name(format!("cpu {cpu}")).spawn_scoped(scope, move || cpu_thread(cpu));
                thread.inspect_err(|_| all_installed.cancel()).map_err(|error| (cpu, error))
            };
            let threads: Vec<_> = (0..nr_cpus).map(spawn).collect::<Result<_, _>>()?;
            Ok(threads.into_iter().map(|thread| thread.join().unwrap_or_else(Outcome::Panicked)).collect())
        });
        let outcomes = outcomes.unwrap_or_else(|(cpu, error)| panic!("the host has no thread for CPU {cpu}: {error}"));
        let mut results = Vec::new();
        for outcome in outcomes {
            match outcome {
                Outcome::Done(result) => results.push(result),
                Outcome::Panicked(panic) => resume_unwind(panic),
                Outcome::NotRun => {}
            }
        }
        results
    }

    /// Runs `f` on the boot CPU alone, as [`run`](Self::run) does: to make, to look at and to drop what other runs share.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn on_boot_cpu<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        let f = Mutex::new(Some(f));
        let on_cpu = |_| {
            let f = f.lock().unwrap_or_else(PoisonError::into_inner).take();
            f.map(|f| f())
        };
        self.run(1, on_cpu).into_iter().flatten().next().expect("one CPU has one result")
    }
}

/// What became of a CPU's part of a run.
enum Outcome<R> {
    Done(R),
    Panicked(Box<dyn Any + Send>),
    /// It did not begin, or its result was dropped, because of another CPU.
    NotRun,
}

/// A point that threads reach together, or are told that not all will.
struct Meeting {
    /// How many are missing; `None` if it was cancelled.
    nr_missing: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Meeting {
    fn of(nr_threads: usize) -> Self {
        Meeting { nr_missing: Mutex::new(Some(nr_threads)), changed: Condvar::new() }
    }

    /// Waits until all threads attend. `false` if the meeting is cancelled.
    fn attend(&self) -> bool {
        let mut nr_missing = self.nr_missing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nr) = nr_missing.as_mut() {
            *nr -= 1;
            if *nr == 0 {
                self.changed.notify_all();
            }
        }
        let over = self.changed.wait_while(nr_missing, |nr_missing| nr_missing.is_some_and(|nr| nr > 0));
        over.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn cancel(&self) {
        *self.nr_missing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.changed.notify_all();
    }
}

struct Uninstall(CpuId);

impl Drop for Uninstall {
    fn drop(&mut self) {
        area::leave(self.0);
    }
}
