//! What the boot loader tells, as Xen's `hvm_start_info` lays it out (xen/include/public/arch-x86/hvm/start_info.h, version 1).

use core::ops::Range;

const MAGIC: u32 = 0x336e_c578;
const TYPE_RAM: u32 = 1;

#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    nr_modules: u32,
    modules_address: u64,
    command_line_address: u64,
    rsdp_address: u64,
    memory_map_address: u64,
    nr_memory_map_entries: u32,
    reserved: u32,
}

#[repr(C)]
struct MemoryMapEntry {
    address: u64,
    size_bytes: u64,
    kind: u32,
    reserved: u32,
}

/// The boot loader's start info, checked.
#[derive(Clone, Copy)]
pub(crate) struct Pvh {
    start_info: &'static StartInfo,
}

impl Pvh {
    /// The start info at the address that PVH hands over.
    ///
    /// # Safety
    ///
    /// `address` is what the boot loader left in `ebx`, and its data were not overwritten; they are not until the value's last use.
    pub(crate) unsafe fn at(address: usize) -> Self {
        // SAFETY: the boot loader put the structure there, below 4 GiB, which is mapped.
        let start_info: &'static StartInfo = unsafe { &*core::ptr::with_exposed_provenance(address) };
        assert!(start_info.magic == MAGIC && start_info.version >= 1, "not started by PVH: no start info with a memory map");
        Self { start_info }
    }

    /// The largest piece of RAM in `within`.
    pub(crate) fn largest_ram(&self, within: Range<usize>) -> Range<usize> {
        // SAFETY: the boot loader's table, as long as it says.
        let map: &[MemoryMapEntry] = unsafe {
            core::slice::from_raw_parts(
                core::ptr::with_exposed_provenance(self.start_info.memory_map_address as usize),
                self.start_info.nr_memory_map_entries as usize,
            )
        };
        map.iter()
            .filter(|entry| entry.kind == TYPE_RAM)
            .map(|entry| {
                let start = (entry.address as usize).max(within.start);
                start..((entry.address + entry.size_bytes) as usize).min(within.end)
            })
            .max_by_key(Range::len)
            .unwrap_or(0..0)
    }

    /// The command line's bytes, without the final 0.
    pub(crate) fn command_line(&self) -> &'static [u8] {
        let start: *const u8 = core::ptr::with_exposed_provenance(self.start_info.command_line_address as usize);
        if start.is_null() {
            return &[];
        }
        let mut bytes = 0;
        // SAFETY: the boot loader ends the line with a 0.
        while unsafe { *start.add(bytes) } != 0 {
            bytes += 1;
        }
        // SAFETY: these bytes were just read.
        unsafe { core::slice::from_raw_parts(start, bytes) }
    }
}
