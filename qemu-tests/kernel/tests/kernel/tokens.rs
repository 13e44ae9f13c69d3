//! Tokens: interrupts are really off while one is held, and back as they were afterwards.

use core::cell::Cell;

use pcpu::Local;
use pcpu_boot::time;
use x86_64::instructions::interrupts;

use crate::{
    harness::{Case, Outcome, cases, check, check_eq, on_all},
    ticker,
};

pub const CASES: &[Case] = cases![
    interrupts_are_off_while_the_token_lives_and_on_again_after,
    nested_tokens_leave_interrupts_off_until_the_outermost_ends,
    interrupts_that_were_off_stay_off,
    no_tick_is_taken_while_a_token_lives,
    a_cell_that_ticks_update_too_loses_nothing,
];

pcpu::per_cpu! {
    static CELL: Local<Cell<u64>> = Local::new(Cell::new(0));
}

fn interrupts_are_off_while_the_token_lives_and_on_again_after() -> Outcome {
    on_all(|_| {
        check!(interrupts::are_enabled());
        check!(!pcpu::with_irqs_off(|_| interrupts::are_enabled()));
        check!(interrupts::are_enabled());
        check!(!pcpu::with_pin(|_| interrupts::are_enabled()));
        check!(interrupts::are_enabled());
        Ok(())
    })
}

fn nested_tokens_leave_interrupts_off_until_the_outermost_ends() -> Outcome {
    on_all(|_| {
        let (inside, between) = pcpu::with_irqs_off(|_| {
            let inside = pcpu::with_irqs_off(|_| pcpu::with_pin(|_| interrupts::are_enabled()));
            (inside, interrupts::are_enabled())
        });
        check!(!inside);
        check!(!between, "the inner token's end turned interrupts on");
        check!(interrupts::are_enabled());
        Ok(())
    })
}

fn interrupts_that_were_off_stay_off() -> Outcome {
    on_all(|_| {
        interrupts::disable();
        pcpu::with_irqs_off(|_| ());
        let after = interrupts::are_enabled();
        interrupts::enable();
        check!(!after);
        Ok(())
    })
}

fn no_tick_is_taken_while_a_token_lives() -> Outcome {
    ticker::set_handler(|_| ticker::count());
    on_all(|cpu| {
        let mut worst = 0;
        ticker::repeat_while_ticking(ticker::SOME, || {
            let taken = pcpu::with_irqs_off(|_| {
                let before = ticker::taken_on(cpu);
                time::spin_micros(600);
                ticker::taken_on(cpu) - before
            });
            worst = taken.max(worst);
        });
        check_eq!(worst, 0);
        Ok(())
    })
}

fn a_cell_that_ticks_update_too_loses_nothing() -> Outcome {
    const BY_TICK: u64 = 1 << 32;
    ticker::set_handler(|_| {
        ticker::count();
        // SAFETY: interrupts are off in a handler.
        unsafe {
            pcpu::assume_irqs_off(|irqs_off| {
                let cell = CELL.borrow_irqs_off(irqs_off);
                cell.set(cell.get() + BY_TICK);
            })
        }
    });
    on_all(|cpu| {
        let ticks_before = ticker::taken_on(cpu);
        pcpu::with_irqs_off(|irqs_off| CELL.borrow_irqs_off(irqs_off).set(0));
        let mut own = 0;
        ticker::repeat_while_ticking(ticker::MANY, || {
            pcpu::with_irqs_off(|irqs_off| {
                let cell = CELL.borrow_irqs_off(irqs_off);
                cell.set(cell.get() + 1);
            });
            own += 1;
        });
        let found = pcpu::with_irqs_off(|irqs_off| CELL.borrow_irqs_off(irqs_off).get());
        check_eq!(found, own + (ticker::taken_on(cpu) - ticks_before) * BY_TICK);
        Ok(())
    })
}
