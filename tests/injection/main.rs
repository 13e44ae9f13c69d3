mod stepper;
use pcpu::host::Machine;
use pcpu::*;
use std::time::Instant;

fn measure(name: &str, mut op: impl FnMut()) {
    let mut n = 0;
    let mut gs = 0;
    let mut on = 0;
    let t = Instant::now();
    stepper::step(&mut op, &mut |p| {
        n = p.nr;
        gs += stepper::refers_to_gs(p.next_instruction) as usize;
        on += pcpu::host::irqs_are_on() as usize;
        true
    });
    println!("{name}: n={n} gs={gs} irqs_on={on} {:?}/step", t.elapsed() / n as u32);
}

#[test]
fn measure_all() {
    let m = unsafe { Machine::boot(3) }.unwrap();
    m.run(1, |_| {
        let mut h = Vec::with_capacity(1000);
        h.push(alloc::allocate(16, 8, AllocFlags::PROCESS).unwrap());
        for _ in 0..100 {
            h.push(alloc::allocate(16, 8, AllocFlags::PROCESS).unwrap());
        }
        for _ in 0..80 {
            unsafe { alloc::free_clean(h.pop().unwrap(), 16, 8) };
        }
        for _ in 0..3 {
            measure("allocate", || {
                h.push(alloc::allocate(16, 8, AllocFlags::PROCESS).unwrap());
            });
        }
        for _ in 0..3 {
            measure("free_clean", || unsafe { alloc::free_clean(h.pop().unwrap(), 16, 8) });
        }
        measure("free", || unsafe { alloc::free(h.pop().unwrap(), 16, 8) });
        alloc::drain_this_cpu();
        measure("allocate miss", || {
            h.push(alloc::allocate(16, 8, AllocFlags::PROCESS).unwrap());
        });
        measure("allocate ", || {
            h.push(alloc::allocate(16, 8, AllocFlags::PROCESS).unwrap());
        });
        for _ in 0..100 {
            h.push(alloc::allocate(16, 8, AllocFlags::PROCESS).unwrap());
        }
        for _ in 0..40 {
            measure("free ?", || unsafe { alloc::free_clean(h.pop().unwrap(), 16, 8) });
        }
        measure("prefill", || alloc::prefill(64, 8, 32).unwrap());
        measure("drain", || alloc::drain_this_cpu());
        let c = Counter::new(0).unwrap();
        measure("add first", || c.add(1));
        measure("add hit", || c.add(1));
        measure("add post", || c.add(31));
        measure("add pinned", || with_pin(|p| c.add_pinned(p, 1)));
        measure("sum", || {
            c.sum();
        });
        let s = CounterSet::<4>::new([0; 4]).unwrap();
        measure("set add", || s.add(1, 3));
        measure("set sum_all", || {
            s.sum_all();
        });
        measure("counter new", || drop(Counter::new(5).unwrap()));
        measure("box", || drop(PerCpuBox::<u64>::zeroed().unwrap()));
        let t = Instant::now();
        for _ in 0..20 {
            alloc::stats();
        }
        println!("stats {:?}", t.elapsed() / 20);
        let t = Instant::now();
        for _ in 0..20 {
            alloc::check();
        }
        println!("check {:?}", t.elapsed() / 20);
        let t = Instant::now();
        for _ in 0..20 {
            alloc::drain_this_cpu();
        }
        println!("drain {:?}", t.elapsed() / 20);
    });
}
