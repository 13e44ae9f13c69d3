//! Which chunk a handle lies in: a treap of all chunks by address, with the links in the chunks.
//!
//! Asked only when objects go back from a magazine to their blocks, under the lock; a hit never looks a chunk up.

use core::cmp::Ordering;
use core::ptr::NonNull;

use super::chunk::Chunk;

type Tree = Option<NonNull<Chunk>>;

pub(super) struct Directory {
    root: Tree,
    /// The chunk that was found last: neighbouring objects are often freed together.
    last: Tree,
}

fn key(chunk: NonNull<Chunk>) -> usize {
    chunk.addr().get()
}

/// A chunk's rank, which decides who is whose parent: its address, scrambled, so that the tree is balanced on average (the
/// constant is 2^64 over the golden ratio, as in Fibonacci hashing).
fn rank(chunk: NonNull<Chunk>) -> usize {
    let product = (key(chunk) as u128 >> 6) * 0x9e37_79b9_7f4a_7c15;
    (product ^ (product >> 64)) as usize
}

/// # Safety
/// The chunk is in the directory, and nobody has a reference to it.
unsafe fn child<'a>(mut chunk: NonNull<Chunk>, side: usize) -> &'a mut Tree {
    // SAFETY: the caller's promise.
    unsafe { &mut chunk.as_mut().children[side] }
}

/// Splits a tree into what lies below `at` and what does not.
///
/// # Safety
/// As for `child`, for all of the tree.
unsafe fn split(tree: Tree, at: usize) -> [Tree; 2] {
    let Some(root) = tree else { return [None; 2] };
    // SAFETY: the caller's promise.
    unsafe {
        if key(root) < at {
            let [below, above] = split(*child(root, 1), at);
            *child(root, 1) = below;
            [Some(root), above]
        } else {
            let [below, above] = split(*child(root, 0), at);
            *child(root, 0) = above;
            [below, Some(root)]
        }
    }
}

/// Joins two trees, all of `below` before all of `above`.
///
/// # Safety
/// As for `child`, for all of both.
unsafe fn join(below: Tree, above: Tree) -> Tree {
    let (Some(left), Some(right)) = (below, above) else { return below.or(above) };
    // SAFETY: the caller's promise.
    unsafe {
        if rank(left) > rank(right) {
            *child(left, 1) = join(*child(left, 1), above);
            below
        } else {
            *child(right, 0) = join(below, *child(right, 0));
            above
        }
    }
}

impl Directory {
    pub(super) const fn new() -> Self {
        Directory { root: None, last: None }
    }

    /// # Safety
    /// The chunk is not in the directory, and stays valid until it is removed; nobody has a reference to a chunk meanwhile.
    pub(super) unsafe fn insert(&mut self, chunk: NonNull<Chunk>) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut link = &mut self.root;
            while let Some(there) = *link {
                if rank(there) < rank(chunk) {
                    break;
                }
                link = child(there, (key(there) < key(chunk)) as usize);
            }
            let [below, above] = split(link.take(), key(chunk));
            *child(chunk, 0) = below;
            *child(chunk, 1) = above;
            *link = Some(chunk);
        }
    }

    /// # Safety
    /// The chunk is in the directory; nobody has a reference to a chunk meanwhile.
    pub(super) unsafe fn remove(&mut self, chunk: NonNull<Chunk>) {
        self.last = None;
        // SAFETY: the caller's promise.
        unsafe {
            let mut link = &mut self.root;
            while let Some(there) = *link {
                if there == chunk {
                    *link = join(child(chunk, 0).take(), child(chunk, 1).take());
                    return;
                }
                link = child(there, (key(there) < key(chunk)) as usize);
            }
        }
        debug_assert!(false, "a chunk that is not in the directory");
    }

    /// The chunk that `compare` finds equal; it says on which side of a chunk to go on.
    pub(super) fn find(&mut self, compare: impl Fn(&Chunk) -> Ordering) -> Tree {
        let mut next = self.root;
        if let Some(last) = self.last {
            // SAFETY: chunks of the directory are valid, and the caller, who holds the lock, has no reference to one.
            if compare(unsafe { last.as_ref() }) == Ordering::Equal {
                return Some(last);
            }
        }
        while let Some(chunk) = next {
            // SAFETY: as above.
            let there = unsafe { chunk.as_ref() };
            match compare(there) {
                Ordering::Equal => {
                    self.last = Some(chunk);
                    return Some(chunk);
                }
                Ordering::Less => next = there.children[0],
                Ordering::Greater => next = there.children[1],
            }
        }
        None
    }

    /// Visits all chunks, in the order of their addresses.
    #[cfg(any(debug_assertions, feature = "host", feature = "robust"))]
    pub(super) fn for_each(&self, visit: &mut impl FnMut(&Chunk)) {
        fn walk(tree: Tree, visit: &mut impl FnMut(&Chunk)) {
            if let Some(chunk) = tree {
                // SAFETY: chunks of the directory are valid, and the caller, who holds the lock, has no `&mut` to one.
                let chunk = unsafe { chunk.as_ref() };
                walk(chunk.children[0], visit);
                visit(chunk);
                walk(chunk.children[1], visit);
            }
        }
        walk(self.root, visit);
    }
}
