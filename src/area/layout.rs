//! How per-CPU memory is laid out: arithmetic only.

use core::fmt;

use crate::cpu::MAX_CPUS;

/// A cache line, and the alignment that every unit has.
pub const LINE_BYTES: usize = 64;

/// The unit if the embedder does not ask for another one, in bytes: room for the static variables and the first run-time objects of one CPU.
///
/// It is also the largest object there can be, and each further chunk takes that much for every possible CPU.
pub const DEFAULT_UNIT_BYTES: usize = 32 << 10;

/// The largest unit: keeps `4096 * stride` far from overflow.
const MAX_UNIT_BYTES: usize = 1 << 30;

/// The shape of every chunk: as many units as there are possible CPUs, at one stride.
///
/// A *unit* is one CPU's part of a chunk; the *stride* is the distance from one CPU's unit to the next one's, the same for every chunk.
/// The stride is the unit and a line of colour: with a power of two, one object's copies on all CPUs would fall into one cache set, and a
/// sum over more than eight CPUs would evict itself.
///
/// ```
/// let layout = pcpu::AreaLayout::new(4, 32 << 10)?;
/// assert_eq!(layout.stride_bytes(), (32 << 10) + 64);
/// assert!(layout.size_bytes() >= 4 * layout.stride_bytes());
/// # Ok::<(), pcpu::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AreaLayout {
    nr_cpus: usize,
    unit_bytes: usize,
    align_bytes: usize,
}

/// Why there is no such layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LayoutError {
    /// A machine without CPUs.
    NoCpus,
    /// More than [`MAX_CPUS`](crate::MAX_CPUS).
    TooManyCpus {
        /// How many were asked for.
        nr_cpus: usize,
    },
    /// The static per-CPU variables do not fit into the unit, or the unit is empty.
    UnitTooSmall {
        /// The unit asked for, in bytes.
        unit_bytes: usize,
        /// What the static variables need, in bytes.
        static_bytes: usize,
    },
    /// The unit is larger than 1 GiB.
    UnitTooLarge {
        /// The unit asked for, in bytes.
        unit_bytes: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::NoCpus => f.write_str("no CPUs"),
            LayoutError::TooManyCpus { nr_cpus } => write!(f, "{nr_cpus} CPUs, at most {MAX_CPUS} are supported"),
            LayoutError::UnitTooSmall { unit_bytes, static_bytes } => {
                write!(f, "a unit of {unit_bytes} B cannot hold {static_bytes} B of static per-CPU variables")
            }
            LayoutError::UnitTooLarge { unit_bytes } => write!(f, "a unit of {unit_bytes} B, at most 1 GiB is supported"),
        }
    }
}

impl core::error::Error for LayoutError {}

impl AreaLayout {
    /// The layout for that many possible CPUs and a unit of at least `unit_bytes`, for the static per-CPU variables of this image.
    ///
    /// # Errors
    /// No CPUs or too many; a unit that cannot hold the static variables, or is absurd.
    pub fn new(nr_cpus: usize, unit_bytes: usize) -> Result<Self, LayoutError> {
        let template = super::template();
        Self::for_statics(nr_cpus, unit_bytes, template.size_bytes, template.align_bytes)
    }

    /// The same for static variables of that size, whose largest alignment is `align_bytes` (a power of two).
    pub(crate) fn for_statics(nr_cpus: usize, unit_bytes: usize, static_bytes: usize, align_bytes: usize) -> Result<Self, LayoutError> {
        if nr_cpus == 0 {
            return Err(LayoutError::NoCpus);
        }
        if nr_cpus > MAX_CPUS {
            return Err(LayoutError::TooManyCpus { nr_cpus });
        }
        if unit_bytes > MAX_UNIT_BYTES {
            return Err(LayoutError::UnitTooLarge { unit_bytes });
        }
        if unit_bytes == 0 || unit_bytes < static_bytes {
            return Err(LayoutError::UnitTooSmall { unit_bytes, static_bytes });
        }
        let align_bytes = align_bytes.max(LINE_BYTES);
        Ok(AreaLayout { nr_cpus, unit_bytes: unit_bytes.next_multiple_of(align_bytes), align_bytes })
    }

    /// The layout that has these measures.
    pub(super) const fn from_measures(nr_cpus: usize, unit_bytes: usize, stride_bytes: usize) -> Self {
        AreaLayout { nr_cpus, unit_bytes, align_bytes: stride_bytes - unit_bytes }
    }

    /// The number of possible CPUs.
    pub const fn nr_cpus(&self) -> usize {
        self.nr_cpus
    }

    /// One CPU's part of a chunk, in bytes, without the colour.
    pub const fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// From one CPU's unit to the next one's, in bytes.
    pub const fn stride_bytes(&self) -> usize {
        self.unit_bytes + self.align_bytes
    }

    /// The memory that a chunk takes, in bytes: all units, and behind them what the allocator writes down about them.
    pub const fn size_bytes(&self) -> usize {
        self.units_bytes() + crate::alloc::metadata_bytes(self.unit_bytes)
    }

    /// The memory that the units of a chunk take, in bytes.
    pub(crate) const fn units_bytes(&self) -> usize {
        self.nr_cpus * self.stride_bytes()
    }

    /// Whose unit the byte at that distance from a chunk's start belongs to, for memory sources that place each CPU's unit near to it.
    /// `None` behind the units.
    pub const fn cpu_index_at(&self, offset_bytes: usize) -> Option<usize> {
        let index = offset_bytes / self.stride_bytes();
        if index < self.nr_cpus { Some(index) } else { None }
    }

    /// The alignment that a chunk needs, in bytes: a line, or that of the most aligned static variable. The largest that run-time
    /// objects can have.
    pub const fn align_bytes(&self) -> usize {
        self.align_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stride_is_a_multiple_of_the_alignment_and_not_of_a_page() {
        for nr_cpus in [1, 2, 3, 64, 255, 4096] {
            for unit_bytes in [1, 63, 64, 4096, 32 << 10, 1 << 30] {
                let layout = AreaLayout::for_statics(nr_cpus, unit_bytes, 0, 8).unwrap();
                assert_eq!(layout.stride_bytes() % layout.align_bytes(), 0);
                assert_eq!(layout.align_bytes(), LINE_BYTES);
                assert!(layout.unit_bytes() >= unit_bytes && layout.unit_bytes() < unit_bytes + LINE_BYTES);
                assert_eq!(layout.units_bytes() / nr_cpus, layout.stride_bytes());
                assert!(layout.size_bytes() > layout.units_bytes());
                assert_eq!(layout.cpu_index_at(layout.units_bytes() - 1), Some(nr_cpus - 1));
                assert_eq!(layout.cpu_index_at(layout.units_bytes()), None);
                assert!(!unit_bytes.is_multiple_of(4096) || !layout.stride_bytes().is_multiple_of(4096));
            }
        }
    }

    #[test]
    fn a_page_aligned_static_aligns_every_unit() {
        let layout = AreaLayout::for_statics(8, 10_000, 9_000, 4096).unwrap();
        assert_eq!(layout.align_bytes(), 4096);
        assert_eq!(layout.stride_bytes() % 4096, 0);
    }

    #[test]
    fn bad_input_is_a_named_error() {
        let new = |nr_cpus, unit_bytes| AreaLayout::for_statics(nr_cpus, unit_bytes, 1000, 64);
        assert_eq!(new(0, 4096), Err(LayoutError::NoCpus));
        assert_eq!(new(4097, 4096), Err(LayoutError::TooManyCpus { nr_cpus: 4097 }));
        assert_eq!(new(usize::MAX, 4096), Err(LayoutError::TooManyCpus { nr_cpus: usize::MAX }));
        assert_eq!(new(1, 0), Err(LayoutError::UnitTooSmall { unit_bytes: 0, static_bytes: 1000 }));
        assert_eq!(new(1, 999), Err(LayoutError::UnitTooSmall { unit_bytes: 999, static_bytes: 1000 }));
        assert_eq!(new(1, usize::MAX), Err(LayoutError::UnitTooLarge { unit_bytes: usize::MAX }));
        assert!(new(4096, 1 << 30).is_ok());
    }
}
