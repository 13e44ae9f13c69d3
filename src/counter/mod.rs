//! Approximate counters with exact sums, single and in groups that are allocated in one go.
//!
//! An add goes to its CPU's slot; when the slot's running total crosses a multiple of the batch, that multiple is posted to a shared
//! word. `read` looks at the shared words alone; `sum` visits the CPUs that wrote.

mod batched;
mod posted;
mod set;
mod slots;

pub use batched::Counter;
pub use posted::Batch;
pub use set::CounterSet;
