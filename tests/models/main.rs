//! Models of the protocols: small enough to try every interleaving, each also in variants that must fail.
//!
//! `checker` interleaves whole instructions, in every order, with a move to the other CPU before each; `ordering` has loom try what the
//! memory model allows.

#![allow(missing_docs, reason = "a test binary")]
// The models do not depend on features, so once is enough.
#![cfg(not(feature = "robust"))]

mod bounds;
mod checker;
mod limit;
mod magazine;
mod ordering;
mod promotion;
mod slots;
