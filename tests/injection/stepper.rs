//! Stops the running thread after each of an operation's instructions, by the trap flag, and moves it between CPUs.
//!
//! The trap handler is an ordinary call on the thread's own stack (below the red zone, which the kernel leaves alone), made between two
//! instructions of the operation, with this CPU's GS base: what it does is what an interrupt or the scheduler could do there. GS base is not
//! restored when it returns, so what it loads stays.

use core::arch::asm;
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::{mem, ptr};
use pcpu::CpuId;
use std::sync::Once;

const TRAP_FLAG: i64 = 1 << 8;

/// What is known of the place between two instructions.
#[derive(Clone, Copy)]
pub struct Place {
    /// How many instructions were executed since the operation began.
    pub nr: usize,
    /// The next instruction's address.
    pub next_instruction: usize,
}

/// Called after each instruction; `false` lets the rest of the operation run undisturbed.
type OnStep<'a> = &'a mut dyn FnMut(Place) -> bool;

/// The stepped operation of this thread.
struct Stepped {
    on_step: *mut c_void,
    nr: usize,
}

thread_local! {
    static STEPPED: Cell<*mut Stepped> = const { Cell::new(ptr::null_mut()) };
}

extern "C" fn on_trap(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the interrupted context; `step` put its own record there and is still running.
    let (context, stepped) = unsafe { (&mut *context.cast::<libc::ucontext_t>(), &mut *STEPPED.get()) };
    stepped.nr += 1;
    let place = Place { nr: stepped.nr, next_instruction: context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    // SAFETY: points to the reference that `step` holds.
    let goes_on = unsafe { (*stepped.on_step.cast::<OnStep<'_>>())(place) };
    if !goes_on {
        context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }
}

fn install_trap_handler() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: an all-zero `sigaction` is valid; the handler has the signature that SA_SIGINFO asks for.
        let outcome = unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_trap as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut())
        };
        assert_eq!(outcome, 0, "sigaction");
    });
}

/// Runs `operation` and calls `on_step` after each of its instructions, from the call to its return.
pub fn step<R>(operation: impl FnOnce() -> R, on_step: &mut dyn FnMut(Place) -> bool) -> R {
    install_trap_handler();
    let mut on_step: OnStep<'_> = on_step;
    let mut stepped = Stepped { on_step: (&raw mut on_step).cast(), nr: 0 };
    STEPPED.set(&raw mut stepped);
    // SAFETY: a trap calls `on_trap`. Not `nostack`: the red zone is kept.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG) };
    let result = operation();
    // SAFETY: ends the stepping.
    unsafe { asm!("pushfq", "and qword ptr [rsp], {mask}", "popfq", mask = const !TRAP_FLAG) };
    STEPPED.set(ptr::null_mut());
    result
}

/// Whether the instruction there refers to GS: the only ones that notice a migration.
pub fn refers_to_gs(instruction: usize) -> bool {
    const GS: u8 = 0x65;
    const OTHER_PREFIXES: [u8; 10] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x66, 0x67, 0xf0, 0xf2, 0xf3];
    // SAFETY: the bytes of an instruction that is about to be executed; the longest has 15, of which the last is no prefix.
    (0..14)
        .map(|offset| unsafe { *(instruction as *const u8).add(offset) })
        .take_while(|byte| *byte == GS || OTHER_PREFIXES.contains(byte))
        .any(|byte| byte == GS)
}
