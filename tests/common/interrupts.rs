//! Signals as the interrupts of host threads.

use std::sync::Mutex;
use std::{mem, ptr};

/// The second of the signals may interrupt the handler of the first: with the task, three contexts nest.
const SIGNALS: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

/// Threads that can be interrupted, of a process that does so in one way only.
#[derive(Default)]
pub struct Interrupted(Mutex<Vec<libc::pthread_t>>);

impl Interrupted {
    /// Has signals call `handler` from now on.
    pub fn install(handler: extern "C" fn(signal: i32)) {
        for (signal, masked) in SIGNALS.into_iter().zip([&SIGNALS[..1], &SIGNALS[..]]) {
            // SAFETY: an all-zero `sigaction` is valid; the handler has the signature that it is called with.
            unsafe {
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigemptyset(&raw mut action.sa_mask);
                masked.iter().for_each(|&signal| {
                    libc::sigaddset(&raw mut action.sa_mask, signal);
                });
                assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0, "sigaction");
            }
        }
    }

    /// Whether a handler's signal is the one that cannot be interrupted.
    pub fn is_inner(signal: i32) -> bool {
        signal == SIGNALS[1]
    }

    /// The calling thread can be interrupted from now on.
    pub fn enter(&self) {
        // SAFETY: of the running thread.
        self.0.lock().unwrap().push(unsafe { libc::pthread_self() });
    }

    /// Waits until that many threads can be.
    pub fn wait_for(&self, nr_threads: usize) {
        while self.0.lock().unwrap().len() < nr_threads {
            std::thread::yield_now();
        }
    }

    /// Interrupts one of them, and its handler.
    ///
    /// # Safety
    ///
    /// The threads live.
    pub unsafe fn interrupt(&self, index: usize) {
        let threads = self.0.lock().unwrap();
        let thread = threads[index % threads.len()];
        // SAFETY: the caller's promise.
        SIGNALS.iter().for_each(|&signal| unsafe {
            libc::pthread_kill(thread, signal);
        });
    }
}
