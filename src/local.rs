//! Per-CPU values that are used by reference.

use core::cell::UnsafeCell;
use core::fmt;

use crate::cpu::CpuId;
use crate::pin::{IrqsOff, Pinned};
use crate::var::{Place, Var};

/// A per-CPU value of any type, reached by reference while a token is held.
///
/// | access | who else may use the same copy meanwhile | asks for |
/// |---|---|---|
/// | [`borrow`](Var::borrow) | interrupts on this CPU, other CPUs | a [`Pinned`] token, `T: Sync` |
/// | [`borrow_irqs_off`](Var::borrow_irqs_off) | nobody else, but who called this | an [`IrqsOff`] token, `T: Send` |
/// | [`borrow_on`](Var::borrow_on) | everybody | `T: Sync` |
///
/// No `&mut` is ever given: a nested call may hold `&T` already. Use `Cell`, `RefCell`, a lock or atomics inside.
///
/// Without the right token or bound it does not compile:
///
/// ```compile_fail
/// use core::cell::Cell;
/// pcpu::per_cpu! {
///     static DEPTH: pcpu::Local<Cell<u32>> = pcpu::Local::new(Cell::new(0));
/// }
/// // An interrupt could come in the middle of an update of a `Cell`.
/// pcpu::with_pin(|pin| DEPTH.borrow(pin).set(1));
/// ```
///
/// ```
/// use core::cell::Cell;
/// pcpu::per_cpu! {
///     static DEPTH: pcpu::Local<Cell<u32>> = pcpu::Local::new(Cell::new(0));
/// }
/// pcpu::with_irqs_off(|irqs_off| DEPTH.borrow_irqs_off(irqs_off).set(1));
/// ```
///
/// A reference does not outlive its token:
///
/// ```compile_fail
/// use core::cell::Cell;
/// pcpu::per_cpu! {
///     static DEPTH: pcpu::Local<Cell<u32>> = pcpu::Local::new(Cell::new(0));
/// }
/// let depth = pcpu::with_irqs_off(|irqs_off| DEPTH.borrow_irqs_off(irqs_off));
/// ```
#[repr(transparent)]
pub struct Local<T>(UnsafeCell<T>);

impl<T> Local<T> {
    /// A value, the same on each CPU.
    pub const fn new(value: T) -> Self {
        Local(UnsafeCell::new(value))
    }
}

impl<T> fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local")
    }
}

// SAFETY: a shared `Local` gives `&T` through `Var` alone: to several threads only where `T: Sync`, to one at a time where `T: Send`.
unsafe impl<T> Sync for Local<T> {}

// SAFETY: moves with its value.
unsafe impl<T: Send> Send for Local<T> {}

impl<P: Place<Value = Local<T>>, T> Var<P> {
    /// This CPU's value. Context: process, interrupt; NMI too, where the embedder can vouch for the pin.
    pub fn borrow<'a, 'p: 'a>(&'a self, pin: Pinned<'p>) -> &'a T
    where
        T: Sync,
    {
        let _ = pin;
        // SAFETY: initialised on every possible CPU; only shared references exist, and other contexts may have theirs: `T: Sync`.
        unsafe { &*self.this_ptr().cast::<T>() }
    }

    /// This CPU's value, while nothing else on this CPU can look at it. Context: process, interrupt; not NMI.
    pub fn borrow_irqs_off<'a, 'p: 'a>(&'a self, irqs_off: IrqsOff<'p>) -> &'a T
    where
        T: Send,
    {
        let _ = irqs_off;
        // SAFETY: initialised on every possible CPU; only shared references exist. Those of other contexts on this CPU ended before
        // interrupts went off, or are the caller's own; other CPUs' need `T: Sync`. `T: Send`: it is used by one thread after another.
        unsafe { &*self.this_ptr().cast::<T>() }
    }

    /// `cpu`'s value.
    pub fn borrow_on(&self, cpu: CpuId) -> &T
    where
        T: Sync,
    {
        // SAFETY: initialised on every possible CPU; only shared references exist, everywhere: `T: Sync`.
        unsafe { &*self.ptr_on(cpu).cast::<T>() }
    }
}
