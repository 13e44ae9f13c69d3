//! Stops the running thread after each of an operation's instructions, by the trap flag.
//!
//! The trap handler is an ordinary call on the thread's own stack (below the red zone, which the kernel leaves alone), made between two
//! instructions of the operation and with this CPU's GS base: what it does is what an interrupt or the scheduler could do there.

use core::arch::asm;
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::{mem, ptr};
use std::sync::Once;

const TRAP_FLAG: i64 = 1 << 8;

/// The gap between two instructions.
#[derive(Clone, Copy)]
pub struct Gap {
    /// How many instructions were executed since the operation began.
    pub nr: usize,
    /// The next instruction's address.
    next: usize,
}

impl Gap {
    /// Whether the next instruction refers to GS: the only ones that notice a migration. So all gaps between two of them are alike to it.
    pub fn is_before_gs(&self) -> bool {
        self.has_prefix(0x65)
    }

    /// Whether the next instruction is a locked one.
    pub fn is_before_lock(&self) -> bool {
        self.has_prefix(0xf0)
    }

    fn has_prefix(&self, prefix: u8) -> bool {
        const PREFIXES: [u8; 11] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3];
        // SAFETY: bytes of an instruction that is about to be executed; no prefix is its last byte.
        let bytes = (0..).map(|offset| unsafe { *(self.next as *const u8).add(offset) });
        bytes.take_while(|byte| PREFIXES.contains(byte)).any(|byte| byte == prefix)
    }
}

/// Called in each gap; `false` lets the rest of the operation run undisturbed.
type OnGap<'a> = &'a mut dyn FnMut(Gap) -> bool;

/// The operation that this thread is in.
struct Stepped<'a> {
    on_gap: OnGap<'a>,
    nr: usize,
}

thread_local! {
    /// The innermost operation: a handler may step another one.
    static STEPPED: Cell<*mut Stepped<'static>> = const { Cell::new(ptr::null_mut()) };
}

extern "C" fn on_trap(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the interrupted context; `step` put its record there and is still running.
    let (context, stepped) = unsafe { (&mut *context.cast::<libc::ucontext_t>(), &mut *STEPPED.get()) };
    stepped.nr += 1;
    let gap = Gap { nr: stepped.nr, next: context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    if !(stepped.on_gap)(gap) {
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
            // Not deferred: an operation that runs in a gap may be stepped itself.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut())
        };
        assert_eq!(outcome, 0, "sigaction");
    });
}

/// Runs `operation` and calls `on_gap` after each of its instructions, from the call to its return.
pub fn step<R>(operation: impl FnOnce() -> R, on_gap: &mut dyn FnMut(Gap) -> bool) -> R {
    install_trap_handler();
    let mut stepped = Stepped { on_gap, nr: 0 };
    let outer = STEPPED.replace((&raw mut stepped).cast());
    // SAFETY: a trap calls `on_trap`. Not `nostack`, so the red zone is kept.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG) };
    let result = operation();
    // SAFETY: ends the stepping.
    unsafe { asm!("pushfq", "and qword ptr [rsp], {mask}", "popfq", mask = const !TRAP_FLAG) };
    STEPPED.set(outer);
    result
}
