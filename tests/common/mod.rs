//! What the host tests share.

use pcpu::host::Machine;

/// The process's machine with that many possible CPUs; a test file uses one number only.
pub fn machine(nr_possible: usize) -> Machine {
    // SAFETY: the tests touch per-CPU data inside `run` only.
    unsafe { Machine::boot(nr_possible) }.expect("the machine boots")
}
