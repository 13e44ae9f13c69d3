//! A heap in use: a fresh one is a special case for both allocators.

use core::num::NonZeroUsize;
use pcpu::AllocFlags;
use pcpu::host::Machine;
use workload::linux_like::LinuxLike;

const NR_OBJECTS: usize = 8000;

/// Fills both allocators with the same objects of mixed sizes, and frees half of them at random.
pub fn age(machine: &Machine, linux_like: &LinuxLike) {
    machine.run(1, |_| {
        let mut random = fastrand::Rng::with_seed(1);
        let mut objects: Vec<_> = (0..NR_OBJECTS)
            .map(|_| {
                let size_bytes = random.usize(1..=64) * 4;
                let ours = pcpu::alloc::allocate(size_bytes, 8, AllocFlags::PROCESS).expect("memory for a few chunks");
                (size_bytes, ours, linux_like.allocate(size_bytes, 8).expect("memory for a few chunks"))
            })
            .collect();
        random.shuffle(&mut objects);
        for (size_bytes, ours, theirs) in objects.drain(..NR_OBJECTS / 2) {
            let ours: NonZeroUsize = ours;
            // SAFETY: both were allocated above, the first one as that size and never written to.
            unsafe {
                pcpu::alloc::free_clean(ours, size_bytes, 8);
                linux_like.free(theirs);
            }
        }
    });
}
