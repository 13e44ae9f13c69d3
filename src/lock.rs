//! A spin lock that keeps interrupts off while it is held, so that an interrupt handler on the holder's CPU never waits for it.

use crate::pin::with_irqs_off;

/// A lock for short critical sections; not for NMI context, where only `try_with` may be used.
pub(crate) struct IrqLock<T>(spin::mutex::SpinMutex<T>);

impl<T> IrqLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        IrqLock(spin::mutex::SpinMutex::new(value))
    }

    /// Runs `f` with the value, alone.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        with_irqs_off(|_| f(&mut self.0.lock()))
    }

    /// Runs `f` with the value unless somebody else holds it.
    pub(crate) fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        with_irqs_off(|_| Some(f(&mut *self.0.try_lock()?)))
    }
}

/// A lock that begins a line, so that what its value begins with is in the line that who takes the lock has anyway.
#[repr(align(64))]
pub(crate) struct LinedLock<T>(IrqLock<T>);

impl<T> LinedLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        LinedLock(IrqLock::new(value))
    }
}

impl<T> core::ops::Deref for LinedLock<T> {
    type Target = IrqLock<T>;

    fn deref(&self) -> &IrqLock<T> {
        &self.0
    }
}
