//! Owned per-CPU objects that are made at run time.
//!
//! # Invariants
//!
//! * A [`Handle`] is the address, in template space, of an object of the allocator's that holds a `T` on every possible CPU.
//! * A [`PerCpuBox`] owns its handle: it alone drops the values and frees the object.

use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ops::Deref;

use crate::alloc::{self, AllocError, AllocFlags};
use crate::arch::{Bytes, GsBase};
use crate::cpu::CpuId;
use crate::var::{Place, Var};

/// The place of a per-CPU object: one word, never zero.
#[repr(transparent)]
pub struct Handle<T> {
    address: NonZeroUsize,
    value: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    /// # Safety
    ///
    /// A `T` lies at that address of template space on every possible CPU, for as long as the handle is borrowed.
    pub(crate) const unsafe fn new(address: NonZeroUsize) -> Self {
        Handle { address, value: PhantomData }
    }

    pub(crate) const fn address(&self) -> NonZeroUsize {
        self.address
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#x})", self.address)
    }
}

// SAFETY: an address where a `T` lies on every CPU, by `Handle::new`'s contract.
unsafe impl<T> GsBase for Handle<T> {
    type Value = T;

    #[inline(always)]
    fn template_address(&self) -> usize {
        self.address.get()
    }

    crate::__gs_operations! { self, "{base}", base = in(reg) self.address.get() }
}

// SAFETY: the value is the base's, at distance 0.
unsafe impl<T> Place for Handle<T> {
    type Value = T;
    type Base = Self;
    type Off = Bytes<0>;

    #[inline(always)]
    fn base(&self) -> &Self {
        self
    }
}

/// Types for which all bytes zero is a value.
///
/// # Safety
///
/// All bytes zero is a value of the type: no reference, no enum without a variant 0.
pub unsafe trait Zeroable {}

macro_rules! zeroable {
    ($($type:ty),*) => {$(
        // SAFETY: zero is a value of integers, of `bool`, and of atomics of them.
        unsafe impl Zeroable for $type {}
    )*};
}
zeroable!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, f32, f64);
zeroable!(core::sync::atomic::AtomicU8, core::sync::atomic::AtomicU16, core::sync::atomic::AtomicU32, core::sync::atomic::AtomicU64);
zeroable!(core::sync::atomic::AtomicI8, core::sync::atomic::AtomicI16, core::sync::atomic::AtomicI32, core::sync::atomic::AtomicI64);
zeroable!(core::sync::atomic::AtomicUsize, core::sync::atomic::AtomicIsize, core::sync::atomic::AtomicBool);

// SAFETY: null.
unsafe impl<T> Zeroable for *mut T {}
// SAFETY: null.
unsafe impl<T> Zeroable for *const T {}
// SAFETY: null.
unsafe impl<T> Zeroable for core::sync::atomic::AtomicPtr<T> {}
// SAFETY: each element is zero.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}
// SAFETY: transparent.
unsafe impl<T: Zeroable> Zeroable for core::cell::UnsafeCell<T> {}
// SAFETY: transparent.
unsafe impl<T: Zeroable> Zeroable for core::cell::Cell<T> {}
// SAFETY: transparent.
unsafe impl<T: Zeroable> Zeroable for crate::Local<T> {}

/// An owned `T` on every possible CPU; the run-time counterpart of [`per_cpu!`](crate::per_cpu).
///
/// It dereferences to a [`Var`], so a word is one instruction away: `add qword ptr gs:[handle], 1`. One word large, as is
/// `Option<PerCpuBox<T>>`.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(2, |_| {
/// let faults = pcpu::PerCpuBox::<u64>::zeroed()?;
/// faults.inc();
/// assert_eq!(faults.sum(), 1);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
pub struct PerCpuBox<T> {
    var: Var<Handle<T>>,
    owns: PhantomData<T>,
}

// SAFETY: drops one `T` a CPU on whatever thread it is on.
unsafe impl<T: Send> Send for PerCpuBox<T> {}

// SAFETY: a shared box gives a `Var`, whose methods ask for what they need.
unsafe impl<T> Sync for PerCpuBox<T> {}

impl<T: Zeroable> PerCpuBox<T> {
    /// All zero on every CPU. Cost: an allocation; no CPU's memory is touched. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn zeroed() -> Result<Self, AllocError> {
        Self::zeroed_with(AllocFlags::PROCESS)
    }

    /// The same in the context that the flags tell.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn zeroed_with(flags: AllocFlags) -> Result<Self, AllocError> {
        let address = alloc::allocate(size_of::<T>(), align_of::<T>(), flags)?;
        // SAFETY: all zero is a `T`, on every CPU.
        Ok(unsafe { Self::from_address(address) })
    }
}

impl<T: Zeroable> PerCpuBox<T> {
    /// `K` objects of their own, or none: for objects that are needed together but freed one by one. (Those that are freed together are
    /// better one object: `PerCpuBox<[T; K]>`.)
    ///
    /// # Errors
    /// See [`AllocError`]; what was allocated so far is freed again.
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn zeroed_each<const K: usize>() -> Result<[Self; K], AllocError> {
        let mut handles = [None; K];
        alloc::allocate_many(&mut handles, size_of::<T>(), align_of::<T>(), AllocFlags::PROCESS)?;
        // SAFETY: all zero is a `T`, on every CPU; each handle was filled, since the call did not fail.
        Ok(handles.map(|handle| unsafe { Self::from_address(handle.unwrap_unchecked()) }))
    }
}

impl<T> PerCpuBox<T> {
    /// Makes each CPU's value in place with `value_for`. O(possible CPUs). Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new(mut value_for: impl FnMut(CpuId) -> T) -> Result<Self, AllocError> {
        match Self::try_new(|cpu| Ok::<T, Infallible>(value_for(cpu))) {
            Ok(made) => Ok(made),
            Err(TryNewError::Alloc(error)) => Err(error),
        }
    }

    /// The same with a constructor that may fail. If it does, or panics, the values made so far are dropped and nothing stays behind.
    ///
    /// # Errors
    /// The allocation's or the constructor's.
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn try_new<E>(mut value_for: impl FnMut(CpuId) -> Result<T, E>) -> Result<Self, TryNewError<E>> {
        let address = alloc::allocate(size_of::<T>(), align_of::<T>(), AllocFlags::PROCESS).map_err(TryNewError::Alloc)?;
        let mut made = Made::<T> { address, nr: 0, value: PhantomData };
        for cpu in CpuId::possible() {
            let value = value_for(cpu).map_err(TryNewError::Constructor)?;
            // SAFETY: that CPU's copy is inside the new object, which is nobody else's.
            unsafe { made.var().ptr_on(cpu).write(value) };
            made.nr += 1;
        }
        core::mem::forget(made);
        // SAFETY: a `T` lies there on every possible CPU.
        Ok(unsafe { Self::from_address(address) })
    }

    /// # Safety
    ///
    /// An object of the allocator's for a `T`, initialised on every possible CPU, that nobody else owns.
    unsafe fn from_address(address: NonZeroUsize) -> Self {
        // SAFETY: the caller's promise.
        PerCpuBox { var: Var::new(unsafe { Handle::new(address) }), owns: PhantomData }
    }
}

impl<T> Deref for PerCpuBox<T> {
    type Target = Var<Handle<T>>;

    #[inline(always)]
    fn deref(&self) -> &Var<Handle<T>> {
        &self.var
    }
}

impl<T> Drop for PerCpuBox<T> {
    fn drop(&mut self) {
        drop(Made::<T> { address: self.var.place().address(), nr: CpuId::possible().len(), value: PhantomData });
    }
}

impl<T> fmt::Debug for PerCpuBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PerCpuBox<{}>({:#x})", core::any::type_name::<T>(), self.template_address())
    }
}

/// An object with values on the first `nr` CPUs; drops them and frees it.
struct Made<T> {
    address: NonZeroUsize,
    nr: usize,
    value: PhantomData<T>,
}

impl<T> Made<T> {
    fn var(&self) -> Var<Handle<T>> {
        // SAFETY: used for its addresses alone.
        Var::new(unsafe { Handle::new(self.address) })
    }
}

impl<T> Drop for Made<T> {
    fn drop(&mut self) {
        /// Frees also when a destructor panics; the values after it leak, as in a slice.
        struct Free<T>(NonZeroUsize, PhantomData<T>);
        impl<T> Drop for Free<T> {
            fn drop(&mut self) {
                // SAFETY: the object was allocated with that layout, and this is the only owner.
                unsafe { alloc::free(self.0, size_of::<T>(), align_of::<T>()) };
            }
        }
        let _free = Free::<T>(self.address, PhantomData);
        if core::mem::needs_drop::<T>() {
            for cpu in CpuId::possible().take(self.nr) {
                // SAFETY: initialised, dropped once, and nobody else uses it any more.
                unsafe { self.var().ptr_on(cpu).drop_in_place() };
            }
        }
    }
}

/// Why [`PerCpuBox::try_new`] made nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryNewError<E> {
    /// There was no memory for it.
    Alloc(AllocError),
    /// The constructor failed.
    Constructor(E),
}

impl<E: fmt::Display> fmt::Display for TryNewError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryNewError::Alloc(error) => error.fmt(f),
            TryNewError::Constructor(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error> core::error::Error for TryNewError<E> {}
