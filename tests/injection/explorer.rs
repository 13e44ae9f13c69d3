//! Explores schedules: in each gap between two instructions of an operation the process forks, and the child is a schedule in which
//! something happens in that gap. So all schedules start from the same state, and what goes wrong in one does not outlive it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::{fmt, ptr, slice};
use std::io::{Cursor, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};

use pcpu::host::irqs_are_on;

use crate::stepper::{self, Gap};

/// What operations and injections act on, with a record of what is right.
pub trait World {
    fn new() -> Self;
    /// Checks everything and leaves nothing behind, at the end of the `nr`th schedule.
    fn finish(self, nr: usize);
}

/// In which gaps something can happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Where interrupts are on: an interrupt, or the scheduler.
    IrqsOn,
    /// Everywhere: an NMI, or another CPU.
    Always,
}

/// What happens in a gap.
pub struct Injection<W> {
    pub name: &'static str,
    pub when: When,
    pub action: fn(&W),
}

/// Which schedules of an operation are tried.
pub enum Plan<'a, W> {
    /// One for each gap and injection. Of operations longer than `at_most` instructions a sample: about `at_most` of the gaps before
    /// instructions that refer to GS or are locked, and about as many of the others, evenly spread.
    Single { at_most: usize, injections: &'a [Injection<W>] },
    /// One for each increasing sequence of gaps: the first injection in the first, and so on. All gaps of short operations; of others
    /// the one before each instruction that refers to GS, which stands for all since the one before: only those notice a migration.
    Sequence { injections: &'a [Injection<W>] },
    /// A single one, with one of the injections in every gap whose number is a multiple of `spacing`, in turns, up to [`STORM_LENGTH`].
    Storm { spacing: usize, injections: &'a [Injection<W>] },
}

/// The longest operation of which `Plan::Sequence` tries all gaps.
const SHORT: usize = 24;

/// How many instructions that refer to GS `Plan::Sequence` looks at: more than a hit has, so that a miss that comes of it is tried too.
const NR_SEQUENCED: usize = 8;

/// The gap with which a storm ends. An operation that tries again when it was disturbed may be disturbed in each of its tries for ever, if they take
/// a multiple of the storm's spacing.
const STORM_LENGTH: usize = 100_000;

/// A schedule that does not end by then never will.
const TIME_LIMIT_SECONDS: u32 = 60;

/// How many schedules went well.
pub struct Explored {
    pub nr_schedules: usize,
}

/// The first schedule that went wrong.
#[derive(Debug)]
pub struct Failure(pub String);

/// What children tell their parents.
struct Shared {
    nr_schedules: AtomicUsize,
    /// What went wrong, from the inside out.
    report: [u8; 4000],
    report_bytes: AtomicUsize,
}

impl Shared {
    fn get() -> &'static Shared {
        static SHARED: OnceLock<&Shared> = OnceLock::new();
        SHARED.get_or_init(|| {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            // SAFETY: new memory, all zero, which is a `Shared`; never unmapped.
            unsafe {
                let memory = libc::mmap(ptr::null_mut(), size_of::<Shared>(), protection, flags, -1, 0);
                assert_ne!(memory, libc::MAP_FAILED, "mmap");
                &*memory.cast()
            }
        })
    }

    fn append(&self, line: fmt::Arguments<'_>) {
        let written = self.report_bytes.load(Ordering::Relaxed);
        // SAFETY: one process at a time writes, as each waits for its child; nobody reads meanwhile.
        let buffer = unsafe { slice::from_raw_parts_mut(self.report.as_ptr().cast_mut(), self.report.len()) };
        let mut rest = Cursor::new(&mut buffer[written..]);
        let _ = writeln!(rest, "{line}");
        self.report_bytes.fetch_add(rest.position() as usize, Ordering::Relaxed);
    }

    fn report(&self) -> String {
        String::from_utf8_lossy(&self.report[..self.report_bytes.load(Ordering::Relaxed)]).into_owned()
    }
}

/// Whether this process is a schedule.
static IS_SCHEDULE: AtomicBool = AtomicBool::new(false);

/// Lets schedules report their panics to the parent instead of to the terminal.
fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let shared = Shared::get();
        let outside_of_schedules = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_SCHEDULE.load(Ordering::Relaxed) {
                shared.append(format_args!("{panic}"));
            } else {
                outside_of_schedules(panic);
            }
        }));
    });
}

/// Ends this process unless it goes on within the limit.
fn limit_time() {
    // SAFETY: an alarm of this process's.
    unsafe { libc::alarm(TIME_LIMIT_SECONDS) };
}

enum Side {
    Schedule,
    Parent { schedule_went_well: bool },
}

/// Forks; the parent waits for the child to end.
///
/// The child has this thread alone, so it must not wait for another: operations, injections and checks do not use the heap.
fn fork(what: fmt::Arguments<'_>) -> Side {
    let shared = Shared::get();
    // SAFETY: the bare system call, since glibc's `fork` is not for signal handlers.
    let child = unsafe { libc::syscall(libc::SYS_fork) } as libc::pid_t;
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        IS_SCHEDULE.store(true, Ordering::Relaxed);
        limit_time();
        return Side::Schedule;
    }
    let mut status: c_int = 0;
    // SAFETY: the child of above.
    while unsafe { libc::waitpid(child, &mut status, 0) } != child {}
    if IS_SCHEDULE.load(Ordering::Relaxed) {
        limit_time();
    }
    shared.nr_schedules.fetch_add(1, Ordering::Relaxed);
    if libc::WIFSIGNALED(status) {
        let hangs = libc::WTERMSIG(status) == libc::SIGALRM;
        shared.append(format_args!("{}", if hangs { "it does not end" } else { "it was killed by a signal" }));
    }
    let schedule_went_well = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    if !schedule_went_well {
        shared.append(format_args!("in: {what}"));
    }
    Side::Parent { schedule_went_well }
}

fn exit_schedule(went_well: bool) -> ! {
    // SAFETY: ends the process, without what exit handlers would do in the parent's name.
    unsafe { libc::_exit(if went_well { 0 } else { 1 }) }
}

/// How long an operation is, undisturbed.
#[derive(Clone, Copy, Default)]
struct Length {
    nr_instructions: usize,
    nr_marked: usize,
}

/// Steps the operation of a case and disturbs it.
pub struct Explorer<'a, W> {
    name: &'a str,
    plan: Option<&'a Plan<'a, W>>,
    world: &'a W,
    length: Length,
    /// How many injections of a sequence this process has had.
    nr_injected: usize,
    went_well: bool,
}

impl<W> Explorer<'_, W> {
    /// Runs the operation. To be called once by a case.
    pub fn step<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let Length { nr_instructions, nr_marked } = self.length;
        let mut seen = Length::default();
        let result = stepper::step(operation, &mut |gap| {
            let is_marked = gap.is_before_gs() || gap.is_before_lock();
            seen.nr_instructions = gap.nr;
            seen.nr_marked += usize::from(is_marked);
            match self.plan {
                None => true,
                Some(&Plan::Single { at_most, injections }) => {
                    let is_sampled = |nr: usize, total: usize| nr.is_multiple_of(total.div_ceil(at_most).max(1));
                    let is_tried = is_sampled(gap.nr, nr_instructions) || is_marked && is_sampled(seen.nr_marked, nr_marked);
                    !is_tried || injections.iter().all(|injection| self.branch(gap, injection))
                }
                Some(&Plan::Sequence { injections }) => {
                    let is_tried = nr_instructions <= SHORT || gap.is_before_gs();
                    // A schedule in the middle of the sequence goes on, and branches itself.
                    let goes_on = !is_tried
                        || self.branch(gap, &injections[self.nr_injected])
                        || self.went_well && self.nr_injected < injections.len();
                    goes_on && seen.nr_marked <= NR_SEQUENCED
                }
                Some(&Plan::Storm { spacing, injections }) => {
                    if gap.nr.is_multiple_of(spacing) && gap.nr < STORM_LENGTH {
                        self.inject(gap, &injections[gap.nr / spacing % injections.len()]);
                    }
                    true
                }
            }
        });
        if self.plan.is_none() {
            self.length = seen;
        }
        result
    }

    /// Makes a schedule with the injection in this gap. `true` in the parent, if it went well.
    fn branch(&mut self, gap: Gap, injection: &Injection<W>) -> bool {
        if injection.when == When::IrqsOn && !irqs_are_on() {
            return true;
        }
        match fork(format_args!("{}, after instruction {} of {}: {}", self.name, gap.nr, self.length.nr_instructions, injection.name)) {
            Side::Schedule => {
                self.nr_injected += 1;
                self.inject(gap, injection);
                false
            }
            Side::Parent { schedule_went_well } => {
                self.went_well &= schedule_went_well;
                schedule_went_well
            }
        }
    }

    fn inject(&self, gap: Gap, injection: &Injection<W>) {
        if injection.when == When::IrqsOn && !irqs_are_on() {
            return;
        }
        // A panic cannot unwind through the trap handler.
        if catch_unwind(AssertUnwindSafe(|| (injection.action)(self.world))).is_err() {
            Shared::get().append(format_args!("in the injection after instruction {}: {}", gap.nr, injection.name));
            exit_schedule(false);
        }
    }
}

/// Runs a case once, with whatever schedules branch off.
fn run<W: World>(name: &str, plan: Option<&Plan<'_, W>>, length: &mut Length, case: &dyn Fn(&W, &mut Explorer<'_, W>)) -> bool {
    let world = W::new();
    let mut explorer = Explorer { name, plan, world: &world, length: *length, nr_injected: 0, went_well: true };
    case(&world, &mut explorer);
    let Explorer { went_well, nr_injected, length: measured, .. } = explorer;
    *length = measured;
    world.finish(Shared::get().nr_schedules.load(Ordering::Relaxed));
    if nr_injected > 0 {
        exit_schedule(went_well);
    }
    went_well
}

/// Tries the schedules of a case, which prepares the world, [steps](Explorer::step) one operation, and writes down what it did.
pub fn explore<W: World>(name: &str, plans: &[Plan<'_, W>], case: impl Fn(&W, &mut Explorer<'_, W>)) -> Result<Explored, Failure> {
    install_panic_hook();
    let shared = Shared::get();
    shared.nr_schedules.store(0, Ordering::Relaxed);
    shared.report_bytes.store(0, Ordering::Relaxed);
    // The process itself stays as it is.
    match fork(format_args!("{name}")) {
        Side::Parent { schedule_went_well: true } => Ok(Explored { nr_schedules: shared.nr_schedules.load(Ordering::Relaxed) }),
        Side::Parent { schedule_went_well: false } => Err(Failure(shared.report())),
        Side::Schedule => {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let mut length = Length::default();
                run(name, None, &mut length, &case) && plans.iter().all(|plan| run(name, Some(plan), &mut length, &case))
            }));
            exit_schedule(outcome.unwrap_or(false));
        }
    }
}
