//! An exhaustive search of the states that a model's threads can reach.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// Shared memory and threads. A state is a value; a thread is its program counter, its registers and the CPU that it is on.
pub trait Model: Clone + Eq + Hash + Debug {
    const NR_THREADS: usize;

    /// All states that the thread's next instruction can lead to; none if it has ended or has to wait.
    fn steps(&self, thread: usize) -> Vec<Result<Self, Fault>>;

    /// The state in which the thread was moved to the other CPU, if it can be moved.
    fn moved(&self, thread: usize) -> Option<Self>;

    /// Whether the thread has ended.
    fn has_ended(&self, thread: usize) -> bool;

    /// What must hold when all threads have ended.
    fn check_end(&self) -> Result<(), Fault>;
}

/// What is wrong with a state.
pub type Fault = &'static str;

/// Visits all states that can be reached, and returns how many they are, or the first fault.
pub fn explore<M: Model>(initial: M) -> Result<usize, Fault> {
    let mut seen = HashSet::from([initial.clone()]);
    let mut unvisited = vec![initial];
    while let Some(state) = unvisited.pop() {
        let steps = (0..M::NR_THREADS).flat_map(|thread| state.steps(thread)).collect::<Result<Vec<M>, Fault>>()?;
        if steps.is_empty() {
            if !(0..M::NR_THREADS).all(|thread| state.has_ended(thread)) {
                return Err("threads wait for each other");
            }
            state.check_end()?;
        }
        let moves = (0..M::NR_THREADS).filter(|&thread| !state.has_ended(thread)).filter_map(|thread| state.moved(thread));
        for next in steps.into_iter().chain(moves) {
            if !seen.contains(&next) {
                seen.insert(next.clone());
                unvisited.push(next);
            }
        }
    }
    Ok(seen.len())
}
