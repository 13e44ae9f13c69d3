//! A hook that is told of every allocation and free.

use core::num::NonZeroUsize;
use core::panic::Location;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::Site;

/// What a trace hook is told.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TraceEvent {
    /// What happened to the object.
    pub kind: TraceKind,
    /// Its handle; a lazy counter that is not promoted has none.
    pub handle: Option<NonZeroUsize>,
    /// Its size as it was asked for, in bytes.
    pub size_bytes: usize,
    /// Where that happened; of [`TraceKind::ValueDropped`], where the object was allocated, if that is known.
    pub at: Option<&'static Location<'static>>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceKind {
    /// It was allocated.
    Allocated,
    /// It is about to be freed.
    Freed,
    /// It is a counter or a set of them, other than of events, of which one is dropped that is not zero. That is legal, and often a fault.
    ValueDropped {
        /// Its place in the set.
        index: usize,
        /// Its exact value.
        value: i64,
    },
}

static TRACE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has `hook` called after each allocation, before each free and for each value that is dropped, in the caller's context, without a lock;
/// `None` ends it. In robust mode only. The hook must not allocate or free per-CPU objects.
pub fn set_trace(hook: Option<fn(TraceEvent)>) {
    TRACE.store(hook.map_or(core::ptr::null_mut(), |hook| hook as *mut ()), Ordering::Release);
}

pub(super) fn trace(kind: TraceKind, handle: Option<NonZeroUsize>, size_bytes: usize, at: Option<Site>) {
    let hook = TRACE.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: `set_trace` stores null or such a function.
        let hook = unsafe { core::mem::transmute::<*mut (), fn(TraceEvent)>(hook) };
        hook(TraceEvent { kind, handle, size_bytes, at });
    }
}
