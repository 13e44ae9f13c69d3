//! Single-instruction operations through GS.

use crate::word::Word;

/// A distance that is known when the code is compiled, so that it becomes part of the instruction.
pub trait Offset {
    /// Bytes.
    const BYTES: usize;
}

/// `N` bytes.
#[derive(Debug)]
pub enum Bytes<const N: usize> {}

impl<const N: usize> Offset for Bytes<N> {
    const BYTES: usize = N;
}

/// A base address in template space with the operations on words at a constant offset from it, each one memory-touching instruction.
///
/// Implemented for every static per-CPU variable by [`per_cpu!`](crate::per_cpu), and for run-time handles.
///
/// # Safety
///
/// For an implementor: `template_address` is the address, in template space, of a `Value` that exists on every possible CPU for as
/// long as the implementor is borrowed, and every operation acts on this CPU's copy of it.
///
/// For a caller of an operation: a `W` lies at `O::BYTES` bytes into `Value`, and it is accessed in no other way than by same-size
/// atomics or these operations while the call runs.
pub unsafe trait GsBase {
    /// The type of the per-CPU variable.
    type Value;

    /// The variable's address in template space; this CPU's copy lies GS base further.
    fn template_address(&self) -> usize;

    /// One `mov` from this CPU's copy.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn load<W: Word, O: Offset>(&self) -> W;

    /// One `mov` to this CPU's copy.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn store<W: Word, O: Offset>(&self, value: W);

    /// One `xchg`, which locks the bus line by itself; returns the former value.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn swap<W: Word, O: Offset>(&self, value: W) -> W;

    /// One unlocked `cmpxchg`; returns the value found, which equals `current` iff `new` was stored.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn compare_exchange<W: Word, O: Offset>(&self, current: W, new: W) -> W;

    /// One unlocked `xadd`; returns the former value.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn fetch_add<W: Word, O: Offset>(&self, value: W) -> W;

    /// One `add`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn add<W: Word, O: Offset>(&self, value: W);

    /// One `sub`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn sub<W: Word, O: Offset>(&self, value: W);

    /// One `and`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn and<W: Word, O: Offset>(&self, value: W);

    /// One `or`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn or<W: Word, O: Offset>(&self, value: W);

    /// One `xor`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn xor<W: Word, O: Offset>(&self, value: W);

    /// One `inc`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn inc<W: Word, O: Offset>(&self);

    /// One `dec`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn dec<W: Word, O: Offset>(&self);
}

/// Writes the operations of [`GsBase`] for a memory operand: `__gs_operations!(self, "rip + {var}", var = sym VAR)`.
///
/// The operand is a parameter because a static's is relative to RIP, without a register, and a handle's is a register.
#[doc(hidden)]
#[macro_export]
macro_rules! __gs_operations {
    ($self:ident, $mem:literal, $($operand:tt)*) => {
        #[inline(always)]
        unsafe fn load<W: $crate::Word, O: $crate::__private::Offset>(&$self) -> W {
            let bits: u64;
            // SAFETY: the caller promises a `W` at `O::BYTES`; one load of its size.
            unsafe {
                match ::core::mem::size_of::<W>() {
                    1 => {
                        let narrow: u32;
                        ::core::arch::asm!(concat!("movzx {value:e}, byte ptr gs:[", $mem, " + {off}]"),
                            value = lateout(reg) narrow, off = const O::BYTES, $($operand)*, options(nostack, preserves_flags));
                        bits = narrow as u64;
                    }
                    2 => {
                        let narrow: u32;
                        ::core::arch::asm!(concat!("movzx {value:e}, word ptr gs:[", $mem, " + {off}]"),
                            value = lateout(reg) narrow, off = const O::BYTES, $($operand)*, options(nostack, preserves_flags));
                        bits = narrow as u64;
                    }
                    4 => {
                        let narrow: u32;
                        ::core::arch::asm!(concat!("mov {value:e}, dword ptr gs:[", $mem, " + {off}]"),
                            value = lateout(reg) narrow, off = const O::BYTES, $($operand)*, options(nostack, preserves_flags));
                        bits = narrow as u64;
                    }
                    _ => ::core::arch::asm!(concat!("mov {value:r}, qword ptr gs:[", $mem, " + {off}]"),
                            value = lateout(reg) bits, off = const O::BYTES, $($operand)*, options(nostack, preserves_flags)),
                }
                W::from_bits(bits)
            }
        }

        #[inline(always)]
        unsafe fn store<W: $crate::Word, O: $crate::__private::Offset>(&$self, value: W) {
            let bits = value.to_bits();
            // SAFETY: the caller promises a `W` at `O::BYTES`; one store of its size.
            unsafe {
                match ::core::mem::size_of::<W>() {
                    1 => ::core::arch::asm!(concat!("mov byte ptr gs:[", $mem, " + {off}], {value}"),
                            value = in(reg_byte) bits as u8, off = const O::BYTES, $($operand)*, options(nostack, preserves_flags)),
                    2 => ::core::arch::asm!(concat!("mov word ptr gs:[", $mem, " + {off}], {value:x}"),
                            value = in(reg) bits as u16, off = const O::BYTES, $($operand)*, options(nostack, preserves_flags)),
                    4 => ::core::arch::asm!(concat!("mov dword ptr gs:[", $mem, " + {off}], {value:e}"),
                            value = in(reg) bits as u32, off = const O::BYTES, $($operand)*, options(nostack, preserves_flags)),
                    _ => ::core::arch::asm!(concat!("mov qword ptr gs:[", $mem, " + {off}], {value:r}"),
                            value = in(reg) bits, off = const O::BYTES, $($operand)*, options(nostack, preserves_flags)),
                }
            }
        }

        #[inline(always)]
        unsafe fn compare_exchange<W: $crate::Word, O: $crate::__private::Offset>(&$self, current: W, new: W) -> W {
            let (old, new) = (current.to_bits(), new.to_bits());
            // SAFETY: the caller promises a `W` at `O::BYTES`; one compare-exchange of its size.
            unsafe {
                W::from_bits(match ::core::mem::size_of::<W>() {
                    1 => {
                        let mut found = old as u8;
                        ::core::arch::asm!(concat!("cmpxchg byte ptr gs:[", $mem, " + {off}], {new}"),
                            new = in(reg_byte) new as u8, inout("al") found, off = const O::BYTES, $($operand)*, options(nostack));
                        found as u64
                    }
                    2 => {
                        let mut found = old as u16;
                        ::core::arch::asm!(concat!("cmpxchg word ptr gs:[", $mem, " + {off}], {new:x}"),
                            new = in(reg) new as u16, inout("ax") found, off = const O::BYTES, $($operand)*, options(nostack));
                        found as u64
                    }
                    4 => {
                        let mut found = old as u32;
                        ::core::arch::asm!(concat!("cmpxchg dword ptr gs:[", $mem, " + {off}], {new:e}"),
                            new = in(reg) new as u32, inout("eax") found, off = const O::BYTES, $($operand)*, options(nostack));
                        found as u64
                    }
                    _ => {
                        let mut found = old;
                        ::core::arch::asm!(concat!("cmpxchg qword ptr gs:[", $mem, " + {off}], {new:r}"),
                            new = in(reg) new, inout("rax") found, off = const O::BYTES, $($operand)*, options(nostack));
                        found
                    }
                })
            }
        }

        $crate::__gs_operations! { @exchanges "xchg", swap, $self, $mem, $($operand)* }
        $crate::__gs_operations! { @exchanges "xadd", fetch_add, $self, $mem, $($operand)* }
        $crate::__gs_operations! { @combines "add", add, $self, $mem, $($operand)* }
        $crate::__gs_operations! { @combines "sub", sub, $self, $mem, $($operand)* }
        $crate::__gs_operations! { @combines "and", and, $self, $mem, $($operand)* }
        $crate::__gs_operations! { @combines "or", or, $self, $mem, $($operand)* }
        $crate::__gs_operations! { @combines "xor", xor, $self, $mem, $($operand)* }
        $crate::__gs_operations! { @steps "inc", inc, $self, $mem, $($operand)* }
        $crate::__gs_operations! { @steps "dec", dec, $self, $mem, $($operand)* }
    };

    (@exchanges $instruction:literal, $name:ident, $self:ident, $mem:literal, $($operand:tt)*) => {
        #[inline(always)]
        unsafe fn $name<W: $crate::Word, O: $crate::__private::Offset>(&$self, value: W) -> W {
            let bits = value.to_bits();
            // SAFETY: the caller promises a `W` at `O::BYTES`; one read-modify-write of its size.
            unsafe {
                W::from_bits(match ::core::mem::size_of::<W>() {
                    1 => {
                        let mut value = bits as u8;
                        ::core::arch::asm!(concat!($instruction, " byte ptr gs:[", $mem, " + {off}], {value}"),
                            value = inout(reg_byte) value, off = const O::BYTES, $($operand)*, options(nostack));
                        value as u64
                    }
                    2 => {
                        let mut value = bits as u16;
                        ::core::arch::asm!(concat!($instruction, " word ptr gs:[", $mem, " + {off}], {value:x}"),
                            value = inout(reg) value, off = const O::BYTES, $($operand)*, options(nostack));
                        value as u64
                    }
                    4 => {
                        let mut value = bits as u32;
                        ::core::arch::asm!(concat!($instruction, " dword ptr gs:[", $mem, " + {off}], {value:e}"),
                            value = inout(reg) value, off = const O::BYTES, $($operand)*, options(nostack));
                        value as u64
                    }
                    _ => {
                        let mut value = bits;
                        ::core::arch::asm!(concat!($instruction, " qword ptr gs:[", $mem, " + {off}], {value:r}"),
                            value = inout(reg) value, off = const O::BYTES, $($operand)*, options(nostack));
                        value
                    }
                })
            }
        }
    };

    (@combines $instruction:literal, $name:ident, $self:ident, $mem:literal, $($operand:tt)*) => {
        #[inline(always)]
        unsafe fn $name<W: $crate::Word, O: $crate::__private::Offset>(&$self, value: W) {
            let bits = value.to_bits();
            // SAFETY: the caller promises a `W` at `O::BYTES`; one read-modify-write of its size.
            unsafe {
                match ::core::mem::size_of::<W>() {
                    1 => ::core::arch::asm!(concat!($instruction, " byte ptr gs:[", $mem, " + {off}], {value}"),
                            value = in(reg_byte) bits as u8, off = const O::BYTES, $($operand)*, options(nostack)),
                    2 => ::core::arch::asm!(concat!($instruction, " word ptr gs:[", $mem, " + {off}], {value:x}"),
                            value = in(reg) bits as u16, off = const O::BYTES, $($operand)*, options(nostack)),
                    4 => ::core::arch::asm!(concat!($instruction, " dword ptr gs:[", $mem, " + {off}], {value:e}"),
                            value = in(reg) bits as u32, off = const O::BYTES, $($operand)*, options(nostack)),
                    _ => ::core::arch::asm!(concat!($instruction, " qword ptr gs:[", $mem, " + {off}], {value:r}"),
                            value = in(reg) bits, off = const O::BYTES, $($operand)*, options(nostack)),
                }
            }
        }
    };

    (@steps $instruction:literal, $name:ident, $self:ident, $mem:literal, $($operand:tt)*) => {
        #[inline(always)]
        unsafe fn $name<W: $crate::Word, O: $crate::__private::Offset>(&$self) {
            // SAFETY: the caller promises a `W` at `O::BYTES`; one read-modify-write of its size.
            unsafe {
                match ::core::mem::size_of::<W>() {
                    1 => ::core::arch::asm!(concat!($instruction, " byte ptr gs:[", $mem, " + {off}]"),
                            off = const O::BYTES, $($operand)*, options(nostack)),
                    2 => ::core::arch::asm!(concat!($instruction, " word ptr gs:[", $mem, " + {off}]"),
                            off = const O::BYTES, $($operand)*, options(nostack)),
                    4 => ::core::arch::asm!(concat!($instruction, " dword ptr gs:[", $mem, " + {off}]"),
                            off = const O::BYTES, $($operand)*, options(nostack)),
                    _ => ::core::arch::asm!(concat!($instruction, " qword ptr gs:[", $mem, " + {off}]"),
                            off = const O::BYTES, $($operand)*, options(nostack)),
                }
            }
        }
    };
}
