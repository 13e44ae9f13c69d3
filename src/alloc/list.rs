//! Intrusive lists: the links are in the elements, so that a list needs no memory.

use core::ptr::NonNull;

/// What can be on a list: it has a place for the links.
pub(super) trait Linked: Sized {
    /// The previous and the next element.
    fn links(&mut self) -> (&mut Option<NonNull<Self>>, &mut Option<NonNull<Self>>);
}

/// A doubly linked list.
pub(super) struct List<T> {
    first: Option<NonNull<T>>,
    last: Option<NonNull<T>>,
}

impl<T: Linked> List<T> {
    pub(super) const fn new() -> Self {
        List { first: None, last: None }
    }

    pub(super) fn first(&self) -> Option<NonNull<T>> {
        self.first
    }

    pub(super) fn last(&self) -> Option<NonNull<T>> {
        self.last
    }

    /// # Safety
    /// The element is on no list, and valid until it is removed; nobody else has a reference to it or to one on the list.
    pub(super) unsafe fn push_first(&mut self, mut element: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            *element.as_mut().links().0 = None;
            *element.as_mut().links().1 = self.first;
            match self.first {
                Some(mut second) => *second.as_mut().links().0 = Some(element),
                None => self.last = Some(element),
            }
        }
        self.first = Some(element);
    }

    /// # Safety
    /// As for `push_first`.
    pub(super) unsafe fn push_last(&mut self, mut element: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            *element.as_mut().links().0 = self.last;
            *element.as_mut().links().1 = None;
            match self.last {
                Some(mut before) => *before.as_mut().links().1 = Some(element),
                None => self.first = Some(element),
            }
        }
        self.last = Some(element);
    }

    /// # Safety
    /// The element is on this list; nobody else has a reference to it or to one on the list.
    pub(super) unsafe fn remove(&mut self, mut element: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            let previous = element.as_mut().links().0.take();
            let next = element.as_mut().links().1.take();
            match previous {
                Some(mut previous) => *previous.as_mut().links().1 = next,
                None => self.first = next,
            }
            match next {
                Some(mut next) => *next.as_mut().links().0 = previous,
                None => self.last = previous,
            }
        }
    }

    /// The elements in order. The list must not change meanwhile.
    pub(super) fn iter(&self) -> impl Iterator<Item = NonNull<T>> + use<T> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let mut element = next?;
            // SAFETY: elements of the list are valid; the caller holds the lock.
            next = unsafe { *element.as_mut().links().1 };
            Some(element)
        })
    }
}
