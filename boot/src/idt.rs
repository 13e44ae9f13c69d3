//! The interrupt descriptor table, the same for all CPUs, and the code between the processor and [`interrupts::dispatch`].
//!
//! Each vector's stub pushes what the others need: an error code where the processor pushes none, and the vector. All continue in
//! `save_and_dispatch`, which saves what a Rust function may change, SSE state included, and leaves interrupts off.

use core::arch::{global_asm, naked_asm};

use spin::Once;
use x86_64::{
    VirtAddr,
    structures::idt::{Entry, InterruptDescriptorTable},
};

use crate::{gdt::InterruptStack, interrupts};

const STUB_BYTES: u64 = 16;

/// The vectors with an error code from the processor: 8, 10 to 14, 17, 21, 29 and 30.
const WITH_ERROR_CODE: u32 = 1 << 8 | 0b11111 << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;

unsafe extern "C" {
    /// The stub of vector 0; the others follow at equal distances.
    static vector_stubs: u8;
}

global_asm!(
    r#"
    .section .text.vector_stubs, "ax", @progbits
    .balign 16
    .global vector_stubs
vector_stubs:
    .set vector, 0
    .rept 256
    .balign {STUB_BYTES}
    .if vector >= 32 || (({WITH_ERROR_CODE} >> vector) & 1) == 0
    pushq $0
    .endif
    pushq $vector
    jmp {save_and_dispatch}
    .set vector, vector + 1
    .endr
    "#,
    STUB_BYTES = const STUB_BYTES,
    WITH_ERROR_CODE = const WITH_ERROR_CODE,
    save_and_dispatch = sym save_and_dispatch,
    options(att_syntax)
);

/// Entered with the stack as [`interrupts::Frame`] describes it from its `vector` on; the processor aligned it to 16 bytes before.
#[unsafe(naked)]
unsafe extern "C" fn save_and_dispatch() {
    naked_asm!(
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "cld",
        "mov rdi, rsp",
        "sub rsp, 512",
        "fxsave64 [rsp]",
        "call {dispatch}",
        "fxrstor64 [rsp]",
        "add rsp, 512",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        // The vector and the error code.
        "add rsp, 16",
        "iretq",
        dispatch = sym interrupts::dispatch,
    )
}

/// Points an entry at its vector's stub.
fn set<F>(entry: &mut Entry<F>, vector: u8, stack: InterruptStack) {
    let stub = (&raw const vector_stubs).addr() as u64 + u64::from(vector) * STUB_BYTES;
    // SAFETY: the stub takes the stack as the processor leaves it for this vector, and returns by `iretq`; `Segments::load` set up
    // the stack. Interrupts stay off, as `set_handler_addr` leaves it.
    unsafe { entry.set_handler_addr(VirtAddr::new(stub)).set_stack_index(stack as u16) };
}

/// Makes this CPU use the table.
pub(crate) fn load() {
    static TABLE: Once<InterruptDescriptorTable> = Once::new();
    TABLE.call_once(table).load();
}

fn table() -> InterruptDescriptorTable {
    use InterruptStack::{Debug, Device, DoubleFault, Exception, MachineCheck, NonMaskable};
    let mut table = InterruptDescriptorTable::new();
    set(&mut table.divide_error, 0, Exception);
    set(&mut table.debug, 1, Debug);
    set(&mut table.non_maskable_interrupt, 2, NonMaskable);
    set(&mut table.breakpoint, 3, Exception);
    set(&mut table.overflow, 4, Exception);
    set(&mut table.bound_range_exceeded, 5, Exception);
    set(&mut table.invalid_opcode, 6, Exception);
    set(&mut table.device_not_available, 7, Exception);
    set(&mut table.double_fault, 8, DoubleFault);
    set(&mut table.invalid_tss, 10, Exception);
    set(&mut table.segment_not_present, 11, Exception);
    set(&mut table.stack_segment_fault, 12, Exception);
    set(&mut table.general_protection_fault, 13, Exception);
    set(&mut table.page_fault, 14, Exception);
    set(&mut table.x87_floating_point, 16, Exception);
    set(&mut table.alignment_check, 17, Exception);
    set(&mut table.machine_check, 18, MachineCheck);
    set(&mut table.simd_floating_point, 19, Exception);
    set(&mut table.virtualization, 20, Exception);
    set(&mut table.cp_protection_exception, 21, Exception);
    set(&mut table.hv_injection_exception, 28, Exception);
    set(&mut table.vmm_communication_exception, 29, Exception);
    set(&mut table.security_exception, 30, Exception);
    for vector in interrupts::FIRST_DEVICE_VECTOR..=u8::MAX {
        set(&mut table[vector], vector, Device);
    }
    table
}
