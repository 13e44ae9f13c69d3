//! Counters: of events, approximate with exact sums, in groups that are allocated in one go, lazy, and with a limit.
//!
//! ```text
//!   EventCounter, HighWater      a word on each CPU; reading visits all possible CPUs      event, registry
//!   Counter, CounterSet,         slots that never move, and words that all share:          batched, set, vec
//!     CounterVec                   group = slots + shared
//!   LazyCounter,                 inline words; once promoted also slots and shared         lazy, lazy_set, policy
//!     LazyCounterSet
//!   LimitCounter                 credits on each CPU, a pool                               limit
//! ```
//!
//! An add goes to its CPU's slot; when the slot's running total crosses a multiple of the batch, that multiple is posted to a shared
//! word. `read` looks at the shared words alone; `sum` visits the CPUs that wrote. There is no list of counters, and nothing to do when a
//! CPU goes offline.

mod batched;
mod declare;
mod event;
mod group;
mod index;
mod lazy;
mod lazy_set;
mod limit;
mod policy;
mod registry;
mod set;
mod shared;
mod slots;
#[cfg(feature = "alloc")]
mod vec;

pub use batched::Counter;
pub use event::{EventCounter, EventWord, HighWater};
pub use index::CounterIndex;
pub use lazy::LazyCounter;
pub use lazy_set::LazyCounterSet;
pub use limit::{LimitCounter, LimitExceeded};
pub use policy::{CpuChanges, Explicit, PromotionPolicy, Verdict};
pub use registry::{NamedCounter, NamedKind, named_counters};
pub use set::CounterSet;
pub use shared::{Batch, NESTING};
pub use slots::SlotLines;
#[cfg(feature = "alloc")]
pub use vec::CounterVec;
