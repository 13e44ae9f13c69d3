//! Counters of events, and high-water marks: the cheapest update, a walk over all possible CPUs to read.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::alloc::{AllocError, AllocFlags};
use crate::cpu::CpuId;
use crate::handle::{Handle, PerCpuBox};
use crate::var::{Place, Var};

/// Where an event counter's words are.
///
/// # Safety
///
/// `word` is always the same variable.
pub unsafe trait EventWord {
    /// Its place.
    type Place: Place<Value = u64>;

    /// This counter's word on each CPU.
    fn word(&self) -> &Var<Self::Place>;
}

// SAFETY: a box is one object.
unsafe impl EventWord for PerCpuBox<u64> {
    type Place = Handle<u64>;

    #[inline(always)]
    fn word(&self) -> &Var<Handle<u64>> {
        self
    }
}

// SAFETY: a variable is always at the same place.
unsafe impl<P: Place<Value = u64>> EventWord for Var<P> {
    type Place = P;

    #[inline(always)]
    fn word(&self) -> &Var<P> {
        self
    }
}

/// A counter of what happens often and is read seldom: each event is one instruction, whatever interrupts it. FreeBSD's `counter(9)`.
///
/// | operation | context | cost |
/// |---|---|---|
/// | `add`, `inc` | any; may be preempted | one `add` through GS |
/// | `sum`, `reset` | any | a load for each possible CPU |
/// | `new`, `drop` | process, interrupt with the right flags | an allocation; a store for each possible CPU |
///
/// It keeps no record of which CPUs wrote, since that would be a second instruction. Values wrap.
///
/// [`counters!`](crate::counters) declares static ones, with or without a name in the [registry](crate::named_counters). They work before
/// [`init`](crate::init), and what they counted by then is counted once.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// pcpu::counters! {
///     /// Context switches.
///     static SWITCHES: EventCounter = "sched.context_switches";
/// }
/// SWITCHES.inc();
/// assert_eq!(SWITCHES.sum(), 1);
///
/// let packets = pcpu::EventCounter::new()?;
/// packets.add(64);
/// assert_eq!(packets.reset(), 64);
/// assert_eq!(packets.sum(), 0);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
pub struct EventCounter<W = PerCpuBox<u64>> {
    word: W,
    /// What all CPUs together had counted at the last reset.
    at_reset: AtomicU64,
}

impl EventCounter {
    /// A counter that is made at run time. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new() -> Result<Self, AllocError> {
        Self::with(AllocFlags::PROCESS)
    }

    /// The same in the context that the flags tell.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn with(flags: AllocFlags) -> Result<Self, AllocError> {
        Ok(Self::of_word(PerCpuBox::zeroed_with(flags)?))
    }
}

impl<W> EventCounter<W> {
    /// A counter on words that nobody else uses; for [`counters!`](crate::counters).
    #[doc(hidden)]
    pub const fn of_word(word: W) -> Self {
        EventCounter { word, at_reset: AtomicU64::new(0) }
    }
}

impl<W: EventWord> EventCounter<W> {
    /// Counts `nr` events: one `add`.
    #[inline(always)]
    pub fn add(&self, nr: u64) {
        self.word.word().add(nr);
    }

    /// Counts one event: one `inc`.
    #[inline(always)]
    pub fn inc(&self) {
        self.word.word().inc();
    }

    /// The events since the last reset: every add that finished before the call, none that began after it, each overlapping one wholly or not
    /// at all.
    pub fn sum(&self) -> u64 {
        let at_reset = self.at_reset.load(Ordering::Acquire);
        self.word.word().sum().wrapping_sub(at_reset)
    }

    /// The events that `cpu` counted since the start; a reset does not show here.
    pub fn count_on(&self, cpu: CpuId) -> u64 {
        self.word.word().get_on(cpu)
    }

    /// Starts from 0 again and returns the events since the last reset. Each event is in one of the results, however many CPUs count and
    /// reset at the same time: no CPU's word is written.
    pub fn reset(&self) -> u64 {
        let mut before = self.at_reset.load(Ordering::Acquire);
        loop {
            let now = self.word.word().sum();
            match self.at_reset.compare_exchange(before, now, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return now.wrapping_sub(before),
                Err(other) => before = other,
            }
        }
    }
}

impl<W: EventWord> fmt::Debug for EventCounter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventCounter").field(&self.sum()).finish()
    }
}

#[cfg(feature = "defmt")]
impl<W: EventWord> defmt::Format for EventCounter<W> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "EventCounter({=u64})", self.sum());
    }
}

/// The largest value that was ever recorded, each CPU's by itself: how deep a queue got, how long a lock was held.
///
/// `record` is a load and a comparison, and an unlocked compare-exchange when the mark rises; in any context. Reading is a load for each
/// possible CPU.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// pcpu::counters! {
///     /// The longest that a run queue was.
///     static QUEUED: HighWater = "sched.queued_max";
/// }
/// QUEUED.record(3);
/// QUEUED.record(2);
/// assert_eq!(QUEUED.max(), 3);
/// # });
/// ```
pub struct HighWater<W = PerCpuBox<u64>> {
    word: W,
}

impl HighWater {
    /// A mark that is made at run time. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new() -> Result<Self, AllocError> {
        Ok(HighWater { word: PerCpuBox::zeroed()? })
    }
}

impl<W> HighWater<W> {
    /// A mark on words that nobody else uses; for [`counters!`](crate::counters).
    #[doc(hidden)]
    pub const fn of_word(word: W) -> Self {
        HighWater { word }
    }
}

impl<W: EventWord> HighWater<W> {
    /// Raises this CPU's mark to `value` if it is lower. If the caller is moved in the middle, it is the mark of either CPU.
    #[inline]
    pub fn record(&self, value: u64) {
        let word = self.word.word();
        let mut mark = word.get();
        while mark < value {
            match word.compare_exchange(mark, value) {
                Ok(_) => return,
                // What was found may be another CPU's.
                Err(found) => mark = found,
            }
        }
    }

    /// The highest mark of all CPUs: not lower than any value whose recording finished before the call.
    pub fn max(&self) -> u64 {
        CpuId::possible().map(|cpu| self.max_on(cpu)).max().unwrap_or(0)
    }

    /// `cpu`'s mark.
    pub fn max_on(&self, cpu: CpuId) -> u64 {
        self.word.word().get_on(cpu)
    }
}

impl<W: EventWord> fmt::Debug for HighWater<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HighWater").field(&self.max()).finish()
    }
}

#[cfg(feature = "defmt")]
impl<W: EventWord> defmt::Format for HighWater<W> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "HighWater({=u64})", self.max());
    }
}
