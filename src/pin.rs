//! Tokens: "this CPU, for now" and "interrupts are off here".
//!
//! A token is proof for the length of a closure. It cannot leave the closure (its lifetime is the closure's own), nor cross to another
//! thread (it is neither `Send` nor `Sync`), nor be held across an `await` (the closure's future would have to name its lifetime).
//!
//! Guards that restore a saved flag when dropped are not offered: dropped in another order than taken, they turn interrupts on under a
//! guard that still lives.

use core::marker::PhantomData;

use crate::arch;

/// How a kernel keeps a task on its CPU. Nests.
///
/// # Safety
///
/// Between `disable` and the matching `enable` the calling task executes on one CPU, and no other task executes there.
pub unsafe trait PreemptControl {
    /// Keeps the calling task on its CPU from now on.
    fn disable();

    /// Ends the innermost `disable`.
    ///
    /// # Safety
    ///
    /// Pairs with a `disable` of the same context.
    unsafe fn enable();
}

/// How a kernel keeps maskable interrupts off on this CPU. Nests.
///
/// # Safety
///
/// Between `disable` and the matching `restore` no maskable interrupt is taken on this CPU and the caller stays on it.
pub unsafe trait IrqControl {
    /// What `restore` needs to know.
    type Saved;

    /// Turns interrupts off.
    fn disable() -> Self::Saved;

    /// Brings back the state before the innermost `disable`.
    ///
    /// # Safety
    ///
    /// `saved` comes from the innermost `disable` of the same context that was not restored yet.
    unsafe fn restore(saved: Self::Saved);
}

/// The default for kernels in ring 0: interrupts go off by the interrupt flag, and a task is kept on its CPU by the same means.
#[derive(Debug)]
pub enum Ring0 {}

// SAFETY: with the flag clear no maskable interrupt is taken, and without one nothing moves the task.
unsafe impl IrqControl for Ring0 {
    type Saved = bool;

    #[inline]
    fn disable() -> bool {
        arch::irq_save_and_disable()
    }

    #[inline]
    unsafe fn restore(saved: bool) {
        // SAFETY: the caller's promise.
        unsafe { arch::irq_restore(saved) };
    }
}

type Scope<'p> = (fn(&'p ()) -> &'p (), *mut ());

/// Proof that the caller stays on its CPU for `'p`.
///
/// It cannot leave its scope:
///
/// ```compile_fail
/// let escaped = pcpu::with_pin(|pin| pin);
/// ```
///
/// nor cross threads, itself or by reference:
///
/// ```compile_fail
/// pcpu::with_pin(|pin| std::thread::scope(|scope| { scope.spawn(move || { let _moved = pin; }); }));
/// ```
/// ```compile_fail
/// pcpu::with_pin(|pin| std::thread::scope(|scope| { scope.spawn(|| { let _shared = &pin; }); }));
/// ```
///
/// nor live in a future that is awaited outside:
///
/// ```compile_fail
/// let future = pcpu::with_pin(|pin| async move { core::future::ready(()).await; let _held = pin; });
/// ```
///
/// Within its scope it is free to copy:
///
/// ```
/// let (a, b) = pcpu::with_pin(|pin| {
///     let _copy = pin;
///     (pcpu::CpuId::current(), pcpu::CpuId::current())
/// });
/// assert_eq!(a, b);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pinned<'p> {
    // Invariant in 'p, so that a token cannot pass for one of another scope; `*mut ()` makes it neither `Send` nor `Sync`.
    scope: PhantomData<Scope<'p>>,
}

/// Proof that maskable interrupts are off on this CPU for `'p`, and that the caller stays on it.
///
/// It cannot leave its scope:
///
/// ```compile_fail
/// let escaped = pcpu::with_irqs_off(|irqs_off| irqs_off);
/// ```
///
/// nor cross threads, itself or by reference:
///
/// ```compile_fail
/// pcpu::with_irqs_off(|irqs_off| std::thread::scope(|scope| { scope.spawn(move || { let _moved = irqs_off; }); }));
/// ```
/// ```compile_fail
/// pcpu::with_irqs_off(|irqs_off| std::thread::scope(|scope| { scope.spawn(|| { let _shared = &irqs_off; }); }));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct IrqsOff<'p> {
    pinned: Pinned<'p>,
}

impl<'p> IrqsOff<'p> {
    /// Interrupts off implies that the CPU stays the same.
    pub fn pinned(self) -> Pinned<'p> {
        self.pinned
    }
}

/// Runs `f` pinned to this CPU by the default means: interrupts are off meanwhile. Keep it short, or supply your own
/// [`PreemptControl`] to [`with_pin_by`].
///
/// Context: process and interrupt. Cost: reading, clearing and setting the interrupt flag.
pub fn with_pin<R>(f: impl for<'p> FnOnce(Pinned<'p>) -> R) -> R {
    with_irqs_off(|irqs_off| f(irqs_off.pinned()))
}

/// Runs `f` pinned to this CPU by the embedder's means.
pub fn with_pin_by<C: PreemptControl, R>(f: impl for<'p> FnOnce(Pinned<'p>) -> R) -> R {
    struct Enable<C: PreemptControl>(PhantomData<C>);
    impl<C: PreemptControl> Drop for Enable<C> {
        fn drop(&mut self) {
            // SAFETY: pairs with the `disable` below; also when `f` unwinds.
            unsafe { C::enable() };
        }
    }
    C::disable();
    let _enable = Enable::<C>(PhantomData);
    // SAFETY: the embedder's control keeps the task here until `_enable` is dropped.
    unsafe { assume_pinned(f) }
}

/// Runs `f` with a token but without doing anything: for callers that are pinned by other means, and for the code that implements
/// pinning.
///
/// # Safety
///
/// The caller stays on one CPU, and no other task executes there, until `f` returns.
pub unsafe fn assume_pinned<R>(f: impl for<'p> FnOnce(Pinned<'p>) -> R) -> R {
    f(Pinned { scope: PhantomData })
}

/// Runs `f` with interrupts off on this CPU, by the interrupt flag, and brings back the state before.
///
/// Context: process and interrupt. Code that interrupt masking does not hold off (NMI, machine check) must not rely on it: see
/// [`init`](crate::init). In ring 3 (tests on host threads) interrupts are those that the harness simulates.
///
/// ```
/// pcpu::per_cpu! {
///     static QUEUE: pcpu::Local<core::cell::RefCell<Vec<u32>>> = pcpu::Local::new(core::cell::RefCell::new(Vec::new()));
/// }
/// pcpu::with_irqs_off(|irqs_off| QUEUE.borrow_irqs_off(irqs_off).borrow_mut().push(7));
/// ```
pub fn with_irqs_off<R>(f: impl for<'p> FnOnce(IrqsOff<'p>) -> R) -> R {
    with_irqs_off_by::<Ring0, R>(f)
}

/// Runs `f` with interrupts off by the embedder's means.
pub fn with_irqs_off_by<C: IrqControl, R>(f: impl for<'p> FnOnce(IrqsOff<'p>) -> R) -> R {
    struct Restore<C: IrqControl>(Option<C::Saved>);
    impl<C: IrqControl> Drop for Restore<C> {
        fn drop(&mut self) {
            if let Some(saved) = self.0.take() {
                // SAFETY: from the `disable` below, the innermost one: `f` has restored its own; also when it unwinds.
                unsafe { C::restore(saved) };
            }
        }
    }
    let _restore = Restore::<C>(Some(C::disable()));
    // SAFETY: the control keeps interrupts off until `_restore` is dropped.
    unsafe { assume_irqs_off(f) }
}

/// Runs `f` with a token but without doing anything: for interrupt handlers and other code that runs with interrupts off anyway.
///
/// # Safety
///
/// Interrupts stay off on this CPU until `f` returns.
pub unsafe fn assume_irqs_off<R>(f: impl for<'p> FnOnce(IrqsOff<'p>) -> R) -> R {
    f(IrqsOff { pinned: Pinned { scope: PhantomData } })
}
