//! Processes on their way to another CPU.

use super::process::Process;
use crate::strategy::Strategy;
use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicUsize, Ordering};
use spin::mutex::SpinMutex;

/// A CPU's mailbox. Aligned to two cache lines, which the CPU prefetches as a pair.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Mailbox<S: Strategy> {
    /// The queue's length, so that a look into an empty mailbox costs no lock.
    waiting: AtomicUsize,
    queue: SpinMutex<VecDeque<Process<S>>>,
}

impl<S: Strategy> Mailbox<S> {
    pub(super) fn new(capacity: usize) -> Self {
        Mailbox { waiting: AtomicUsize::new(0), queue: SpinMutex::new(VecDeque::with_capacity(capacity)) }
    }

    /// Puts `process` in, or gives it back when the mailbox has so many, or is in use.
    pub(super) fn put(&self, process: Process<S>, capacity: usize) -> Option<Process<S>> {
        match self.queue.try_lock() {
            Some(mut queue) if queue.len() < capacity => {
                queue.push_back(process);
                self.waiting.store(queue.len(), Ordering::Relaxed);
                None
            }
            _ => Some(process),
        }
    }

    /// Moves up to `room` processes to `queue`.
    pub(super) fn empty_into(&self, queue: &mut VecDeque<Process<S>>, room: usize) {
        if room == 0 || self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut arrived = self.queue.lock();
        let taken = room.min(arrived.len());
        queue.extend(arrived.drain(..taken));
        self.waiting.store(arrived.len(), Ordering::Relaxed);
    }
}
