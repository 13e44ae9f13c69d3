//! Counters by name, for a kernel's shell or a crash dump. The linker collects them: no list is kept, and nothing is done at run time.
//!
//! The idea is Fuchsia's kcounters.

use core::fmt;
use core::slice;

use super::event::{EventCounter, EventWord, HighWater};
use crate::cpu::CpuId;

/// What a named counter says of each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum NamedKind {
    /// How many events there were: an [`EventCounter`].
    Sum,
    /// The highest value: a [`HighWater`].
    Max,
}

/// What the registry knows of a counter.
#[doc(hidden)]
pub trait Registered: Sync {
    fn kind(&self) -> NamedKind;
    fn value(&self) -> u64;
    fn value_on(&self, cpu: CpuId) -> u64;
}

impl<W: EventWord + Sync> Registered for EventCounter<W> {
    fn kind(&self) -> NamedKind {
        NamedKind::Sum
    }

    fn value(&self) -> u64 {
        self.sum()
    }

    fn value_on(&self, cpu: CpuId) -> u64 {
        self.count_on(cpu)
    }
}

impl<W: EventWord + Sync> Registered for HighWater<W> {
    fn kind(&self) -> NamedKind {
        NamedKind::Max
    }

    fn value(&self) -> u64 {
        self.max()
    }

    fn value_on(&self, cpu: CpuId) -> u64 {
        self.max_on(cpu)
    }
}

/// A static counter with a name, as [`counters!`](crate::counters) declares it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NamedCounter {
    name: &'static str,
    counter: &'static dyn Registered,
}

impl NamedCounter {
    /// A record of the registry.
    #[doc(hidden)]
    pub const fn new(name: &'static str, counter: &'static dyn Registered) -> Self {
        assert!(!name.is_empty(), "a counter without a name has no place in the registry");
        NamedCounter { name, counter }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What its values are.
    pub fn kind(&self) -> NamedKind {
        self.counter.kind()
    }

    /// The value of all CPUs: their sum since the last reset, or their maximum. O(possible CPUs).
    pub fn value(&self) -> u64 {
        self.counter.value()
    }

    /// One CPU's value, since the start.
    pub fn value_on(&self, cpu: CpuId) -> u64 {
        self.counter.value_on(cpu)
    }
}

impl fmt::Debug for NamedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedCounter").field("name", &self.name).field("kind", &self.kind()).field("value", &self.value()).finish()
    }
}

/// `sched.context_switches 1234`
impl fmt::Display for NamedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.value())
    }
}

// The linker makes these symbols for every section whose name is a C identifier. The section is never empty: it has `PROMOTIONS`.
unsafe extern "C" {
    static __start_pcpu_names: u8;
    static __stop_pcpu_names: u8;
}

crate::counters! {
    /// Lazy counters and sets that got slots.
    pub(super) static PROMOTIONS: EventCounter = "pcpu.counter.promotions";
    /// Promotions that failed: for want of memory, for a lock that could not be waited for, before `init`, or of a set that is too large.
    pub(super) static FAILED_PROMOTIONS: EventCounter = "pcpu.counter.failed_promotions";
}

/// All named counters of this image, in no order. Two may have the same name. The library has two of its own: `pcpu.counter.promotions` and
/// `pcpu.counter.failed_promotions`, of lazy counters.
///
/// Context: any, a panic handler too; takes no lock. Cost: none by itself; each [`value`](NamedCounter::value) visits all possible CPUs.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// pcpu::counters! {
///     static FORKS: EventCounter = "mm.forks";
/// }
/// FORKS.add(3);
/// for counter in pcpu::named_counters() {
///     println!("{counter}");
/// }
/// let forks = pcpu::named_counters().iter().find(|counter| counter.name() == "mm.forks").unwrap();
/// assert_eq!(forks.value(), 3);
/// # });
/// ```
pub fn named_counters() -> &'static [NamedCounter] {
    // So that the crate's own record is linked wherever the symbols are asked for.
    core::hint::black_box(&PROMOTIONS);
    let first: *const NamedCounter = (&raw const __start_pcpu_names).cast();
    let nr = (&raw const __stop_pcpu_names as usize - first as usize) / size_of::<NamedCounter>();
    // SAFETY: nothing but `NamedCounter`s is put into the section, by `counters!` alone, so it is an array of them; never written.
    unsafe { slice::from_raw_parts(first, nr) }
}
