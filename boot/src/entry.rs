//! The first instructions of each CPU: from 32-bit mode (the boot CPU, by PVH) or 16-bit mode (the others, by SIPI) to Rust in long mode.
//!
//! The page tables and the descriptor table are data of the image, so that no code has to build them. All of the first 4 GiB is mapped
//! to itself; the last GiB, where the devices are, is not cached.

use core::arch::global_asm;

use x86_64::{VirtAddr, instructions::tlb};

use crate::smp;

/// Where the other CPUs begin: a page below 1 MiB that nothing else uses.
const TRAMPOLINE_ADDRESS: usize = 0x8000;

/// Where the other CPUs begin, as a SIPI's vector tells it.
pub(crate) const TRAMPOLINE_PAGE: u8 = (TRAMPOLINE_ADDRESS >> 12) as u8;

const BOOT_STACK_BYTES: usize = 64 * 1024;

// Bits of the page table entries.
const PRESENT_WRITABLE: u64 = 0b11;
const LARGE: u64 = 1 << 7;
const UNCACHED: u64 = 0b11 << 3;

const CR0_PROTECTED: u32 = 1 << 0;
const CR0_MONITOR_COPROCESSOR: u32 = 1 << 1;
const CR0_EMULATE_COPROCESSOR: u32 = 1 << 2;
const CR0_TASK_SWITCHED: u32 = 1 << 3;
const CR0_NUMERIC_ERROR: u32 = 1 << 5;
const CR0_WRITE_PROTECT: u32 = 1 << 16;
const CR0_NO_CACHE: u32 = 0b11 << 29;
const CR0_PAGING: u32 = 1 << 31;
const CR4_PAE: u32 = 1 << 5;
const CR4_OSFXSR: u32 = 1 << 9;
const CR4_OSXMMEXCPT: u32 = 1 << 10;
const IA32_EFER: u32 = 0xc000_0080;
const EFER_LONG_MODE: u32 = 1 << 8;

unsafe extern "C" {
    /// First byte of the code that is copied to [`TRAMPOLINE_ADDRESS`].
    static trampoline_start: u8;
    /// First byte after it.
    static trampoline_end: u8;
    /// The page table of the first 2 MiB.
    static mut page_table_of_low_memory: [u64; 512];
}

/// Unmaps page 0, so that from now on a null pointer faults.
///
/// # Safety
///
/// The boot CPU is alone and nobody needs page 0, where the firmware keeps its data and may have put the start info.
pub(crate) unsafe fn unmap_null_page() {
    // SAFETY: one entry of the page table in use, which no reference refers to; the processor forgets what it knew of the page.
    unsafe { (&raw mut page_table_of_low_memory).cast::<u64>().write_volatile(0) };
    tlb::flush(VirtAddr::zero());
}

/// Copies the other CPUs' first instructions to where a SIPI makes them begin.
///
/// # Safety
///
/// Nothing else uses the page at [`TRAMPOLINE_ADDRESS`].
pub(crate) unsafe fn place_trampoline() {
    let start = &raw const trampoline_start;
    let bytes = (&raw const trampoline_end).addr() - start.addr();
    // SAFETY: the source is part of the image; the destination is mapped, below the image, and unused by the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(start, core::ptr::with_exposed_provenance_mut(TRAMPOLINE_ADDRESS), bytes) };
}

// Selectors: 0x08 64-bit code, 0x10 data, 0x18 32-bit code. The first two are the same in `gdt`'s tables, so no selector is ever
// loaded again: loading GS would clear its base.
global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad pvh_start

    .section .data.page_tables, "aw", @progbits
    .balign 4096
    .global page_table_of_low_memory
page_map:
    .quad page_directory_pointers + {PRESENT_WRITABLE}
    .skip 511 * 8
page_directory_pointers:
    .quad page_directories + {PRESENT_WRITABLE}
    .quad page_directories + 4096 + {PRESENT_WRITABLE}
    .quad page_directories + 2 * 4096 + {PRESENT_WRITABLE}
    .quad page_directories + 3 * 4096 + {PRESENT_WRITABLE}
    .skip 508 * 8
page_directories:
    .quad page_table_of_low_memory + {PRESENT_WRITABLE}
    .set frame, 1
    .rept 3 * 512 - 1
    .quad (frame << 21) + {PRESENT_WRITABLE} + {LARGE}
    .set frame, frame + 1
    .endr
    .rept 512
    .quad (frame << 21) + {PRESENT_WRITABLE} + {LARGE} + {UNCACHED}
    .set frame, frame + 1
    .endr
page_table_of_low_memory:
    .set frame, 0
    .rept 512
    .quad (frame << 12) + {PRESENT_WRITABLE}
    .set frame, frame + 1
    .endr

    .section .rodata.boot_gdt, "a", @progbits
    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00cf9b000000ffff
boot_gdt_pointer:
    .word boot_gdt_pointer - boot_gdt - 1
    .long boot_gdt

    .section .bss.boot_stack, "aw", @nobits
    .balign 16
    .skip {BOOT_STACK_BYTES}
boot_stack_top:

    .section .text.entry, "ax", @progbits

    // In 32-bit protected mode with flat segments; destroys eax, ecx, edx.
    .macro enter_long_mode continue_at
    movl %cr4, %eax
    orl ${CR4_PAE} + {CR4_OSFXSR} + {CR4_OSXMMEXCPT}, %eax
    movl %eax, %cr4
    movl $page_map, %eax
    movl %eax, %cr3
    movl ${IA32_EFER}, %ecx
    rdmsr
    orl ${EFER_LONG_MODE}, %eax
    wrmsr
    movl %cr0, %eax
    andl $~({CR0_EMULATE_COPROCESSOR} + {CR0_TASK_SWITCHED} + {CR0_NO_CACHE}), %eax
    orl ${CR0_PROTECTED} + {CR0_MONITOR_COPROCESSOR} + {CR0_NUMERIC_ERROR} + {CR0_WRITE_PROTECT} + {CR0_PAGING}, %eax
    movl %eax, %cr0
    lgdt boot_gdt_pointer
    ljmpl $0x08, $\continue_at
    .endm

    // The last time that this CPU loads GS.
    .macro load_data_selectors
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    .endm

    // The boot CPU, as PVH says: 32-bit protected mode, paging off, ebx = address of the start info.
    .code32
    .global pvh_start
pvh_start:
    cli
    cld
    enter_long_mode boot_cpu_in_long_mode

    .code64
boot_cpu_in_long_mode:
    load_data_selectors
    movl $boot_stack_top, %esp
    xorl %ebp, %ebp
    movl %ebx, %edi
    call {start_boot_cpu}
    ud2

    // Every other CPU, copied to TRAMPOLINE_ADDRESS: 16-bit mode, cs = TRAMPOLINE_ADDRESS / 16, ip = 0.
    .code16
    .global trampoline_start
trampoline_start:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl trampoline_gdt_pointer - trampoline_start + {TRAMPOLINE_ADDRESS}
    movl %cr0, %eax
    orl ${CR0_PROTECTED}, %eax
    movl %eax, %cr0
    ljmpl $0x18, $other_cpu_in_protected_mode
trampoline_gdt_pointer:
    .word 31
    .long boot_gdt
    .global trampoline_end
trampoline_end:

    .code32
other_cpu_in_protected_mode:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    enter_long_mode other_cpu_in_long_mode

    // All of them at once: each takes a ticket, and with it a stack.
    .code64
other_cpu_in_long_mode:
    load_data_selectors
    movl $1, %edi
    lock xaddl %edi, {TICKETS}(%rip)
    cmpl {NR_STACKS}(%rip), %edi
    jae 2f
    leal 1(%edi), %eax
    imulq ${STACK_BYTES}, %rax, %rsp
    addq {STACKS}(%rip), %rsp
    xorl %ebp, %ebp
    call {start_other_cpu}
    ud2
    // A CPU that nobody counted.
2:  hlt
    jmp 2b
    "#,
    PRESENT_WRITABLE = const PRESENT_WRITABLE,
    LARGE = const LARGE,
    UNCACHED = const UNCACHED,
    BOOT_STACK_BYTES = const BOOT_STACK_BYTES,
    CR0_PROTECTED = const CR0_PROTECTED,
    CR0_MONITOR_COPROCESSOR = const CR0_MONITOR_COPROCESSOR,
    CR0_EMULATE_COPROCESSOR = const CR0_EMULATE_COPROCESSOR,
    CR0_TASK_SWITCHED = const CR0_TASK_SWITCHED,
    CR0_NUMERIC_ERROR = const CR0_NUMERIC_ERROR,
    CR0_WRITE_PROTECT = const CR0_WRITE_PROTECT,
    CR0_NO_CACHE = const CR0_NO_CACHE,
    CR0_PAGING = const CR0_PAGING,
    CR4_PAE = const CR4_PAE,
    CR4_OSFXSR = const CR4_OSFXSR,
    CR4_OSXMMEXCPT = const CR4_OSXMMEXCPT,
    IA32_EFER = const IA32_EFER,
    EFER_LONG_MODE = const EFER_LONG_MODE,
    TRAMPOLINE_ADDRESS = const TRAMPOLINE_ADDRESS,
    STACK_BYTES = const smp::STACK_BYTES,
    TICKETS = sym smp::TICKETS,
    NR_STACKS = sym smp::NR_STACKS,
    STACKS = sym smp::STACKS,
    start_boot_cpu = sym crate::boot_info::start_boot_cpu,
    start_other_cpu = sym smp::start_other_cpu,
    options(att_syntax)
);
