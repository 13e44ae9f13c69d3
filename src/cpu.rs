//! CPU numbers: dense ids, the ids of local APICs.

use core::fmt;

use crate::area;

/// The largest number of possible CPUs.
pub const MAX_CPUS: usize = 4096;

/// A possible CPU's dense number, `0..nr_possible`. CPU 0 is the boot CPU.
///
/// Before [`init`](crate::init) only CPU 0 is possible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CpuId(u16);

impl CpuId {
    /// The boot CPU.
    pub const BOOT: CpuId = CpuId(0);

    /// The CPU with that number, if it is possible.
    pub fn new(number: u32) -> Option<CpuId> {
        ((number as usize) < area::nr_possible()).then_some(CpuId(number as u16))
    }

    /// The CPU that executes this: one load through GS. Unless the caller is pinned it may be another one by the time it is used.
    ///
    /// Usable in process, interrupt and NMI context; on the boot CPU from the first instruction, on others after
    /// [`install`](crate::install).
    #[inline(always)]
    pub fn current() -> CpuId {
        let number = area::this_cpu_number();
        debug_assert!(
            number != area::NOT_INSTALLED,
            "this CPU has no per-CPU area: call `pcpu::install` on it first, or use `Machine::run` on a host"
        );
        CpuId(number as u16)
    }

    /// A number that is known to be possible.
    pub(crate) fn from_index(index: usize) -> CpuId {
        debug_assert!(index < area::nr_possible());
        CpuId(index as u16)
    }

    /// The number, as an index.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The number.
    #[inline(always)]
    pub const fn as_u32(self) -> u32 {
        self.0 as u32
    }

    /// All possible CPUs, in order.
    pub fn possible() -> impl ExactSizeIterator<Item = CpuId> + DoubleEndedIterator {
        (0..area::nr_possible() as u16).map(CpuId)
    }
}

impl fmt::Debug for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The local APIC ids of the possible CPUs, in the order of their dense ids.
///
/// ```
/// let map = pcpu::ApicMap::new(&[0, 2, 4, 6])?;
/// assert_eq!(map.index_of(4), Some(2));
/// assert_eq!(map.index_of(5), None);
/// assert_eq!(pcpu::ApicMap::new(&[0, 2, 2]), Err(pcpu::ApicMapError::Duplicate { apic_id: 2 }));
/// # Ok::<(), pcpu::ApicMapError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicMap<'a> {
    apic_ids: &'a [u32],
}

/// Why APIC ids cannot be a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ApicMapError {
    /// No ids at all.
    NoCpus,
    /// More than [`MAX_CPUS`].
    TooManyCpus {
        /// How many there are.
        nr_cpus: usize,
    },
    /// One id twice.
    Duplicate {
        /// That id.
        apic_id: u32,
    },
}

impl fmt::Display for ApicMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApicMapError::NoCpus => f.write_str("no APIC ids"),
            ApicMapError::TooManyCpus { nr_cpus } => write!(f, "{nr_cpus} APIC ids, at most {MAX_CPUS} CPUs are supported"),
            ApicMapError::Duplicate { apic_id } => write!(f, "APIC id {apic_id} stands for two CPUs"),
        }
    }
}

impl core::error::Error for ApicMapError {}

impl<'a> ApicMap<'a> {
    /// A map over ids that the embedder found (in the MADT, say), the boot CPU's first.
    ///
    /// # Errors
    /// No ids, too many, or one twice.
    pub fn new(apic_ids: &'a [u32]) -> Result<Self, ApicMapError> {
        if apic_ids.is_empty() {
            return Err(ApicMapError::NoCpus);
        }
        if apic_ids.len() > MAX_CPUS {
            return Err(ApicMapError::TooManyCpus { nr_cpus: apic_ids.len() });
        }
        for (index, &apic_id) in apic_ids.iter().enumerate() {
            if apic_ids[..index].contains(&apic_id) {
                return Err(ApicMapError::Duplicate { apic_id });
            }
        }
        Ok(ApicMap { apic_ids })
    }

    /// The dense number of the CPU with that APIC id. A linear search: for bring-up.
    pub fn index_of(&self, apic_id: u32) -> Option<usize> {
        self.apic_ids.iter().position(|&id| id == apic_id)
    }

    /// The CPU with that APIC id, if it is in the map and possible.
    pub fn cpu_of(&self, apic_id: u32) -> Option<CpuId> {
        CpuId::new(self.index_of(apic_id)? as u32)
    }

    /// The APIC id of a CPU.
    pub fn apic_id_of(&self, cpu: CpuId) -> Option<u32> {
        self.apic_ids.get(cpu.index()).copied()
    }

    /// How many CPUs the map names.
    pub fn nr_cpus(&self) -> usize {
        self.apic_ids.len()
    }
}
