//! Which CPUs touched something, in one word.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::area;
use crate::cpu::CpuId;

/// The CPUs that touched something: a set that only grows until nobody else looks.
///
/// With up to 64 possible CPUs each has a bit. With more, the first four are a *list*; the fifth makes it a bitmap of *groups* of
/// neighbours, as many CPUs in each as it takes. So what few CPUs touch costs the same on a machine of any size.
///
/// Before [`init`](crate::init) one CPU is possible, the boot CPU, number 0: its bit and its entry in a list are the same word, which so stays
/// right when more become possible.
pub(crate) struct CpuMask(AtomicU64);

/// In a word of a machine with more than 64 possible CPUs: it is a bitmap of groups.
const GROUPS: u64 = 1 << 63;
/// The other bits of such a word, each of a group.
const MAX_GROUPS: usize = 63;
/// A list's entry: a CPU's number and one, or 0 for none. In ascending order, the first in the lowest bits.
const ENTRY_BITS: u32 = 13;
const ENTRY: u64 = (1 << ENTRY_BITS) - 1;
const MAX_ENTRIES: u32 = 4;

/// How many CPUs a group has; 1 if each has a bit.
pub(crate) const fn cpus_in_group(nr_possible: usize) -> usize {
    if nr_possible <= 64 { 1 } else { nr_possible.div_ceil(MAX_GROUPS) }
}

impl CpuMask {
    pub(crate) const fn new() -> Self {
        CpuMask(AtomicU64::new(0))
    }

    /// Adds a CPU, if it is not there. Release: whoever sees it there sees what was done before; so does whoever sees what the caller releases
    /// afterwards.
    pub(crate) fn insert(&self, cpu: CpuId) {
        let size = area::cpus_in_group();
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let with_cpu = with(word, cpu.index(), size);
            if with_cpu == word {
                return;
            }
            match self.0.compare_exchange_weak(word, with_cpu, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// The CPUs, in ascending order: those that were added, and the others of their groups.
    #[inline]
    pub(crate) fn iter(&self) -> MaskIter {
        let word = self.0.load(Ordering::Acquire);
        MaskIter { word, next: 0, end: 0, cpus_in_group: area::cpus_in_group(), nr_possible: area::nr_possible() }
    }

    /// How many CPUs [`iter`](Self::iter) visits. O(1).
    pub(crate) fn nr_cpus(&self) -> usize {
        nr_cpus(self.0.load(Ordering::Acquire), area::cpus_in_group(), area::nr_possible())
    }

    /// Forgets all CPUs, when nobody else looks.
    pub(crate) fn clear(&mut self) {
        *self.0.get_mut() = 0;
    }
}

/// The word with a CPU added.
fn with(word: u64, cpu: usize, cpus_in_group: usize) -> u64 {
    if cpus_in_group == 1 {
        return word | 1 << cpu;
    }
    if word & GROUPS != 0 {
        return word | 1 << (cpu / cpus_in_group);
    }
    // How many bits the entries before the new one take.
    let mut before = 0;
    while word >> before != 0 && (word >> before & ENTRY) as usize - 1 < cpu {
        before += ENTRY_BITS;
    }
    let entry = cpu as u64 + 1;
    if word >> before & ENTRY == entry {
        return word;
    }
    if word >> (ENTRY_BITS * (MAX_ENTRIES - 1)) == 0 {
        let low = (1 << before) - 1;
        return word & low | entry << before | (word & !low) << ENTRY_BITS;
    }
    let mut groups = GROUPS | 1 << (cpu / cpus_in_group);
    for listed in 0..MAX_ENTRIES {
        let cpu = (word >> (ENTRY_BITS * listed) & ENTRY) as usize - 1;
        groups |= 1 << (cpu / cpus_in_group);
    }
    groups
}

/// How many CPUs a word stands for.
fn nr_cpus(word: u64, cpus_in_group: usize, nr_possible: usize) -> usize {
    if cpus_in_group == 1 {
        return word.count_ones() as usize;
    }
    if word & GROUPS == 0 {
        return (u64::BITS - word.leading_zeros()).div_ceil(ENTRY_BITS) as usize;
    }
    let groups = word & !GROUPS;
    let last_group = (nr_possible - 1) / cpus_in_group;
    let nr_missing = (last_group + 1) * cpus_in_group - nr_possible;
    groups.count_ones() as usize * cpus_in_group - if groups >> last_group & 1 == 1 { nr_missing } else { 0 }
}

/// The CPUs of a mask.
pub(crate) struct MaskIter {
    /// What was not begun.
    word: u64,
    /// What is left of the group that was.
    next: usize,
    end: usize,
    cpus_in_group: usize,
    nr_possible: usize,
}

impl MaskIter {
    /// The lowest bit's number; takes it out.
    #[inline(always)]
    fn take_bit(&mut self) -> usize {
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        bit
    }

    /// The first of the next group's CPUs.
    fn next_of_groups(&mut self) -> Option<usize> {
        if self.next == self.end {
            if self.word == GROUPS {
                return None;
            }
            self.next = self.take_bit() * self.cpus_in_group;
            self.end = (self.next + self.cpus_in_group).min(self.nr_possible);
        }
        let cpu = self.next;
        self.next += 1;
        Some(cpu)
    }
}

impl MaskIter {
    #[inline(always)]
    fn next_index(&mut self) -> Option<usize> {
        if self.word == 0 {
            None
        } else if self.cpus_in_group == 1 {
            Some(self.take_bit())
        } else if self.word & GROUPS == 0 {
            let entry = self.word & ENTRY;
            self.word >>= ENTRY_BITS;
            Some(entry as usize - 1)
        } else {
            self.next_of_groups()
        }
    }
}

impl Iterator for MaskIter {
    type Item = CpuId;

    #[inline]
    fn next(&mut self) -> Option<CpuId> {
        self.next_index().map(CpuId::from_index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    /// What is visited when these CPUs were added, in that order.
    fn visited(nr_possible: usize, cpus: &[usize]) -> Vec<usize> {
        let cpus_in_group = cpus_in_group(nr_possible);
        let word = cpus.iter().fold(0, |word, &cpu| with(word, cpu, cpus_in_group));
        let mut iter = MaskIter { word, next: 0, end: 0, cpus_in_group, nr_possible };
        let visited: Vec<_> = core::iter::from_fn(|| iter.next_index()).collect();
        assert_eq!(nr_cpus(word, cpus_in_group, nr_possible), visited.len(), "{cpus:?} of {nr_possible}");
        visited
    }

    #[test]
    fn up_to_4_cpus_are_visited_alone_on_a_machine_of_any_size() {
        for nr_possible in [5, 64, 65, 256, 384, 4096] {
            let last = nr_possible - 1;
            for cpus in [&[][..], &[0], &[last], &[3, 3, 3], &[last, 0], &[2, 0, last, 1], &[last, 2, 1, 0, 2, last]] {
                let expected: Vec<_> = cpus.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
                assert_eq!(visited(nr_possible, cpus), expected);
            }
        }
    }

    #[test]
    fn what_the_boot_cpu_touched_alone_stays_when_more_become_possible() {
        assert_eq!(with(0, 0, cpus_in_group(1)), with(0, 0, cpus_in_group(4096)));
    }

    #[test]
    fn the_fifth_cpu_makes_groups() {
        assert_eq!(visited(64, &[9, 7, 5, 3, 1]), [1, 3, 5, 7, 9]);
        assert_eq!(visited(65, &[9, 7, 64, 3, 1]), [0, 1, 2, 3, 6, 7, 8, 9, 64]);
        assert_eq!(visited(256, &[255, 0, 5, 10, 16, 17]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 255]);
    }

    #[test]
    fn all_cpus_are_visited_once_whatever_the_order() {
        for nr_possible in [1, 2, 63, 64, 65, 126, 127, 255, 256, 384, 4095, 4096] {
            let all: Vec<_> = (0..nr_possible).collect();
            let backwards: Vec<_> = (0..nr_possible).rev().collect();
            // A step that has no factor in common with the number goes everywhere.
            let scattered: Vec<_> = (0..nr_possible).map(|cpu| cpu * 4099 % nr_possible).collect();
            for cpus in [&all, &backwards, &scattered] {
                assert_eq!(visited(nr_possible, cpus), all);
            }
        }
    }
}
