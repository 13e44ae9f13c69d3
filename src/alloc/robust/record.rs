//! What is known of each object of a block.

use super::Site;
use crate::alloc::chunk::MAX_OBJECTS;

/// A [`Site`] in 4 B, as its distance from [`ORIGIN`]: a record has two for each object, and while a chunk is made a block's record lies on the
/// kernel's stack. Zero if there is none, or if it is too far away, which it is not within one image.
#[derive(Clone, Copy)]
struct PackedSite(i32);

static ORIGIN: u8 = 0;

const NOWHERE: PackedSite = PackedSite(0);

impl PackedSite {
    fn new(site: Site) -> Self {
        let distance = core::ptr::from_ref(site).expose_provenance().wrapping_sub((&raw const ORIGIN).addr());
        i32::try_from(distance as isize).map_or(NOWHERE, PackedSite)
    }

    fn site(self) -> Option<Site> {
        let address = (&raw const ORIGIN).addr().wrapping_add_signed(self.0 as isize);
        // SAFETY: `new` was given a reference that is good for ever, and exposed it.
        (self.0 != 0).then(|| unsafe { &*core::ptr::with_exposed_provenance(address) })
    }
}

/// What robust mode knows of a block's objects.
///
/// What was known of a free object stays, also when its whole block is free: so a second free is told from a wild one, until something
/// else has the memory.
pub(in crate::alloc) struct Record {
    /// From one object to the next, in bytes, in what the block holds or held last. 0 where no object begins.
    object_bytes: usize,
    live: [u64; MAX_OBJECTS / 64],
    allocated_at: [PackedSite; MAX_OBJECTS],
    freed_at: [PackedSite; MAX_OBJECTS],
    /// As they were asked for, in bytes.
    sizes: [u32; MAX_OBJECTS],
}

impl Record {
    pub(in crate::alloc) const fn new() -> Self {
        Record {
            object_bytes: 0,
            live: [0; MAX_OBJECTS / 64],
            allocated_at: [NOWHERE; MAX_OBJECTS],
            freed_at: [NOWHERE; MAX_OBJECTS],
            sizes: [0; MAX_OBJECTS],
        }
    }

    /// The block is used anew, for objects that are that far apart; for a run, with what is behind its end up to the next block or the
    /// unit's end, or for a run's tail, with 0.
    pub(in crate::alloc) fn begin(&mut self, object_bytes: usize) {
        self.live.fill(0);
        if self.object_bytes != object_bytes {
            self.object_bytes = object_bytes;
            self.allocated_at.fill(NOWHERE);
            self.freed_at.fill(NOWHERE);
        }
    }

    pub(super) fn object_bytes(&self) -> usize {
        self.object_bytes
    }

    /// Whether an object is in use.
    pub(super) fn is_live(&self, index: usize) -> bool {
        self.live[index / 64] >> (index % 64) & 1 == 1
    }

    /// Where an object was last allocated.
    pub(super) fn allocated_at(&self, index: usize) -> Option<Site> {
        self.allocated_at[index].site()
    }

    /// Where an object was last freed.
    pub(super) fn freed_at(&self, index: usize) -> Option<Site> {
        self.freed_at[index].site()
    }

    /// The size that an object was last asked for, in bytes.
    pub(super) fn size_bytes(&self, index: usize) -> usize {
        self.sizes[index] as usize
    }

    pub(super) fn set_allocated(&mut self, index: usize, size_bytes: usize, site: Site) {
        self.live[index / 64] |= 1 << (index % 64);
        self.allocated_at[index] = PackedSite::new(site);
        self.sizes[index] = size_bytes as u32;
    }

    pub(super) fn set_freed(&mut self, index: usize, site: Site) {
        self.live[index / 64] &= !(1 << (index % 64));
        self.freed_at[index] = PackedSite::new(site);
    }
}
