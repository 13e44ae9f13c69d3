//! An exhaustive search of the states that a model's threads can reach.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Shared memory and threads. A state is a value; a thread is its program counter, its registers and the CPU that it is on.
pub trait Model: Clone + Eq + Hash + Debug {
    const NR_THREADS: usize;

    /// All states that the thread's next instruction can lead to; none if it has ended or has to wait.
    fn steps(&self, thread: usize) -> Vec<Result<Self, Fault>>;

    /// The state in which the thread was moved to the other CPU, if it can be moved.
    fn moved(&self, thread: usize) -> Option<Self>;

    /// Whether the thread has ended, or rests before it begins anew.
    fn has_ended(&self, thread: usize) -> bool;

    /// What must hold when all threads have ended.
    fn check_end(&self) -> Result<(), Fault>;
}

/// What is wrong with a state.
pub type Fault = &'static str;

/// Visits all states that can be reached, the nearest ones first, and returns how many they are, or the first fault.
///
/// It is a fault, too, if a thread that steps alone, while all others are held up, need not end: then a nested context would loop for ever.
pub fn explore<M: Model>(initial: M) -> Result<usize, Fault> {
    let mut numbers = HashMap::<M, usize, BuildHasherDefault<Mix>>::from_iter([(initial.clone(), 0)]);
    let mut unvisited = VecDeque::from([initial]);
    let mut steps_alone = vec![Vec::new(); M::NR_THREADS];
    for number in 0.. {
        let Some(state) = unvisited.pop_front() else { break };
        let mut number_of = |next: M| {
            let nr_known = numbers.len();
            *numbers.entry(next).or_insert_with_key(|next| {
                unvisited.push_back(next.clone());
                nr_known
            })
        };
        let mut nr_steps = 0;
        for (thread, steps_alone) in steps_alone.iter_mut().enumerate() {
            for next in state.steps(thread) {
                let next = number_of(next?);
                nr_steps += 1;
                if !state.has_ended(thread) {
                    steps_alone.push((number, next));
                }
            }
        }
        let ended = |thread| state.has_ended(thread);
        if nr_steps == 0 {
            if !(0..M::NR_THREADS).all(ended) {
                return Err("threads wait for each other");
            }
            state.check_end()?;
        }
        let moves = (0..M::NR_THREADS).filter(|&thread| !ended(thread)).filter_map(|thread| state.moved(thread));
        moves.for_each(|moved| {
            number_of(moved);
        });
    }
    if steps_alone.iter().any(|steps| has_cycle(numbers.len(), steps)) {
        return Err("a thread loops for ever on its own");
    }
    Ok(numbers.len())
}

/// Whether steps, in the order of the states that they leave, lead back to where they began: not if all of them go when states that no
/// step is left to are removed one after the other.
fn has_cycle(nr_states: usize, steps: &[(usize, usize)]) -> bool {
    let (mut nr_into, mut first) = (vec![0; nr_states], vec![0; nr_states + 1]);
    for &(from, to) in steps {
        nr_into[to] += 1;
        first[from + 1] += 1;
    }
    for state in 0..nr_states {
        first[state + 1] += first[state];
    }
    let mut without: Vec<usize> = (0..nr_states).filter(|&state| nr_into[state] == 0).collect();
    let mut nr_left = steps.len();
    while let Some(state) = without.pop() {
        for &(_, to) in &steps[first[state]..first[state + 1]] {
            nr_left -= 1;
            nr_into[to] -= 1;
            if nr_into[to] == 0 {
                without.push(to);
            }
        }
    }
    nr_left > 0
}

/// Firefox's hash: states are small, and the standard library's takes most of the time in a debug build.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
