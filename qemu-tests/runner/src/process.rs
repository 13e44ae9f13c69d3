//! A child process that never outlives its runner.
//!
//! Three nets, as none alone is enough: the child is killed when its [`Guarded`] is dropped; a handler for the signals that
//! end the runner kills every child first; and on Linux the kernel kills a child whose parent died without either.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Process groups that run. A group leaves the list before its leader is reaped, so that no signal goes to a number that
/// the system has given to someone else.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<Pid>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is done when a signal ends this process.
type Farewell = Box<dyn FnOnce(i32) + Send>;

static FAREWELL: Mutex<Option<Farewell>> = Mutex::new(None);

/// Calls `farewell` with the number of the SIGINT, SIGTERM or SIGHUP that ends this process, when every [`Guarded`] child is killed already.
/// When it returns, the signal does as without a handler. Takes the place of an earlier one's.
pub fn on_signal(farewell: impl FnOnce(i32) + Send + 'static) {
    *FAREWELL.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(farewell));
    handle_signals();
}

/// How often a child whose end is near is asked whether it has ended.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// A running child that does not outlive this process.
///
/// It has a process group of its own: a terminal's Ctrl-C goes to this process only, which kills the child and all of its group. So do
/// SIGTERM, SIGHUP, and dropping this. On Linux the child also ends when the thread that started it dies in any other way.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    group: Pid,
}

impl Guarded {
    /// Starts the command.
    ///
    /// # Errors
    /// The system cannot start it.
    pub fn spawn(command: &mut Command) -> io::Result<Guarded> {
        handle_signals();
        command.process_group(0);
        die_with_parent(command);
        // The lock is held from before the fork, so that a signal cannot miss a child that is not listed yet.
        let mut running = running();
        let child = command.spawn()?;
        let group = Pid::from_raw(child.id().cast_signed());
        running.push(group);
        Ok(Guarded { child, group })
    }

    /// The child's stdout, once, if the command had it piped.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The child's stderr, once, if the command had it piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits until the child has ended, and returns how. Never returns once a signal ends this process.
    ///
    /// # Errors
    /// The system does not know the child.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            // Not a wait in the system: the lock of `try_wait` must stay free for the handler of signals.
            match self.try_wait()? {
                Some(status) => return Ok(status),
                None => thread::sleep(POLL),
            }
        }
    }

    /// How the child ended, if it has.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut running = running();
        let status = self.child.try_wait()?;
        if status.is_some() {
            running.retain(|group| *group != self.group);
        }
        Ok(status)
    }

    /// Ends the child and everything in its group, at once.
    pub(crate) fn kill(&mut self) {
        let mut running = running();
        if running.contains(&self.group) {
            // It fails only if the group is gone already.
            let _ = killpg(self.group, Signal::SIGKILL);
            running.retain(|group| *group != self.group);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Lets SIGINT, SIGTERM and SIGHUP kill every child, and say farewell, before they end this process as they would without a handler.
fn handle_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Never released: no child may start any more, and nobody learns that one was killed and takes it for a failure.
                let running = running();
                for group in running.iter() {
                    let _ = killpg(*group, Signal::SIGKILL);
                }
                let farewell = FAREWELL.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(farewell) = farewell {
                    farewell(signal);
                }
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
    });
}

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let ask = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the call, which then asks about the process that inherited this one.
        if nix::unistd::getppid() != parent {
            return Err(Errno::ESRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and returns; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command) {}
