//! When a lazy counter gets slots on every CPU.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::cpu::CpuId;

/// What a policy thinks of a lazy counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Stay,
    /// It is worth slots, at once if this CPU has some in stock.
    Promote,
    /// It is worth slots; somebody is to call `promote` where that suits.
    Ask,
}

/// Decides when a lazy counter is promoted. Each counter or set has a policy of its own, so it can keep a state.
///
/// `observe` is called after each add that went to the inline words, in the adder's context, which may be an NMI, and by several CPUs at the same
/// time. What it costs is added to each of these adds, so it better writes nothing that other CPUs read while the counter stays on one. It
/// must not lock, and not add to the counter that it decides on.
///
/// A policy that promotes after 1,000 adds, wherever they are:
///
/// ```
/// use core::sync::atomic::{AtomicU32, Ordering};
/// use pcpu::{AllocFlags, Batch, LazyCounter, PromotionPolicy, Verdict};
///
/// struct Often(AtomicU32);
///
/// impl PromotionPolicy for Often {
///     const NEW: Self = Often(AtomicU32::new(0));
///
///     fn observe(&self) -> Verdict {
///         if self.0.fetch_add(1, Ordering::Relaxed) == 999 { Verdict::Promote } else { Verdict::Stay }
///     }
/// }
///
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// let pages = LazyCounter::with(0, Batch::DEFAULT, Often::NEW);
/// (0..999).for_each(|_| pages.inc());
/// assert!(!pages.is_promoted());
/// // The CPU has slots in stock from here on, so that the add can take some.
/// drop(pcpu::Counter::new(0)?);
/// pages.inc();
/// assert!(pages.is_promoted());
/// assert_eq!(pages.sum(), 1000);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
pub trait PromotionPolicy {
    /// The state of a counter to which nothing was added.
    const NEW: Self;

    /// Looks at an add.
    fn observe(&self) -> Verdict;
}

/// Never: for who calls `promote`. An add then costs a load more than one to an atomic.
#[derive(Clone, Copy, Debug)]
pub struct Explicit;

impl PromotionPolicy for Explicit {
    const NEW: Self = Explicit;

    #[inline(always)]
    fn observe(&self) -> Verdict {
        Verdict::Stay
    }
}

/// When adds keep changing the CPU: a score rises by [`STEP`](Self::STEP) with each add that is on another CPU than the last one, falls by one with
/// each that is on the same, and promotes at [`LIMIT`](Self::LIMIT).
///
/// So a process on one CPU is never promoted, nor is one that moves less than once in 65 adds; one whose adds alternate between CPUs is
/// after 8 changes, and one whose CPUs each add a few times while they have the line soon after. Adds that race may be missed, which delays
/// that by so many adds.
///
/// With `DEFERRED` an add only [asks](Verdict::Ask), for kernels in which it may be in a context that must not take memory.
#[derive(Debug)]
pub struct CpuChanges<const DEFERRED: bool = false> {
    /// The score, and the last add's CPU.
    state: AtomicU32,
}

/// A last CPU that is none.
const NO_CPU: u32 = u16::MAX as u32;

impl<const DEFERRED: bool> CpuChanges<DEFERRED> {
    /// By how much a change of CPU raises the score.
    pub const STEP: u32 = 64;
    /// The score that promotes.
    pub const LIMIT: u32 = 512;

    #[cold]
    fn changed(&self, state: u32, cpu: u32) -> Verdict {
        let is_first = state & NO_CPU == NO_CPU;
        let score = if is_first { 0 } else { (state >> 16) + Self::STEP };
        if score < Self::LIMIT {
            self.state.store(score << 16 | cpu, Ordering::Relaxed);
            return Verdict::Stay;
        }
        // If it cannot be promoted now, it is worth another try after as many changes.
        self.state.store(cpu, Ordering::Relaxed);
        if DEFERRED { Verdict::Ask } else { Verdict::Promote }
    }
}

impl<const DEFERRED: bool> PromotionPolicy for CpuChanges<DEFERRED> {
    const NEW: Self = CpuChanges { state: AtomicU32::new(NO_CPU) };

    #[inline(always)]
    fn observe(&self) -> Verdict {
        let cpu = CpuId::current().as_u32();
        let state = self.state.load(Ordering::Relaxed);
        // A process that stays where it is has no score and stores nothing.
        if state == cpu {
            return Verdict::Stay;
        }
        if state & NO_CPU == cpu {
            self.state.store(state - (1 << 16), Ordering::Relaxed);
            return Verdict::Stay;
        }
        self.changed(state, cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdicts on adds on these CPUs.
    fn verdicts(cpus: impl Iterator<Item = u32>) -> impl Iterator<Item = Verdict> {
        let policy = CpuChanges::<false>::NEW;
        cpus.map(move |cpu| match policy.state.load(Ordering::Relaxed) {
            state if state & NO_CPU == cpu => {
                policy.state.store(if state == cpu { state } else { state - (1 << 16) }, Ordering::Relaxed);
                Verdict::Stay
            }
            state => policy.changed(state, cpu),
        })
    }

    #[test]
    fn the_eighth_change_in_a_row_promotes() {
        let alternating = || (0..).map(|add| add % 2);
        assert_eq!(verdicts(alternating()).position(|verdict| verdict == Verdict::Promote), Some(8));
        // And again, if that failed.
        assert_eq!(verdicts(alternating()).take(17).filter(|&verdict| verdict == Verdict::Promote).count(), 2);
    }

    #[test]
    fn who_stays_or_moves_now_and_then_is_never_promoted() {
        assert!(verdicts((0..10_000).map(|_| 3)).all(|verdict| verdict == Verdict::Stay));
        assert!(verdicts((0..100_000).map(|add| add / 65 % 4)).all(|verdict| verdict == Verdict::Stay));
    }

    #[test]
    fn who_moves_once_in_63_adds_is_promoted_in_the_end() {
        assert!(verdicts((0..100_000).map(|add| add / 63 % 4)).any(|verdict| verdict == Verdict::Promote));
    }
}
