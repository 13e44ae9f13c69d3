//! QEMU's firmware configuration device: how many CPUs there are.

use x86_64::instructions::port::Port;

const SELECTOR_PORT: u16 = 0x510;
const DATA_PORT: u16 = 0x511;
const NR_CPUS: u16 = 5;

/// The number of CPUs that the machine starts with.
pub(crate) fn nr_cpus() -> usize {
    // SAFETY: the ports belong to the device, and only the boot CPU uses it, before the others run.
    let bytes = unsafe {
        Port::<u16>::new(SELECTOR_PORT).write(NR_CPUS);
        let mut data = Port::<u8>::new(DATA_PORT);
        [data.read(), data.read()]
    };
    u16::from_le_bytes(bytes).into()
}
