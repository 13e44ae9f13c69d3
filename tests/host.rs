//! The host harness itself: threads without a machine, and runs that go wrong.

mod common;

use common::machine;
use core::cell::Cell;
use pcpu::{Counter, CpuId, Local, per_cpu, with_irqs_off, with_pin};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const NR_CPUS: usize = 64;

per_cpu! {
    static DEPTH: Local<Cell<usize>> = Local::new(Cell::new(0));
}

/// Runs `f`, the body of the test of that name, in a process that nothing else happened in, or fails if it does not end.
fn in_a_process_of_its_own(test: &str, f: impl FnOnce()) {
    const IS_CHILD: &str = "PCPU_TEST_IS_CHILD";
    if std::env::var_os(IS_CHILD).is_some() {
        return f();
    }
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program).args(["--exact", test, "--nocapture"]).env(IS_CHILD, "").stdout(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
}

/// The message of the panic that `f` must end in.
fn panic_of(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().expect("a message").to_string(),
    }
}

#[test]
fn without_a_machine_one_thread_at_a_time_has_a_token() {
    in_a_process_of_its_own("without_a_machine_one_thread_at_a_time_has_a_token", || {
        const NR_THREADS: usize = 4;
        const NR_ROUNDS: usize = 20_000;
        // Not atomic: two threads at once would lose some.
        let add = || {
            with_irqs_off(|irqs_off| {
                let depth = DEPTH.borrow_irqs_off(irqs_off);
                let before = depth.get();
                // Neither a nested token nor a pin ends it.
                with_irqs_off(|_| ());
                with_pin(|_| core::hint::black_box(depth));
                depth.set(before + 1);
            })
        };
        std::thread::scope(|scope| {
            for _ in 0..NR_THREADS {
                scope.spawn(|| (0..NR_ROUNDS).for_each(|_| add()));
            }
        });
        assert_eq!(with_irqs_off(|irqs_off| DEPTH.borrow_irqs_off(irqs_off).get()), NR_THREADS * NR_ROUNDS);
        // A panic gives it back.
        assert_eq!(panic_of(|| with_irqs_off(|_| panic!("inside"))), "inside");
        std::thread::scope(|scope| scope.spawn(add).join()).unwrap();
        // The boot CPU's copy is the template's.
        let seen = machine(2).run(2, |_| with_irqs_off(|irqs_off| DEPTH.borrow_irqs_off(irqs_off).get()));
        assert_eq!(seen, [NR_THREADS * NR_ROUNDS + 1, 0]);
    });
}

#[test]
fn threads_are_named_after_their_cpus() {
    let names = machine(NR_CPUS).run(3, |_| std::thread::current().name().map(str::to_string));
    let names: Vec<_> = names.iter().map(Option::as_deref).collect();
    assert_eq!(names, [Some("cpu 0"), Some("cpu 1"), Some("cpu 2")]);
}

#[test]
fn when_a_cpu_panics_the_results_of_the_others_are_dropped_on_them() {
    static DROPPED: Mutex<Vec<(CpuId, CpuId)>> = Mutex::new(Vec::new());
    struct OnCpu(CpuId);
    impl Drop for OnCpu {
        fn drop(&mut self) {
            DROPPED.lock().unwrap().push((self.0, CpuId::current()));
        }
    }
    for nr_panicking in 0..3 {
        let message = panic_of(|| {
            machine(NR_CPUS).run(3, |cpu| {
                if cpu.index() == nr_panicking {
                    panic!("CPU {cpu} fails");
                }
                OnCpu(cpu)
            });
        });
        assert_eq!(message, format!("CPU {nr_panicking} fails"));
        let mut dropped = core::mem::take(&mut *DROPPED.lock().unwrap());
        dropped.sort();
        let others: Vec<_> = (0..3).filter(|&cpu| cpu != nr_panicking).collect();
        assert_eq!(dropped.iter().map(|(cpu, _)| cpu.index()).collect::<Vec<_>>(), others);
        assert!(dropped.iter().all(|(made_on, dropped_on)| made_on == dropped_on));
    }
    assert_eq!(machine(NR_CPUS).run(3, |cpu| cpu.index()), [0, 1, 2]);
}

#[test]
fn a_host_that_refuses_a_thread_ends_the_run_and_not_the_next_one() {
    in_a_process_of_its_own("a_host_that_refuses_a_thread_ends_the_run_and_not_the_next_one", || {
        let machine = machine(NR_CPUS);
        machine.run(1, |_| ());
        let pages_used: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
        // Room for the stacks of some threads, 2 MiB each, and not of all; half a stack is left for what else they need.
        let limit = |bytes| {
            let limits = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: reads the limits, and changes nothing else in this process.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limits) }, 0);
        };
        limit(pages_used * 4096 + (21 << 20));
        let message = panic_of(|| {
            machine.run(NR_CPUS, |_| unreachable!("not all CPUs are there"));
        });
        limit(libc::RLIM_INFINITY);
        assert!(message.starts_with("the host has no thread for CPU "), "{message}");
        assert_eq!(machine.run(NR_CPUS, |cpu| cpu.index()).len(), NR_CPUS);
    });
}

#[test]
fn a_cpu_that_somebody_else_installed_ends_the_run() {
    in_a_process_of_its_own("a_cpu_that_somebody_else_installed_ends_the_run", || {
        let machine = machine(NR_CPUS);
        let cpu = machine.run(1, |_| CpuId::new(1).expect("possible")).remove(0);
        // SAFETY: the thread is that CPU, if only for a moment.
        std::thread::spawn(move || unsafe { pcpu::install(cpu) }).join().unwrap().unwrap();
        let message = panic_of(|| {
            machine.run(3, |_| unreachable!("not all CPUs are there"));
        });
        assert_eq!(message, "CPU 1: that CPU is installed already");
        assert_eq!(machine.run(1, |cpu| cpu), [CpuId::BOOT]);
    });
}

#[test]
fn a_thread_that_is_no_cpu_is_told_why_it_dies() {
    const IS_CHILD: &str = "PCPU_TEST_TOUCHES";
    if std::env::var_os(IS_CHILD).is_some() {
        let counter = machine(NR_CPUS).on_boot_cpu(|| Counter::new(0).unwrap());
        counter.add(1);
        unreachable!();
    }
    let program = std::env::current_exe().unwrap();
    let test = "a_thread_that_is_no_cpu_is_told_why_it_dies";
    let output = Command::new(program).args(["--exact", test, "--nocapture"]).env(IS_CHILD, "").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{stderr}");
    assert_eq!(stderr.matches("inside `Machine::run`").count(), 1, "{stderr}");
}

#[test]
fn what_runs_share_is_made_and_dropped_on_a_cpu() {
    let machine = machine(NR_CPUS);
    let counter = machine.on_boot_cpu(|| Counter::new(5).unwrap());
    machine.run(NR_CPUS, |_| counter.inc());
    assert_eq!(machine.on_boot_cpu(move || counter.sum()), 5 + NR_CPUS as i64);
    let panic = panic_of(|| machine.on_boot_cpu(|| panic!("as this says")));
    assert_eq!(panic, "as this says");
}
