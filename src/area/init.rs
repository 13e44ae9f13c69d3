//! Bring-up: building the areas on the boot CPU, and loading GS base on each CPU.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use super::layout::AreaLayout;
use super::record::{Template, template};
use super::{AREAS, HEADER, Header, NOT_INSTALLED};
use crate::arch;
use crate::cpu::CpuId;
use crate::cpu_mask;

/// Set when `init` begins to write; never cleared.
static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Why the areas were not built. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InitError {
    /// `init` ran before.
    AlreadyInitialised,
    /// The memory is smaller than the layout's `size_bytes`.
    TooSmall {
        /// What was given, in bytes.
        given_bytes: usize,
        /// What is needed, in bytes.
        needed_bytes: usize,
    },
    /// The memory does not begin at a multiple of the layout's `align_bytes`.
    Misaligned {
        /// What is needed, in bytes.
        align_bytes: usize,
    },
    /// The memory wraps around the end of the address space.
    Wraps,
    /// The memory overlaps the template.
    OverlapsTemplate,
    /// The layout was made for an image with other static variables.
    LayoutMismatch,
    /// A CPU's delta is not a canonical address, so GS base cannot hold it: the memory is too far from the image.
    NonCanonicalDelta {
        /// The delta.
        delta: usize,
    },
    /// Interrupts are on.
    InterruptsOn,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitError::AlreadyInitialised => f.write_str("per-CPU areas are initialised already"),
            InitError::TooSmall { given_bytes, needed_bytes } => {
                write!(f, "{given_bytes} B of memory for per-CPU areas, {needed_bytes} B are needed")
            }
            InitError::Misaligned { align_bytes } => write!(f, "memory for per-CPU areas must be aligned to {align_bytes} B"),
            InitError::Wraps => f.write_str("memory for per-CPU areas wraps around the end of the address space"),
            InitError::OverlapsTemplate => f.write_str("memory for per-CPU areas overlaps the template"),
            InitError::LayoutMismatch => f.write_str("the layout does not fit this image's static per-CPU variables"),
            InitError::NonCanonicalDelta { delta } => {
                write!(f, "memory for per-CPU areas is too far from the image: GS base cannot hold {delta:#x}")
            }
            InitError::InterruptsOn => f.write_str("interrupts must be off"),
        }
    }
}

impl core::error::Error for InitError {}

/// Why a CPU was not installed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
#[repr(u32)]
pub enum InstallError {
    /// [`init`] did not run yet.
    NotInitialised = 1,
    /// No area was laid out for that CPU.
    UnknownCpu = 2,
    /// That CPU is installed already.
    AlreadyInstalled = 3,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstallError::NotInitialised => "per-CPU areas are not initialised",
            InstallError::UnknownCpu => "no per-CPU area was laid out for that CPU",
            InstallError::AlreadyInstalled => "that CPU is installed already",
        })
    }
}

impl core::error::Error for InstallError {}

/// Builds every possible CPU's area in `memory` and installs the boot CPU, CPU 0, which executes this.
///
/// The boot CPU's area is a copy of the live template: what it counted so far is kept. The other areas hold the values written in the
/// source. All arguments are checked before the first write.
///
/// Cost: O(possible CPUs x bytes of static variables). Context: the boot CPU, once, before other CPUs are started.
///
/// # Errors
/// See [`InitError`]; nothing changed.
///
/// # Safety
///
/// * `memory..memory + size_bytes` is mapped, writable, used by nobody else, and stays so for ever.
/// * The caller is the boot CPU; no other CPU runs; interrupts are off; no NMI handler uses per-CPU variables until this returns.
/// * No reference into the template is live, and no address in it is registered anywhere (a TSS, a stack, a list head): the
///   boot CPU's copies move.
/// * GS base belongs to this crate from now on: nothing else loads it or a GS selector on any CPU, but for what `swapgs` undoes.
/// * From now on a CPU executes no safe function of this crate before it is [installed](install).
/// * Code that runs in an NMI or in another exception that interrupt masking does not hold off uses words and `Sync` values only.
pub unsafe fn init(memory: NonNull<u8>, size_bytes: usize, layout: &AreaLayout) -> Result<(), InitError> {
    let template = template();
    let first_delta = check(memory, size_bytes, layout, &template)?;
    if INITIALISED.swap(true, Ordering::AcqRel) {
        return Err(InitError::AlreadyInitialised);
    }

    let base = memory.as_ptr();
    // Other CPUs' copies are reached by addresses computed in template space.
    base.expose_provenance();
    for index in 0..layout.nr_cpus() {
        // SAFETY: `check` found room for this many strides, and the memory is ours alone.
        unsafe {
            let area = base.add(index * layout.stride_bytes());
            area.write_bytes(0, layout.stride_bytes());
            if index == 0 {
                area.copy_from_nonoverlapping(core::ptr::with_exposed_provenance(template.start), template.size_bytes);
            } else {
                for record in template.records {
                    let (pristine, bytes) = record.pristine();
                    area.add(record.offset(&template)).copy_from_nonoverlapping(pristine, bytes);
                }
            }
            let header = area.add(HEADER.template_address() - template.start).cast::<Header>();
            let delta = first_delta.wrapping_add(index * layout.stride_bytes());
            header.write(Header { cpu: index as u32, installed: index == 0, delta });
        }
    }

    AREAS.first_delta.store(first_delta, Ordering::Relaxed);
    AREAS.stride_bytes.store(layout.stride_bytes(), Ordering::Relaxed);
    AREAS.unit_bytes.store(layout.unit_bytes(), Ordering::Relaxed);
    AREAS.cpus_in_group.store(cpu_mask::cpus_in_group(layout.nr_cpus()), Ordering::Relaxed);
    AREAS.nr_possible.store(layout.nr_cpus(), Ordering::Release);
    crate::alloc::adopt_first_chunk(memory, layout, template.start, template.size_bytes);
    // The template's header is only read from here on, by CPUs that forgot to install themselves.
    crate::field!(HEADER, cpu).set(NOT_INSTALLED);
    // SAFETY: checked to be canonical; the area is complete, and the caller hands GS over.
    unsafe { arch::set_gs_base(first_delta) };
    Ok(())
}

/// Everything that can be wrong with the arguments; returns CPU 0's delta.
fn check(memory: NonNull<u8>, size_bytes: usize, layout: &AreaLayout, template: &Template) -> Result<usize, InitError> {
    if INITIALISED.load(Ordering::Acquire) {
        return Err(InitError::AlreadyInitialised);
    }
    if arch::irqs_are_on() {
        return Err(InitError::InterruptsOn);
    }
    let start = memory.as_ptr() as usize;
    if size_bytes < layout.size_bytes() {
        return Err(InitError::TooSmall { given_bytes: size_bytes, needed_bytes: layout.size_bytes() });
    }
    if !start.is_multiple_of(layout.align_bytes()) {
        return Err(InitError::Misaligned { align_bytes: layout.align_bytes() });
    }
    let end = start.checked_add(layout.size_bytes()).ok_or(InitError::Wraps)?;
    if start < template.start + template.size_bytes && template.start < end {
        return Err(InitError::OverlapsTemplate);
    }
    if layout.unit_bytes() < template.size_bytes || layout.align_bytes() < template.align_bytes {
        return Err(InitError::LayoutMismatch);
    }
    let first = start.wrapping_sub(template.start);
    let address_bits = arch::virtual_address_bits();
    // Deltas ascend from CPU to CPU by less than the canonical hole, but may step over its edge.
    for index in 0..layout.nr_cpus() {
        let delta = first.wrapping_add(index * layout.stride_bytes());
        if !is_canonical(delta, address_bits) {
            return Err(InitError::NonCanonicalDelta { delta });
        }
    }
    Ok(first)
}

/// Whether the bits above the address width repeat its topmost bit.
fn is_canonical(address: usize, address_bits: u32) -> bool {
    let unused = usize::BITS - address_bits;
    ((address << unused) as isize >> unused) as usize == address
}

/// Loads GS base with `cpu`'s delta, so that this CPU becomes `cpu`.
///
/// The boot CPU is installed by [`init`]. Cost: a few instructions. Context: each other CPU once, early, after its GDT and selectors are
/// loaded (loading a null selector clears GS base on Intel's processors) and before it touches per-CPU data.
///
/// # Errors
/// See [`InstallError`]; nothing changed.
///
/// # Safety
///
/// The executing CPU is `cpu` from now on, and no other CPU is. Interrupts are off.
pub unsafe fn install(cpu: CpuId) -> Result<(), InstallError> {
    if !INITIALISED.load(Ordering::Acquire) {
        return Err(InstallError::NotInitialised);
    }
    let header = HEADER.ptr_on(cpu);
    // SAFETY: the header of a possible CPU lies in its area, which is complete; `installed` is accessed atomically.
    let installed = unsafe { AtomicBool::from_ptr(&raw mut (*header).installed) };
    if installed.swap(true, Ordering::AcqRel) {
        return Err(InstallError::AlreadyInstalled);
    }
    // SAFETY: `init` checked every possible CPU's delta; the caller is that CPU.
    unsafe { arch::set_gs_base(super::delta(cpu)) };
    Ok(())
}

/// [`install`] for assembly: the CPU's number in `edi`, 0 or an [`InstallError`]'s number in `eax`. C's calling convention: wants a
/// stack and leaves rbx, rbp and r12 to r15 alone.
///
/// # Safety
///
/// As for [`install`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcpu_install(cpu: u32) -> u32 {
    if !INITIALISED.load(Ordering::Acquire) {
        return InstallError::NotInitialised as u32;
    }
    let Some(cpu) = CpuId::new(cpu) else {
        return InstallError::UnknownCpu as u32;
    };
    // SAFETY: the caller's promise.
    match unsafe { install(cpu) } {
        Ok(()) => 0,
        Err(error) => error as u32,
    }
}

/// Lets a CPU that went offline be [installed](install) again, with what its area holds: after an unplug, or a sleep in which it lost
/// its registers. Its magazines may have been [drained](crate::alloc::drain_offline_cpu) meanwhile.
///
/// # Safety
///
/// `cpu` executes nothing, not even NMIs, until it is installed again.
pub unsafe fn uninstall(cpu: CpuId) {
    // SAFETY: as in `install`.
    unsafe { AtomicBool::from_ptr(&raw mut (*HEADER.ptr_on(cpu)).installed) }.store(false, Ordering::Release);
}

/// Ends this thread's time as `cpu`.
#[cfg(feature = "host")]
pub(crate) fn leave(cpu: CpuId) {
    // SAFETY: this thread touches no per-CPU data after this, and works in the template if it does; so it is that CPU no more.
    unsafe {
        arch::set_gs_base(0);
        uninstall(cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::is_canonical;

    #[test]
    fn canonical_addresses_repeat_the_topmost_bit() {
        for (address, bits, canonical) in [
            (0, 48, true),
            (0x7fff_ffff_ffff, 48, true),
            (0x8000_0000_0000, 48, false),
            (0xffff_7fff_ffff_ffff, 48, false),
            (0xffff_8000_0000_0000, 48, true),
            (usize::MAX, 48, true),
            (0x8000_0000_0000, 57, true),
            (0x0100_0000_0000_0000, 57, false),
            (0xff00_0000_0000_0000, 57, true),
        ] {
            assert_eq!(is_canonical(address, bits), canonical, "{address:#x} with {bits} bits");
        }
    }
}
