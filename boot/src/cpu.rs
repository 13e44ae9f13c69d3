//! Which CPU this is, and what each CPU turns on for itself.

use core::arch::x86_64::__cpuid_count;

use x86_64::registers::{
    control::{Cr4, Cr4Flags},
    model_specific::GsBase,
};

const FEATURES_LEAF: u32 = 7;
const FSGSBASE_IN_EBX: u32 = 1 << 0;

/// This CPU's dense number, 0 as long as it has no per-CPU area: for the log and the panic handler, which must work at any time.
pub(crate) fn number() -> u32 {
    // `pcpu::CpuId::current` may be asked only on a CPU with an area; without one, GS base is 0.
    if GsBase::read().is_null() { 0 } else { pcpu::CpuId::current().as_u32() }
}

/// Turns on `wrgsbase` and its like where the processor has them.
pub(crate) fn enable_features() {
    if __cpuid_count(FEATURES_LEAF, 0).ebx & FSGSBASE_IN_EBX != 0 {
        // SAFETY: the processor has the feature; it takes nothing away.
        unsafe { Cr4::update(|flags| *flags |= Cr4Flags::FSGSBASE) };
    }
}
