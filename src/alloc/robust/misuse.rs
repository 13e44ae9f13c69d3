//! What can be wrong with an allocation or a free, in words.

use core::fmt;
use core::num::NonZeroUsize;

use super::Site;
use crate::cpu::CpuId;

/// An allocation or a free.
#[derive(Clone, Copy)]
pub(in crate::alloc) struct Call {
    pub(super) kind: CallKind,
    pub(super) handle: NonZeroUsize,
    pub(super) size_bytes: usize,
    pub(super) align_bytes: usize,
    pub(super) site: Site,
}

#[derive(Clone, Copy)]
pub(in crate::alloc) enum CallKind {
    Allocate,
    Free,
    /// Of an object that is zero already, by the caller's promise.
    FreeClean,
}

impl Call {
    pub(super) fn misuse(self, allocated_at: Option<Site>, fault: Fault) -> Misuse {
        Misuse { call: self, allocated_at, fault }
    }
}

/// A use of the allocator that its contract forbids.
pub(super) struct Misuse {
    call: Call,
    /// Where the object was last allocated. A free in a destructor says little of whose object it was.
    allocated_at: Option<Site>,
    fault: Fault,
}

pub(super) enum Fault {
    /// What is freed was never allocated.
    Foreign,
    /// What is freed is free.
    DoubleFree { freed_at: Site },
    /// It was allocated with another size.
    WrongSize { allocated_bytes: usize },
    /// It was allocated with another alignment, so it is an object of another class.
    WrongAlign,
    /// What is between it and the next object is not zero.
    Overrun { cpu: CpuId, offset_bytes: usize },
    /// It was freed as clean, and is not zero.
    FreedDirty { cpu: CpuId, offset_bytes: usize },
    /// What is handed out is not zero.
    WrittenAfterFree { cpu: CpuId, offset_bytes: usize, freed_at: Option<Site> },
    /// What is handed out is in use.
    HandedOutTwice,
    /// What is handed out is no object of that size.
    Stray,
}

impl Misuse {
    pub(super) fn call(&self) -> Call {
        self.call
    }

    /// Ends what cannot go on. Not under the lock: a panic handler may want the leak report.
    #[cold]
    #[track_caller]
    pub(super) fn report(self) -> ! {
        panic!("{self}")
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { kind, handle, size_bytes, align_bytes, site } = self.call;
        write!(f, "per-CPU object {handle:#x} of {size_bytes} B")?;
        if let Some(allocated_at) = self.allocated_at {
            write!(f, ", allocated at {allocated_at}")?;
        }
        // Of what had to wait for the lock, the panic's place says nothing.
        match kind {
            CallKind::Allocate => write!(f, ", handed out at {site}: "),
            CallKind::Free | CallKind::FreeClean => write!(f, ", freed at {site}: "),
        }?;
        match self.fault {
            Fault::Foreign => f.write_str("never allocated, or so long ago that the memory is something else by now"),
            Fault::DoubleFree { freed_at } => write!(f, "freed twice, first at {freed_at}"),
            Fault::WrongSize { allocated_bytes } => write!(f, "another size than it was allocated with, {allocated_bytes} B"),
            Fault::WrongAlign => write!(f, "{align_bytes} B is another alignment than it was allocated with"),
            Fault::Overrun { cpu, offset_bytes } => write!(f, "written to beyond its end: CPU {cpu}'s copy, byte {offset_bytes}"),
            Fault::FreedDirty { cpu, offset_bytes } => {
                write!(f, "freed as clean, but CPU {cpu}'s copy is not zero, byte {offset_bytes}")
            }
            Fault::WrittenAfterFree { cpu, offset_bytes, freed_at } => {
                f.write_str("written to after it was freed")?;
                if let Some(freed_at) = freed_at {
                    write!(f, " at {freed_at}")?;
                }
                write!(f, ": CPU {cpu}'s copy, byte {offset_bytes}")
            }
            Fault::HandedOutTwice => f.write_str("handed out twice: the allocator's own memory was written to"),
            Fault::Stray => f.write_str("handed out, but no such object: the allocator's own memory was written to"),
        }
    }
}
