//! A set of CPUs.

/// As many as QEMU's q35 has without an IOMMU: an APIC id is a byte.
pub const MAX_CPUS: usize = 256;

const BITS: usize = u64::BITS as usize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet([u64; MAX_CPUS / BITS]);

impl CpuSet {
    /// The set of one CPU.
    pub fn only(cpu: usize) -> Self {
        let mut set = Self::default();
        set.insert(cpu);
        set
    }

    pub fn insert(&mut self, cpu: usize) {
        self.0[cpu / BITS] |= 1 << (cpu % BITS);
    }

    pub fn contains(&self, cpu: usize) -> bool {
        self.0[cpu / BITS] & 1 << (cpu % BITS) != 0
    }

    /// Whether any CPU but this one is in the set.
    pub fn has_other_than(&self, cpu: usize) -> bool {
        let mut others = *self;
        others.0[cpu / BITS] &= !(1 << (cpu % BITS));
        others != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_all_words_are_told_apart() {
        let mut set = CpuSet::only(255);
        assert!(set.contains(255) && !set.contains(63) && !set.has_other_than(255));
        set.insert(0);
        assert!(set.has_other_than(255) && set.has_other_than(0) && set.has_other_than(7));
        assert!(!CpuSet::default().has_other_than(0));
    }
}
