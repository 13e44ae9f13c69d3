//! What an allocation may wait for, and why it failed.

use core::fmt;

bitflags::bitflags! {
    /// What an allocation may wait for. More is tried the more is allowed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct AllocFlags: u8 {
        /// The allocator's short lock. Not in NMI context: the NMI may have interrupted its holder.
        const LOCK = 1;
        /// A call of the memory source for another chunk. Not where the source must not be called, such as in interrupt context.
        const GROW = 1 << 1;
    }
}

impl AllocFlags {
    /// Waits for nothing.
    pub const NMI: AllocFlags = AllocFlags::empty();
    /// Waits for the lock, but calls no source.
    pub const INTERRUPT: AllocFlags = AllocFlags::LOCK;
    /// Does everything it can.
    pub const PROCESS: AllocFlags = AllocFlags::all();
}

impl Default for AllocFlags {
    fn default() -> Self {
        AllocFlags::PROCESS
    }
}

/// Why nothing was allocated. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum AllocError {
    /// [`init`](crate::init) did not run yet.
    NotInitialised,
    /// An object of no bytes.
    ZeroSize,
    /// The object is larger than a unit.
    TooLarge {
        /// The object, in bytes; `usize::MAX` if its size overflowed.
        size_bytes: usize,
        /// The largest object, in bytes.
        max_bytes: usize,
    },
    /// The alignment is not a power of two.
    AlignNotPowerOfTwo {
        /// The alignment asked for, in bytes.
        align_bytes: usize,
    },
    /// The stride is not a multiple of the alignment, so the copies of other CPUs would not have it.
    AlignTooLarge {
        /// The alignment asked for, in bytes.
        align_bytes: usize,
        /// The largest alignment, in bytes.
        max_bytes: usize,
    },
    /// No chunk has room, and the flags forbid to ask the source for another one.
    ChunksFull,
    /// No chunk has room, and there is no memory source.
    NoSource,
    /// No chunk has room, and the memory source has no memory.
    SourceExhausted {
        /// What it was asked for, in bytes.
        chunk_bytes: usize,
    },
    /// The global heap, which holds what all CPUs share of a [`CounterVec`](crate::CounterVec), has no memory.
    HeapExhausted,
    /// The flags forbid to wait for the lock, and somebody holds it.
    WouldWait,
    /// A magazine does not hold so many objects.
    PrefillTooLong {
        /// How many were asked for.
        nr: usize,
        /// The most that a magazine holds.
        max: usize,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocError::NotInitialised => f.write_str("per-CPU areas are not initialised"),
            AllocError::ZeroSize => f.write_str("an object of no bytes"),
            AllocError::TooLarge { size_bytes, max_bytes } => {
                write!(f, "an object of {size_bytes} B, the largest that fits a unit is {max_bytes} B")
            }
            AllocError::AlignNotPowerOfTwo { align_bytes } => write!(f, "an alignment of {align_bytes} B is not a power of two"),
            AllocError::AlignTooLarge { align_bytes, max_bytes } => {
                write!(f, "an alignment of {align_bytes} B, all CPUs' copies are aligned to at most {max_bytes} B")
            }
            AllocError::ChunksFull => f.write_str("all chunks are full, and the flags forbid to add one"),
            AllocError::NoSource => f.write_str("all chunks are full, and there is no memory source"),
            AllocError::SourceExhausted { chunk_bytes } => {
                write!(f, "all chunks are full, and the memory source has no {chunk_bytes} B for another one")
            }
            AllocError::PrefillTooLong { nr, max } => write!(f, "a stock of {nr} objects, a CPU keeps at most {max} of up to 2048 B"),
            AllocError::HeapExhausted => f.write_str("the global heap has no memory"),
            AllocError::WouldWait => f.write_str("the allocator is locked, and the flags forbid to wait"),
        }
    }
}

impl core::error::Error for AllocError {}
