//! Areas: each possible CPU's copy of the static variables, and the memory behind it for run-time objects.
//!
//! GS base holds a CPU's *delta*: the address of its area minus the template's. So `gs:[address]` with the address of a static (in the
//! template) is this CPU's copy, and while GS base is 0 the boot CPU works in the template itself.
//!
//! # Invariants
//!
//! * `delta(c) = delta(0) + c * stride` for ever after [`init`]; areas never move.
//! * Before `init` there is one possible CPU, with delta 0.
//! * The header of CPU c's area holds c and delta(c) before c can be installed, and never changes. After `init` the template's header
//!   holds [`NOT_INSTALLED`], so that a CPU whose GS base was never loaded is found out.

mod init;
mod layout;
mod record;

use core::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "host")]
pub(crate) use init::leave;
pub use init::{InitError, InstallError, init, install, pcpu_install, uninstall};
pub use layout::{AreaLayout, DEFAULT_UNIT_BYTES, LINE_BYTES, LayoutError};
pub use record::InitRecord;
pub(crate) use record::template;

use crate::cpu::CpuId;

/// What the template's header holds instead of a CPU number after `init`.
pub(crate) const NOT_INSTALLED: u32 = u32::MAX;

/// What each area says of itself. Aligned to a line, and with it the template.
#[repr(C, align(64))]
pub(crate) struct Header {
    cpu: u32,
    installed: bool,
    delta: usize,
}

crate::per_cpu! {
    static HEADER: Header = Header { cpu: 0, installed: false, delta: 0 };
}

/// The areas, as every CPU needs them to find another CPU's copy. Written once, by `init`.
struct Areas {
    nr_possible: AtomicUsize,
    /// How many CPUs a bit of a mask stands for.
    cpus_in_group: AtomicUsize,
    first_delta: AtomicUsize,
    stride_bytes: AtomicUsize,
    unit_bytes: AtomicUsize,
}

static AREAS: Areas = Areas {
    nr_possible: AtomicUsize::new(1),
    cpus_in_group: AtomicUsize::new(1),
    first_delta: AtomicUsize::new(0),
    stride_bytes: AtomicUsize::new(0),
    unit_bytes: AtomicUsize::new(0),
};

/// The number of possible CPUs; 1 before `init`.
#[inline]
pub(crate) fn nr_possible() -> usize {
    // Relaxed: written before any other CPU is started, which orders it.
    AREAS.nr_possible.load(Ordering::Relaxed)
}

/// How many neighbouring CPUs share a bit of a mask.
#[inline]
pub(crate) fn cpus_in_group() -> usize {
    AREAS.cpus_in_group.load(Ordering::Relaxed)
}

/// A CPU's delta.
#[inline]
pub(crate) fn delta(cpu: CpuId) -> usize {
    let stride = AREAS.stride_bytes.load(Ordering::Relaxed);
    AREAS.first_delta.load(Ordering::Relaxed).wrapping_add(cpu.index().wrapping_mul(stride))
}

/// This CPU's delta: one load.
#[inline(always)]
pub(crate) fn this_delta() -> usize {
    crate::field!(HEADER, delta).get()
}

/// This CPU's number, or [`NOT_INSTALLED`]: one load.
#[inline(always)]
pub(crate) fn this_cpu_number() -> u32 {
    crate::field!(HEADER, cpu).get()
}

/// The shape of every chunk; `None` before `init`.
pub(crate) fn layout() -> Option<AreaLayout> {
    let unit_bytes = AREAS.unit_bytes.load(Ordering::Relaxed);
    (unit_bytes > 0).then(|| AreaLayout::from_measures(nr_possible(), unit_bytes, AREAS.stride_bytes.load(Ordering::Relaxed)))
}
