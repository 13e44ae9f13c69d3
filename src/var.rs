//! Per-CPU variables: static ones, and what static, run-time and field access have in common.
//!
//! # Invariants
//!
//! * A [`Var`] names a value that exists on every possible CPU. Nothing here hands out a reference to a plain value: words are reached
//!   by single instructions and same-size atomics, everything else through raw pointers or a [`Local`](crate::Local).
//! * A static's storage is an `UnsafeCell` in the section `pcpu_template`; its pristine value is a separate constant, named by an init
//!   record in `pcpu_init`, so that CPUs other than the boot CPU start from what was written in the source.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;

use crate::arch::{GsBase, Offset};
use crate::area;
use crate::cpu::CpuId;
use crate::word::{Integer, Word};

/// Where a per-CPU value lies: a base and an offset in it. Implemented for what [`per_cpu!`](crate::per_cpu) and
/// [`field!`](crate::field) make and for [`Handle`](crate::Handle)s.
///
/// # Safety
///
/// A `Value` lies at `Off` bytes into the base's value.
pub unsafe trait Place {
    /// The type of the value.
    type Value;
    /// What the operations act on.
    #[doc(hidden)]
    type Base: GsBase;
    /// The distance from the base to the value.
    #[doc(hidden)]
    type Off: Offset;
    /// The base.
    #[doc(hidden)]
    fn base(&self) -> &Self::Base;
}

/// A per-CPU variable: one value on each possible CPU.
///
/// What can be done with it depends on the type of the value:
///
/// * **words** (integers, `bool`, thin pointers): every operation on this CPU's copy is one memory-touching instruction, so it is atomic
///   against interrupts, NMIs and migration on this CPU without a lock or a token. It is usable in process, interrupt and NMI context.
/// * **[`Local`](crate::Local)`<T>`**: references to this CPU's copy, for those who hold a token.
/// * **any other type**: raw pointers, and its words and `Local`s by [`field!`](crate::field).
///
/// A task that is not pinned may move to another CPU between two operations, never within one.
///
/// ```
/// pcpu::per_cpu! {
///     /// Interrupts taken.
///     static INTERRUPTS: u64 = 0;
/// }
/// INTERRUPTS.inc();
/// INTERRUPTS.add(2);
/// assert_eq!(INTERRUPTS.get(), 3);
/// assert_eq!(INTERRUPTS.sum(), 3);
/// ```
#[repr(transparent)]
pub struct Var<P>(P);

impl<P> Var<P> {
    /// Wraps a place.
    #[doc(hidden)]
    pub const fn new(place: P) -> Self {
        Var(place)
    }

    /// The place.
    pub(crate) fn place(&self) -> &P {
        &self.0
    }
}

impl<P: Place> Var<P> {
    /// The address in template space: `gs:[address]` is this CPU's copy. Never zero.
    #[inline(always)]
    pub fn template_address(&self) -> usize {
        self.0.base().template_address().wrapping_add(P::Off::BYTES)
    }

    /// The address of this CPU's copy. Two instructions; the caller must know that the CPU cannot change, or not care.
    ///
    /// After [`init`](crate::init) it stays the same for ever: a TSS, a GDT or a stack may lie there. Before `init` it is the template's
    /// address, which the boot CPU leaves at `init`.
    #[inline(always)]
    pub fn this_ptr(&self) -> *mut P::Value {
        ptr::with_exposed_provenance_mut(self.template_address().wrapping_add(area::this_delta()))
    }

    /// The address of `cpu`'s copy; stable after [`init`](crate::init).
    #[inline]
    pub fn ptr_on(&self, cpu: CpuId) -> *mut P::Value {
        ptr::with_exposed_provenance_mut(self.template_address().wrapping_add(area::delta(cpu)))
    }

    /// The place of a part of the value.
    ///
    /// # Safety
    ///
    /// An `F` lies at `O::BYTES` bytes into the value.
    #[doc(hidden)]
    pub unsafe fn project<F, O: Offset>(&self, _: fn(*const P::Value) -> *const F) -> Var<Field<'_, P, F, O>> {
        const {
            assert!(
                O::BYTES.is_multiple_of(align_of::<F>()) && align_of::<P::Value>() >= align_of::<F>(),
                "a field of a packed struct is not aligned"
            );
        }
        Var(Field { place: &self.0, part: PhantomData })
    }
}

impl<P: Place<Value = W>, W: Word> Var<P> {
    /// This CPU's value: one load.
    #[inline(always)]
    pub fn get(&self) -> W {
        // SAFETY: a `W` lies there by `Place`'s promise; words are accessed by single instructions and same-size atomics alone.
        unsafe { self.0.base().load::<W, P::Off>() }
    }

    /// Sets this CPU's value: one store.
    #[inline(always)]
    pub fn set(&self, value: W) {
        // SAFETY: as in `get`.
        unsafe { self.0.base().store::<W, P::Off>(value) }
    }

    /// Sets this CPU's value and returns the former one: one `xchg`, which the processor locks by itself (about 20 cycles).
    #[inline(always)]
    pub fn swap(&self, value: W) -> W {
        // SAFETY: as in `get`.
        unsafe { self.0.base().swap::<W, P::Off>(value) }
    }

    /// Stores `new` if this CPU's value is `current`: one `cmpxchg` without a lock prefix. `Err` holds the value found.
    ///
    /// # Errors
    /// The value was another one; nothing changed.
    #[inline(always)]
    pub fn compare_exchange(&self, current: W, new: W) -> Result<W, W> {
        // SAFETY: as in `get`.
        let found = unsafe { self.0.base().compare_exchange::<W, P::Off>(current, new) };
        if found.to_bits() == current.to_bits() { Ok(found) } else { Err(found) }
    }

    /// `cpu`'s value: a relaxed atomic load. May move that CPU's line to shared.
    #[inline]
    pub fn get_on(&self, cpu: CpuId) -> W {
        // SAFETY: a `W` lies there on every possible CPU; words are accessed by single instructions and same-size atomics alone.
        unsafe { W::load_remote(self.ptr_on(cpu)) }
    }
}

impl<P: Place<Value = W>, W: Integer> Var<P> {
    /// Adds to this CPU's value, wrapping: one `add`.
    #[inline(always)]
    pub fn add(&self, value: W) {
        // SAFETY: as in `get`.
        unsafe { self.0.base().add::<W, P::Off>(value) }
    }

    /// Subtracts from this CPU's value, wrapping: one `sub`.
    #[inline(always)]
    pub fn sub(&self, value: W) {
        // SAFETY: as in `get`.
        unsafe { self.0.base().sub::<W, P::Off>(value) }
    }

    /// Adds one, wrapping: one `inc`.
    #[inline(always)]
    pub fn inc(&self) {
        // SAFETY: as in `get`.
        unsafe { self.0.base().inc::<W, P::Off>() }
    }

    /// Subtracts one, wrapping: one `dec`.
    #[inline(always)]
    pub fn dec(&self) {
        // SAFETY: as in `get`.
        unsafe { self.0.base().dec::<W, P::Off>() }
    }

    /// Keeps the bits that are set in `value` too: one `and`.
    #[inline(always)]
    pub fn and(&self, value: W) {
        // SAFETY: as in `get`.
        unsafe { self.0.base().and::<W, P::Off>(value) }
    }

    /// Sets the bits that are set in `value`: one `or`.
    #[inline(always)]
    pub fn or(&self, value: W) {
        // SAFETY: as in `get`.
        unsafe { self.0.base().or::<W, P::Off>(value) }
    }

    /// Flips the bits that are set in `value`: one `xor`.
    #[inline(always)]
    pub fn xor(&self, value: W) {
        // SAFETY: as in `get`.
        unsafe { self.0.base().xor::<W, P::Off>(value) }
    }

    /// Adds, wrapping, and returns the new value: one `xadd` without a lock prefix.
    #[inline(always)]
    pub fn add_return(&self, value: W) -> W {
        // SAFETY: as in `get`.
        unsafe { self.0.base().fetch_add::<W, P::Off>(value) }.plus(value)
    }

    /// The wrapping sum over all possible CPUs: O(possible CPUs), a relaxed load of each copy.
    ///
    /// Counts every add that finished before the call, none that began after it, and each overlapping one wholly or not at all.
    pub fn sum(&self) -> W {
        CpuId::possible().fold(W::ZERO, |sum, cpu| sum.plus(self.get_on(cpu)))
    }
}

impl<P: Place> fmt::Debug for Var<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Var<{}>({:#x})", core::any::type_name::<P::Value>(), self.template_address())
    }
}

/// A part of a per-CPU variable, made by [`field!`](crate::field).
pub struct Field<'a, P, F, O> {
    place: &'a P,
    part: PhantomData<fn() -> (F, O)>,
}

impl<P, F, O> fmt::Debug for Field<'_, P, F, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Field")
    }
}

/// The sum of two distances: of a field in its struct, of the struct in the variable.
#[derive(Debug)]
pub struct Plus<A, B>(PhantomData<fn() -> (A, B)>);

impl<A: Offset, B: Offset> Offset for Plus<A, B> {
    const BYTES: usize = A::BYTES + B::BYTES;
}

// SAFETY: `project`'s caller promises an `F` at `O` bytes into `P`'s value, which lies at `P::Off` bytes into the base's.
unsafe impl<P: Place, F, O: Offset> Place for Field<'_, P, F, O> {
    type Value = F;
    type Base = P::Base;
    type Off = Plus<P::Off, O>;

    #[inline(always)]
    fn base(&self) -> &P::Base {
        self.place.base()
    }
}

/// Storage of a static per-CPU variable in the template.
#[repr(transparent)]
#[derive(Debug)]
pub struct TemplateCell<T>(UnsafeCell<T>);

// SAFETY: the cell gives access through `Var` alone, whose methods are atomic, take tokens, or return raw pointers.
unsafe impl<T> Sync for TemplateCell<T> {}

impl<T> TemplateCell<T> {
    /// A cell with the value that the boot CPU starts from.
    pub const fn new(value: T) -> Self {
        TemplateCell(UnsafeCell::new(value))
    }

    /// The address in the template.
    #[inline(always)]
    pub fn address(&'static self) -> usize {
        self.0.get() as usize
    }
}

/// A pristine value: never read but by a byte copy, so it is shared without being used.
#[repr(transparent)]
#[expect(missing_debug_implementations, reason = "it would use the value")]
pub struct Pristine<T>(T);

// SAFETY: nothing but its bytes is read.
unsafe impl<T> Sync for Pristine<T> {}

impl<T> Pristine<T> {
    /// Keeps the value.
    pub const fn new(value: T) -> Self {
        Pristine(value)
    }
}

/// Declares static per-CPU variables, with the syntax of statics.
///
/// Each becomes a [`Var`] of the same name, and a type of the same name that stands for its place. The value must be a constant
/// expression; its bytes are copied to each CPU, so it must not contain its own address. Any type will do, `Send` or not: the methods of
/// [`Var`] and [`Local`](crate::Local) ask for what they need.
///
/// On the boot CPU the variables work from the first instruction; what was counted before [`init`](crate::init) is kept, once.
///
/// ```
/// pcpu::per_cpu! {
///     /// System calls made on this CPU.
///     pub static SYSCALLS: u64 = 0;
///     /// Depth of preemption guards.
///     pub(crate) static PREEMPT_DEPTH: u32 = 0;
///     static CURRENT: *mut Task = core::ptr::null_mut();
/// }
/// pub struct Task;
///
/// SYSCALLS.inc();
/// assert!(CURRENT.get().is_null());
/// assert_eq!(PREEMPT_DEPTH.add_return(1), 1);
/// ```
#[macro_export]
macro_rules! per_cpu {
    ($($(#[$($attribute:tt)*])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => {$(
        $crate::__split_attributes! { __per_cpu_static [] [] $(#[$($attribute)*])* ; $visibility $name: $type = $value }
    )*};
}

/// One variable of [`per_cpu!`](crate::per_cpu).
#[doc(hidden)]
#[macro_export]
macro_rules! __per_cpu_static {
    ([$($cfg:tt)*] [$($attribute:tt)*] $visibility:vis $name:ident: $type:ty = $value:expr) => {
        $crate::__per_cpu_place! { [$($cfg)*] $visibility $name: $type = $value }

        $($cfg)*
        $($attribute)*
        $visibility static $name: $crate::Var<$name> = $crate::Var::new($name { _private: () });
    };
}

/// Sorts attributes and hands them on to the macro that is named: conditions, which all of its items need, and others, which are for the
/// static alone.
#[doc(hidden)]
#[macro_export]
macro_rules! __split_attributes {
    ($next:ident [$($cfg:tt)*] [$($other:tt)*] #[cfg $($condition:tt)*] $($rest:tt)*) => {
        $crate::__split_attributes! { $next [$($cfg)* #[cfg $($condition)*]] [$($other)*] $($rest)* }
    };
    ($next:ident [$($cfg:tt)*] [$($other:tt)*]
        #[cfg_attr($predicate:ident $(($($predicates:tt)*))? $(= $value:literal)?, cfg $condition:tt)] $($rest:tt)*) => {
        $crate::__split_attributes! {
            $next [$($cfg)* #[cfg_attr($predicate $(($($predicates)*))? $(= $value)?, cfg $condition)]] [$($other)*] $($rest)*
        }
    };
    // Lines of documentation by eights: each step is one of the compiler's recursion limit.
    ($next:ident [$($cfg:tt)*] [$($other:tt)*]
        #[doc = $a:literal] #[doc = $b:literal] #[doc = $c:literal] #[doc = $d:literal]
        #[doc = $e:literal] #[doc = $f:literal] #[doc = $g:literal] #[doc = $h:literal] $($rest:tt)*) => {
        $crate::__split_attributes! {
            $next [$($cfg)*] [$($other)* #[doc = $a] #[doc = $b] #[doc = $c] #[doc = $d] #[doc = $e] #[doc = $f] #[doc = $g] #[doc = $h]] $($rest)*
        }
    };
    ($next:ident [$($cfg:tt)*] [$($other:tt)*] #[$($attribute:tt)*] $($rest:tt)*) => {
        $crate::__split_attributes! { $next [$($cfg)*] [$($other)* #[$($attribute)*]] $($rest)* }
    };
    ($next:ident [$($cfg:tt)*] [$($other:tt)*] ; $($rest:tt)*) => {
        $crate::$next! { [$($cfg)*] [$($other)*] $($rest)* }
    };
}

/// A static per-CPU variable's place: a type of that name.
#[doc(hidden)]
#[macro_export]
macro_rules! __per_cpu_place {
    ([$($cfg:tt)*] $visibility:vis $name:ident: $type:ty = $value:expr) => {
        $($cfg)*
        #[doc(hidden)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, missing_debug_implementations, missing_docs)]
        $visibility struct $name {
            _private: (),
        }

        $($cfg)*
        const _: () = {
            $crate::__template! { $type = $value }

            // SAFETY: the template holds a value of that type, and every CPU's area has its copy at the same distance.
            unsafe impl $crate::__private::GsBase for $name {
                type Value = $type;

                #[inline(always)]
                fn template_address(&self) -> usize {
                    __PCPU_TEMPLATE.address()
                }

                $crate::__gs_operations! { self, "rip + {var}", var = sym __PCPU_TEMPLATE }
            }

            // SAFETY: the value is the base's, at distance 0.
            unsafe impl $crate::__private::Place for $name {
                type Value = $type;
                type Base = Self;
                type Off = $crate::__private::Bytes<0>;

                #[inline(always)]
                fn base(&self) -> &Self {
                    self
                }
            }
        };
    };
}

/// Puts a variable into the template, with its init record, and names it `__PCPU_TEMPLATE`.
#[doc(hidden)]
#[macro_export]
macro_rules! __template {
    ($type:ty = $value:expr) => {
        // A constant, so that the expression is evaluated anew for the template and for the pristine value.
        #[allow(clippy::declare_interior_mutable_const)]
        const __PCPU_VALUE: $type = $value;

        #[unsafe(link_section = "pcpu_template")]
        static __PCPU_TEMPLATE: $crate::__private::TemplateCell<$type> = $crate::__private::TemplateCell::new(__PCPU_VALUE);

        static __PCPU_PRISTINE: $crate::__private::Pristine<$type> = $crate::__private::Pristine::new(__PCPU_VALUE);

        #[used]
        #[unsafe(link_section = "pcpu_init")]
        static __PCPU_RECORD: $crate::__private::InitRecord = $crate::__private::InitRecord::new(&__PCPU_TEMPLATE, &__PCPU_PRISTINE);
    };
}

/// A field of a per-CPU struct as a [`Var`] of its own: `field!(STATIC, path.to.field)`, or `field!(run_time => Type, path.to.field)`.
///
/// Its operations are single instructions too: the offset becomes part of the address in the instruction.
///
/// ```
/// struct CpuLocal { preempt_depth: u32, ticks: Ticks }
/// struct Ticks { user: u64, system: u64 }
/// pcpu::per_cpu! {
///     static CPU: CpuLocal = CpuLocal { preempt_depth: 0, ticks: Ticks { user: 0, system: 0 } };
/// }
/// pcpu::field!(CPU, preempt_depth).inc();
/// pcpu::field!(CPU, ticks.system).add(10);
/// assert_eq!(pcpu::field!(CPU, ticks.system).sum(), 10);
///
/// // A field can be a variable with fields itself, and so can what a `PerCpuBox` holds.
/// let ticks = pcpu::field!(CPU, ticks);
/// pcpu::field!(ticks => Ticks, user).dec();
/// assert_eq!(pcpu::field!(CPU, ticks.user).get(), u64::MAX);
/// ```
///
/// An expression for the variable is not in an unsafe context:
///
/// ```compile_fail,E0133
/// pcpu::per_cpu! { static PAIR: (u64, u64) = (0, 0); }
/// unsafe fn promise() -> &'static pcpu::Var<PAIR> { &PAIR }
/// pcpu::field!(promise() => (u64, u64), 0).inc();
/// ```
#[macro_export]
macro_rules! field {
    ($variable:path, $($field:tt)+) => {
        $crate::field!($variable => <$variable as $crate::__private::Place>::Value, $($field)+)
    };
    ($variable:expr => $type:ty, $($field:tt)+) => {
        // The user's expression stays outside of the unsafe block.
        match &($variable) {
            // SAFETY: the closure names the field whose offset is taken, so the types agree.
            variable => unsafe {
                (*variable).project::<_, $crate::__private::Bytes<{ ::core::mem::offset_of!($type, $($field)+) }>>(
                    |value: *const $type| &raw const (*value).$($field)+,
                )
            },
        }
    };
}
