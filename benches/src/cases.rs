//! All cases.

mod adds;
mod allocation;
mod hand_over;
mod lifetimes;
mod line_transfer;
mod million;
mod sums;

use crate::case::Case;
use pcpu::host::Machine;
use workload::linux_like::LinuxLike;

/// Every case for a machine, those of one thread first.
pub fn all(machine: &Machine, nr_possible: usize, linux_like: &'static LinuxLike) -> Vec<Case> {
    let mut cases = adds::cases(machine);
    cases.extend(allocation::cases(linux_like));
    cases.extend(sums::cases(machine, nr_possible, linux_like));
    cases.extend(lifetimes::cases());
    cases.push(hand_over::case(linux_like));
    cases.push(line_transfer::case());
    if nr_possible == million::NR_POSSIBLE {
        cases.extend(million::cases(linux_like));
    }
    cases.sort_by_key(|case| case.threads);
    cases
}
