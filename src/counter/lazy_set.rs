//! Counters that have no per-CPU memory until they need it.
//!
//! # Protocol
//!
//! * The inline words never move: they are a part of the value for ever. A promotion publishes the slots' address, and from then on adds go
//!   to the slots; one that saw no address yet still goes to the inline words, and counts.
//! * Slots and shared words are zero when the address is published, so the value is the same before and after, whoever adds meanwhile. Whoever
//!   has claimed the promotion writes the shared words; nobody reads them before.
//! * Only `&mut` takes the slots away again.

use core::cell::UnsafeCell;
use core::cmp::Ordering;
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::RangeInclusive;
use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicPtr, Ordering as MemoryOrdering};

use super::group::{self, SlotsAddress};
use super::index::CounterIndex;
use super::policy::{CpuChanges, PromotionPolicy, Verdict};
use super::registry::{FAILED_PROMOTIONS, PROMOTIONS};
use super::shared::{Batch, Line, Nearest, Shared};
use super::slots::Slots;
use crate::alloc::{AllocError, AllocFlags};
use crate::cpu_mask::CpuMask;
use crate::pin::Pinned;

/// `N` counters that are atomic words until they are *promoted*, and then a [`CounterSet`](crate::CounterSet). For what mostly lives and
/// dies on one CPU, like a process's memory, and must scale when it does not.
///
/// | operation | inline | promoted |
/// |---|---|---|
/// | `new`, `drop` | no allocation, no per-CPU memory | a free; a store for each CPU that wrote |
/// | `add` | one atomic add | as [`CounterSet::add`](crate::CounterSet::add) |
/// | `add_exclusive` | one add, not atomic | the same |
/// | `read` | exact, three loads | at most `max_error` away |
/// | `sum` | three loads | a load for each CPU that wrote |
///
/// Adds of any size are legal in any context and cannot fail. Promotion happens by the policy `P`, by default when adds [keep changing the
/// CPU](CpuChanges), or by [`promote`](Self::promote); without memory the counters stay inline and exact, and try again later. An add takes
/// no memory but what its CPU has at hand, and never waits.
///
/// From Overstreet's `lazy_percpu_counter` and Krisman's dual-mode counters, both proposed for Linux: here no value moves at promotion, so
/// nothing has to be synchronised by the caller, and no bits are taken from the value.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// let mut resident = pcpu::LazyCounterSet::new([0; 4]);
/// resident.add(0, 16);
/// assert!(!resident.is_promoted());
/// resident.promote(pcpu::AllocFlags::PROCESS)?;
/// resident.add(0, 1);
/// assert_eq!(resident.sum_all(), [17, 0, 0, 0]);
/// resident.demote();
/// assert_eq!(resident.read(0), 17);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
#[repr(C)]
pub struct LazyCounterSet<const N: usize, P = CpuChanges> {
    /// Where the slots are, or one of the states before they are there.
    address: AtomicPtr<()>,
    touched: CpuMask,
    batch: Batch,
    policy: P,
    inline: [AtomicI64; N],
    /// Uninitialised until promoted.
    shared: Line<UnsafeCell<MaybeUninit<[Shared; N]>>>,
}

// SAFETY: the shared words are written before they are published, and are atomics.
unsafe impl<const N: usize, P: Sync> Sync for LazyCounterSet<N, P> {}

/// No slots.
const INLINE: *mut () = ptr::null_mut();
/// No slots; the policy asked for them, or an add's promotion failed for want of memory.
const WANTED: *mut () = ptr::without_provenance_mut(1);
/// No slots; somebody is about to publish them.
const CLAIMED: *mut () = ptr::without_provenance_mut(2);

/// What a promoted set has.
#[derive(Clone, Copy)]
struct Promoted<'a, const N: usize> {
    slots: Slots<'a, Nearest>,
    shared: &'a [Shared; N],
}

impl<const N: usize> LazyCounterSet<N> {
    /// Counters with these initial values, the default batch and the default policy. Cannot fail; good for statics.
    pub const fn new(initial: [i64; N]) -> Self {
        Self::with(initial, Batch::DEFAULT, <CpuChanges as PromotionPolicy>::NEW)
    }
}

impl<const N: usize, P> LazyCounterSet<N, P> {
    /// The same with a batch, for when it is promoted, and a policy.
    pub const fn with(initial: [i64; N], batch: Batch, policy: P) -> Self {
        const { assert!(N > 0, "a set has counters") };
        let mut inline = [const { AtomicI64::new(0) }; N];
        let mut index = 0;
        while index < N {
            inline[index] = AtomicI64::new(initial[index]);
            index += 1;
        }
        LazyCounterSet {
            address: AtomicPtr::new(INLINE),
            touched: CpuMask::new(),
            batch,
            policy,
            inline,
            shared: Line(UnsafeCell::new(MaybeUninit::uninit())),
        }
    }

    /// Where the slots are, once promoted.
    #[inline(always)]
    fn published(&self) -> Option<SlotsAddress> {
        // Acquire: the slots were zero when their address was published, and whatever is seen of them later is newer.
        let address = self.address.load(MemoryOrdering::Acquire);
        // SAFETY: no state before that is an object's address, which is not null.
        (address.addr() > CLAIMED.addr()).then(|| unsafe { SlotsAddress::from_ptr(address) })
    }

    /// The slots and the shared words, once promoted.
    #[inline(always)]
    fn promoted(&self) -> Option<Promoted<'_, N>> {
        // SAFETY: just seen.
        self.published().map(|address| unsafe { self.promoted_to(address) })
    }

    /// # Safety
    ///
    /// The address was seen to be published during the borrow of `self`.
    #[inline(always)]
    unsafe fn promoted_to(&self, address: SlotsAddress) -> Promoted<'_, N> {
        // SAFETY: an object with `N` slots, and shared words that were written before it was published, until `&mut self` takes them away; the
        // mask is theirs.
        unsafe { Promoted { slots: address.slots(&self.touched), shared: (*self.shared.0.get()).assume_init_ref() } }
    }

    /// Whether there are slots on every CPU.
    pub fn is_promoted(&self) -> bool {
        self.promoted().is_some()
    }

    /// The batch that it was made with, for when it is promoted.
    pub fn batch(&self) -> Batch {
        self.batch
    }

    /// Whether somebody should call [`promote`](Self::promote): the policy asked for it, or wanted it where there was no memory at hand. Never
    /// for a set that is too large to be promoted.
    pub fn wants_promotion(&self) -> bool {
        self.address.load(MemoryOrdering::Relaxed) == WANTED
    }

    /// Gives the counters slots on every CPU, in the context that the flags tell. Values are the same before, after and in between. Does nothing
    /// if they have them, or another context is about to give them.
    ///
    /// # Errors
    /// See [`AllocError`]; the counters are as before.
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn promote(&self, flags: AllocFlags) -> Result<(), AllocError> {
        let is_open = |state: *mut ()| state == INLINE || state == WANTED;
        if !is_open(self.address.load(MemoryOrdering::Relaxed)) {
            return Ok(());
        }
        let address = SlotsAddress::allocate(N, flags).inspect_err(|_| FAILED_PROMOTIONS.inc())?;
        let claim = |state| is_open(state).then_some(CLAIMED);
        if self.address.fetch_update(MemoryOrdering::Relaxed, MemoryOrdering::Relaxed, claim).is_err() {
            // SAFETY: allocated above and seen by nobody.
            unsafe { address.free_clean(N) };
            return Ok(());
        }
        // SAFETY: claimed, so this context alone touches it until it is published.
        unsafe { (*self.shared.0.get()).write([const { Shared::new(0) }; N]) };
        self.address.store(address.as_ptr(), MemoryOrdering::Release);
        PROMOTIONS.inc();
        Ok(())
    }

    /// Has an add's verdict followed.
    #[cold]
    #[inline(never)]
    fn follow(&self, verdict: Verdict) {
        // What is too large is so for everybody.
        let is_wanted = verdict == Verdict::Ask
            || match self.promote(AllocFlags::NMI) {
                Ok(()) | Err(AllocError::TooLarge { .. }) => false,
                Err(_) => true,
            };
        if is_wanted {
            let _ = self.address.compare_exchange(INLINE, WANTED, MemoryOrdering::Relaxed, MemoryOrdering::Relaxed);
        }
    }

    /// Adds to one counter, for who owns the set alone: one add, not atomic, in any state.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline(always)]
    pub fn add_exclusive(&mut self, index: impl CounterIndex<N>, amount: i64) {
        let word = self.inline[index.index()].get_mut();
        *word = word.wrapping_add(amount);
    }

    /// The same by a shared reference, where the kernel knows what the compiler does not: that no other add is under way.
    ///
    /// # Safety
    ///
    /// No other CPU, task, interrupt or NMI adds to this counter during the call. Reads and sums are allowed.
    #[inline(always)]
    pub unsafe fn add_sole_user(&self, index: impl CounterIndex<N>, amount: i64) {
        let word = &self.inline[index.index()];
        word.store(word.load(MemoryOrdering::Relaxed).wrapping_add(amount), MemoryOrdering::Relaxed);
    }

    /// One counter's value: exact while inline, and as far as it was posted when promoted.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn read(&self, index: impl CounterIndex<N>) -> i64 {
        let index = index.index();
        let inline = self.inline[index].load(MemoryOrdering::Relaxed);
        self.promoted().map_or(inline, |promoted| inline.wrapping_add(promoted.shared[index].read()))
    }

    /// [`read`](Self::read), but never below zero.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn read_positive(&self, index: impl CounterIndex<N>) -> i64 {
        self.read(index).max(0)
    }

    /// All values as far as they were posted.
    pub fn read_all(&self) -> [i64; N] {
        core::array::from_fn(|index| self.read(index))
    }

    /// One counter's exact value, as [`Counter::sum`](crate::Counter::sum).
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn sum(&self, index: impl CounterIndex<N>) -> i64 {
        let index = index.index();
        let inline = self.inline[index].load(MemoryOrdering::Relaxed);
        self.promoted().map_or(inline, |Promoted { slots, shared }| {
            // SAFETY: there is a slot for each element of `shared`.
            let total = shared[index].total_of_slots(unsafe { slots.sum(index) });
            inline.wrapping_add(shared[index].base()).wrapping_add(total)
        })
    }

    /// [`sum`](Self::sum), but never below zero.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn sum_positive(&self, index: impl CounterIndex<N>) -> i64 {
        self.sum(index).max(0)
    }

    /// All exact values, with one pass over the CPUs that wrote.
    #[inline]
    pub fn sum_all(&self) -> [i64; N] {
        let inline = self.inline.each_ref().map(|word| word.load(MemoryOrdering::Relaxed));
        match self.promoted() {
            None => inline,
            Some(promoted) => Self::sum_promoted(promoted, inline),
        }
    }

    /// Not inlined, so that what is not promoted has no registers to save.
    #[inline(never)]
    fn sum_promoted(Promoted { slots, shared }: Promoted<'_, N>, inline: [i64; N]) -> [i64; N] {
        // SAFETY: there are `N` slots.
        let sums = unsafe { slots.sum_all::<N>() };
        core::array::from_fn(|index| {
            let total = shared[index].total_of_slots(sums[index]);
            inline[index].wrapping_add(shared[index].base()).wrapping_add(total)
        })
    }

    /// Between which numbers one counter's value is, as [`Counter::bounds`](crate::Counter::bounds): exactly one while inline. O(1).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn bounds(&self, index: impl CounterIndex<N>) -> RangeInclusive<i64> {
        self.bounds_nested(index, group::DEFAULT_NESTING)
    }

    /// The same for up to `nesting` contexts on a CPU.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn bounds_nested(&self, index: impl CounterIndex<N>, nesting: u32) -> RangeInclusive<i64> {
        let index = index.index();
        let inline = || self.inline[index].load(MemoryOrdering::Acquire);
        match self.promoted() {
            None => {
                let value = inline();
                value..=value
            }
            Some(Promoted { shared, .. }) => shared[index].bounds::<Nearest>(self.batch, nesting, inline, || self.touched.nr_cpus()),
        }
    }

    /// How far [`read`](Self::read) can be off, by [`bounds`](Self::bounds).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn max_error(&self, index: impl CounterIndex<N>) -> u64 {
        group::max_error(self.bounds(index), self.read(index))
    }

    /// Compares one counter's value: at once when the bounds decide, else by an exact sum.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn compare(&self, index: impl CounterIndex<N>, other: i64) -> Ordering {
        group::compare(self.bounds(index), other, || self.sum(index))
    }

    /// Makes one counter's exact value `value`, as [`Counter::set`](crate::Counter::set).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn set(&self, index: impl CounterIndex<N>, value: i64) {
        let missing = value.wrapping_sub(self.sum(index));
        self.inline[index.index()].fetch_add(missing, MemoryOrdering::Relaxed);
    }

    /// Takes the values back into the inline words, exactly, and gives the slots away. O(CPUs that wrote). Does nothing if there are none.
    pub fn demote(&mut self) {
        if self.is_promoted() {
            let sums = self.sum_all();
            self.free();
            self.inline = sums.map(AtomicI64::new);
        }
    }

    /// Where the slots of a promoted set are.
    fn slots_address(&mut self) -> SlotsAddress {
        debug_assert!(self.is_promoted());
        // SAFETY: no state before that is an object's address, which is not null.
        unsafe { SlotsAddress::from_ptr(*self.address.get_mut()) }
    }

    /// Gives the slots of a promoted set away, with what is in them.
    #[inline(never)]
    fn free(&mut self) {
        let address = self.slots_address();
        // SAFETY: promotion allocated `N` slots there; nobody else uses them, since `self` is borrowed for this alone.
        unsafe {
            address.slots::<Nearest>(&self.touched).clean(N);
            self.touched.clear();
            address.free_clean(N);
        }
        *self.address.get_mut() = INLINE;
    }
}

impl<const N: usize, P: PromotionPolicy> LazyCounterSet<N, P> {
    /// Adds to one counter. The caller may be preempted, interrupted and moved to another CPU at any point.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline(always)]
    pub fn add(&self, index: impl CounterIndex<N>, amount: i64) {
        let index = index.index();
        match self.published() {
            None => self.add_inline(index, amount),
            // SAFETY: just seen.
            Some(address) => unsafe { self.add_promoted(address, index, amount) },
        }
    }

    /// Adds to one counter, for a caller that stays on its CPU.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline(always)]
    pub fn add_pinned(&self, pin: Pinned<'_>, index: impl CounterIndex<N>, amount: i64) {
        let index = index.index();
        match self.published() {
            None => self.add_inline(index, amount),
            // SAFETY: just seen.
            Some(address) => unsafe { self.add_promoted_pinned(pin, address, index, amount) },
        }
    }

    #[inline(always)]
    fn add_inline(&self, index: usize, amount: i64) {
        self.inline[index].fetch_add(amount, MemoryOrdering::Relaxed);
        match self.policy.observe() {
            Verdict::Stay => {}
            verdict => self.follow(verdict),
        }
    }

    /// Not inlined, so that what is not promoted is short.
    ///
    /// # Safety
    ///
    /// The address was seen to be published.
    #[inline(never)]
    unsafe fn add_promoted(&self, address: SlotsAddress, index: usize, amount: i64) {
        // SAFETY: the caller's promise.
        let Promoted { slots, shared } = unsafe { self.promoted_to(address) };
        let shared = &shared[index];
        if self.batch.is_large(amount) {
            return shared.add_to_base(amount);
        }
        // SAFETY: there is a slot for each element of `shared`.
        unsafe { slots.add(index, amount, self.batch, shared) };
    }

    /// Not inlined, so that what is not promoted is short.
    ///
    /// # Safety
    ///
    /// The address was seen to be published.
    #[inline(never)]
    unsafe fn add_promoted_pinned(&self, pin: Pinned<'_>, address: SlotsAddress, index: usize, amount: i64) {
        // SAFETY: the caller's promise.
        let Promoted { slots, shared } = unsafe { self.promoted_to(address) };
        let own = &shared[index];
        if self.batch.is_large(amount) {
            return own.add_to_base(amount);
        }
        // SAFETY: there is a slot for each element of `shared`.
        unsafe { slots.add_pinned(pin, index, amount, self.batch, shared) };
    }

    /// Subtracts from one counter; `i64::MIN` wraps.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn sub(&self, index: impl CounterIndex<N>, amount: i64) {
        self.add(index, amount.wrapping_neg());
    }

    /// Adds one to one counter.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn inc(&self, index: impl CounterIndex<N>) {
        self.add(index, 1);
    }

    /// Subtracts one from one counter.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn dec(&self, index: impl CounterIndex<N>) {
        self.add(index, -1);
    }

    /// Adds to all counters, as [`CounterSet::add_all`](crate::CounterSet::add_all).
    #[inline]
    pub fn add_all(&self, amounts: [i64; N]) {
        for (index, &amount) in amounts.iter().enumerate().filter(|&(_, &amount)| amount != 0) {
            self.add(index, amount);
        }
    }

    /// Adds to all counters, for a caller that stays on its CPU.
    #[inline]
    pub fn add_all_pinned(&self, pin: Pinned<'_>, amounts: [i64; N]) {
        for (index, &amount) in amounts.iter().enumerate().filter(|&(_, &amount)| amount != 0) {
            self.add_pinned(pin, index, amount);
        }
    }
}

impl<const N: usize, P> Drop for LazyCounterSet<N, P> {
    #[inline]
    fn drop(&mut self) {
        if self.is_promoted() {
            #[cfg(feature = "robust")]
            self.slots_address().report_values(self.sum_all().into_iter());
            self.free();
        } else {
            #[cfg(feature = "robust")]
            crate::alloc::report_dropped_values(None, self.sum_all().into_iter());
        }
    }
}

/// All zero, with the policy's first state.
impl<const N: usize, P: PromotionPolicy> Default for LazyCounterSet<N, P> {
    fn default() -> Self {
        Self::with([0; N], Batch::DEFAULT, P::NEW)
    }
}

impl<const N: usize> From<[i64; N]> for LazyCounterSet<N> {
    fn from(initial: [i64; N]) -> Self {
        Self::new(initial)
    }
}

impl<const N: usize, P> fmt::Debug for LazyCounterSet<N, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyCounterSet")
            .field("is_promoted", &self.is_promoted())
            .field("read", &self.read_all())
            .field("sum", &self.sum_all())
            .finish()
    }
}

#[cfg(feature = "defmt")]
impl<const N: usize, P> defmt::Format for LazyCounterSet<N, P> {
    fn format(&self, f: defmt::Formatter<'_>) {
        let (read, sum) = (self.read_all(), self.sum_all());
        defmt::write!(f, "LazyCounterSet {{ is_promoted: {=bool}, read: {=[?]}, sum: {=[?]} }}", self.is_promoted(), read, sum);
    }
}
