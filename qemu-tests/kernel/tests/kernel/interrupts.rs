//! What per-CPU code stands on: interrupts arrive where they should and leave what they interrupt as it was.

use core::arch::asm;

use pcpu::CpuId;
use pcpu_boot::{apic, interrupts, time, timer};
use x86_64::instructions;

use crate::{
    harness::{Case, Outcome, cases, check, check_eq, on_all},
    ticker,
};

pub const CASES: &[Case] = cases![
    an_ipi_reaches_the_cpu_that_it_names,
    an_ipi_to_all_others_reaches_every_other_cpu,
    ipis_adding_to_a_static_lose_nothing,
    a_one_shot_timer_fires_once,
    interrupts_are_off_in_a_handler,
    a_handled_exception_returns,
    interrupts_preserve_sse_registers,
    interrupts_preserve_the_red_zone,
];

const VECTOR: u8 = 0x50;
const LIMIT_MICROS: u64 = 5_000_000;

pcpu::per_cpu! {
    static RECEIVED: u64 = 0;
    static HANDLED_WITH_INTERRUPTS_ON: u64 = 0;
    static SCRATCH: f64 = 1.0;
}

/// Waits for something that an interrupt does.
fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let limit = time::micros_since_boot() + LIMIT_MICROS;
    while time::micros_since_boot() < limit {
        if condition() {
            return true;
        }
        core::hint::spin_loop();
    }
    condition()
}

fn an_ipi_reaches_the_cpu_that_it_names() -> Outcome {
    interrupts::set_handler(VECTOR, |_| RECEIVED.inc());
    for target in CpuId::possible() {
        let before: u64 = RECEIVED.sum();
        let target_before = RECEIVED.get_on(target);
        apic::send(target, VECTOR);
        check!(eventually(|| RECEIVED.get_on(target) == target_before + 1), "CPU {target} got nothing");
        check_eq!(RECEIVED.sum(), before + 1);
    }
    Ok(())
}

fn an_ipi_to_all_others_reaches_every_other_cpu() -> Outcome {
    interrupts::set_handler(VECTOR, |_| RECEIVED.inc());
    let nr_others = CpuId::possible().len() as u64 - 1;
    for sender in CpuId::possible() {
        let before: u64 = RECEIVED.sum();
        let sender_before = RECEIVED.get_on(sender);
        on_all(|cpu| {
            if cpu == sender {
                apic::send_to_all_others(VECTOR);
            }
            Ok(())
        })?;
        check!(eventually(|| RECEIVED.sum() == before + nr_others), "{} of {nr_others} got it", RECEIVED.sum() - before);
        check_eq!(RECEIVED.get_on(sender), sender_before);
    }
    Ok(())
}

fn ipis_adding_to_a_static_lose_nothing() -> Outcome {
    const SENT: u64 = 200;
    interrupts::set_handler(VECTOR, |_| RECEIVED.inc());
    on_all(|cpu| {
        // Only its own are counted exactly: two that wait at once for the same CPU are one.
        let before = RECEIVED.get();
        for sent in 1..=SENT {
            apic::send(cpu, VECTOR);
            check!(eventually(|| RECEIVED.get() == before + sent), "interrupt {sent} is missing");
        }
        Ok(())
    })
}

fn a_one_shot_timer_fires_once() -> Outcome {
    interrupts::set_handler(VECTOR, |_| RECEIVED.inc());
    on_all(|_| {
        let before = RECEIVED.get();
        timer::once(1000, VECTOR);
        check!(eventually(|| RECEIVED.get() == before + 1), "it did not fire");
        time::spin_micros(5000);
        timer::stop();
        check_eq!(RECEIVED.get(), before + 1);
        Ok(())
    })
}

fn interrupts_are_off_in_a_handler() -> Outcome {
    ticker::set_handler(|_| {
        ticker::count();
        if instructions::interrupts::are_enabled() {
            HANDLED_WITH_INTERRUPTS_ON.inc();
        }
    });
    on_all(|_| {
        ticker::repeat_while_ticking(ticker::SOME, core::hint::spin_loop);
        Ok(())
    })?;
    check_eq!(HANDLED_WITH_INTERRUPTS_ON.sum(), 0);
    Ok(())
}

fn a_handled_exception_returns() -> Outcome {
    const BREAKPOINT: u8 = 3;
    interrupts::set_handler(BREAKPOINT, |_| RECEIVED.inc());
    on_all(|_| {
        let before = RECEIVED.get();
        instructions::interrupts::int3();
        instructions::interrupts::int3();
        check_eq!(RECEIVED.get(), before + 2);
        Ok(())
    })
}

/// A tick that uses registers and stack as freely as it may.
fn busy_tick(_: &interrupts::Frame) {
    ticker::count();
    // SAFETY: this CPU's own value, which only this handler uses, and nothing interrupts it.
    unsafe {
        let scratch = SCRATCH.this_ptr();
        scratch.write(scratch.read() * 1.000_001 + 0.5);
        asm!("pcmpeqd xmm7, xmm7", "pcmpeqd xmm15, xmm15", out("xmm7") _, out("xmm15") _, options(nomem, nostack));
    }
}

fn interrupts_preserve_sse_registers() -> Outcome {
    ticker::set_handler(busy_tick);
    on_all(|cpu| {
        let mut spoilt = 0_u64;
        ticker::repeat_while_ticking(ticker::SOME, || {
            let expected = 0x0123_4567_89ab_cdef ^ cpu.index() as u64;
            let (seven, fifteen): (u64, u64);
            // SAFETY: registers only.
            unsafe {
                asm!("movq xmm7, {value}", "movq xmm15, {value}", "2: dec {count}", "jnz 2b", "movq {seven}, xmm7", "movq {fifteen}, xmm15",
                    value = in(reg) expected, count = inout(reg) 10_000_u64 => _, seven = out(reg) seven, fifteen = out(reg) fifteen,
                    out("xmm7") _, out("xmm15") _, options(nomem, nostack));
            }
            spoilt += u64::from((seven, fifteen) != (expected, expected));
        });
        check_eq!(spoilt, 0);
        Ok(())
    })
}

fn interrupts_preserve_the_red_zone() -> Outcome {
    ticker::set_handler(busy_tick);
    on_all(|cpu| {
        let mut spoilt = 0_u64;
        ticker::repeat_while_ticking(ticker::SOME, || {
            let expected = 0x0123_4567_89ab_cdef ^ cpu.index() as u64;
            let (near, far): (u64, u64);
            // SAFETY: not `nostack`, so the compiler keeps nothing of its own below the stack pointer meanwhile.
            unsafe {
                asm!("mov [rsp - 8], {value}", "mov [rsp - 128], {value}", "2: dec {count}", "jnz 2b", "mov {near}, [rsp - 8]",
                    "mov {far}, [rsp - 128]", value = in(reg) expected, count = inout(reg) 10_000_u64 => _, near = out(reg) near,
                    far = out(reg) far);
            }
            spoilt += u64::from((near, far) != (expected, expected));
        });
        check_eq!(spoilt, 0);
        Ok(())
    })
}
