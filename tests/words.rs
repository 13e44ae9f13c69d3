//! Operations on words: every type, on this CPU's copy alone.

mod common;

use common::machine;
use core::ptr;
use pcpu::{CpuId, field, per_cpu};

const NR_CPUS: usize = 4;

macro_rules! integer_tests {
    ($($int:ident)*) => {$(
        #[test]
        fn $int() {
            per_cpu! {
                static WORD: $int = 5;
            }
            machine(NR_CPUS).run(NR_CPUS, |cpu| {
                let own = cpu.as_u32() as $int;
                assert_eq!(WORD.get(), 5);
                WORD.set(10 + own);
                WORD.add(7);
                WORD.sub(3);
                WORD.inc();
                WORD.dec();
                assert_eq!(WORD.get(), 14 + own);
                assert_eq!(WORD.add_return(2), 16 + own);
                assert_eq!(WORD.swap(0b1100), 16 + own);
                WORD.and(0b0110);
                assert_eq!(WORD.get(), 0b0100);
                WORD.or(0b0011);
                assert_eq!(WORD.get(), 0b0111);
                WORD.xor(0b0101);
                assert_eq!(WORD.get(), 0b0010);
                assert_eq!(WORD.compare_exchange(3, 9), Err(2));
                assert_eq!(WORD.get(), 2);
                assert_eq!(WORD.compare_exchange(2, $int::MAX), Ok(2));
                assert_eq!(WORD.get(), $int::MAX);
                WORD.inc();
                assert_eq!(WORD.get(), $int::MIN, "wraps");
                WORD.dec();
                assert_eq!(WORD.get(), $int::MAX, "wraps back");
                assert_eq!(WORD.add_return(1), $int::MIN);
                WORD.set(own);
            });
            machine(NR_CPUS).run(1, |_| {
                for cpu in CpuId::possible() {
                    assert_eq!(WORD.get_on(cpu), cpu.as_u32() as $int);
                }
                assert_eq!(WORD.sum(), 0 + 1 + 2 + 3);
            });
        }
    )*};
}

integer_tests! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }

per_cpu! {
    static FLAG: bool = true;
    static FLAG_NEIGHBOURS: [u8; 2] = [0xaa, 0xaa];
    static POINTER: *mut u32 = ptr::null_mut();
    static CONST_POINTER: *const u32 = ptr::null();
}

#[test]
fn booleans_load_store_and_exchange() {
    machine(NR_CPUS).run(NR_CPUS, |cpu| {
        assert!(FLAG.get());
        assert!(FLAG.swap(false));
        assert!(!FLAG.get());
        assert_eq!(FLAG.compare_exchange(true, true), Err(false));
        assert_eq!(FLAG.compare_exchange(false, true), Ok(false));
        FLAG.set(cpu.index() % 2 == 1);
    });
    machine(NR_CPUS).run(1, |_| {
        assert_eq!(CpuId::possible().map(|cpu| FLAG.get_on(cpu)).collect::<Vec<_>>(), [false, true, false, true]);
    });
}

#[test]
fn pointers_keep_pointing_where_they_did() {
    let mut target = [1u32, 2, 3, 4];
    let start = target.as_mut_ptr().expose_provenance();
    machine(NR_CPUS).run(NR_CPUS, |cpu| {
        let own = ptr::with_exposed_provenance_mut::<u32>(start).wrapping_add(cpu.index());
        assert!(POINTER.get().is_null() && CONST_POINTER.get().is_null());
        assert_eq!(POINTER.compare_exchange(ptr::null_mut(), own), Ok(ptr::null_mut()));
        CONST_POINTER.set(POINTER.swap(own));
        // SAFETY: each CPU's element is its own.
        unsafe { *POINTER.get() += *CONST_POINTER.get() };
    });
    assert_eq!(target, [2, 4, 6, 8]);
}

struct Outer {
    narrow: u8,
    inner: Inner,
    last: u16,
}

struct Inner {
    before: u32,
    counted: i64,
    flag: bool,
}

per_cpu! {
    static OUTER: Outer = Outer { narrow: 0xff, inner: Inner { before: u32::MAX, counted: -1, flag: false }, last: u16::MAX };
}

#[test]
fn a_fields_operations_touch_that_field_only() {
    machine(NR_CPUS).run(NR_CPUS, |cpu| {
        field!(OUTER, inner.counted).add(1 + cpu.index() as i64);
        field!(OUTER, narrow).inc();
        field!(OUTER, inner.flag).set(true);
        let inner = field!(OUTER, inner);
        field!(inner => Inner, counted).inc();
        assert_eq!(field!(OUTER, narrow).get(), 0);
        assert_eq!(field!(OUTER, inner.before).get(), u32::MAX);
        assert_eq!(field!(OUTER, inner.counted).get(), 1 + cpu.index() as i64);
        assert!(field!(OUTER, inner.flag).get());
        assert_eq!(field!(OUTER, last).get(), u16::MAX);
        // SAFETY: nothing writes while this reads.
        unsafe { assert_eq!((*OUTER.this_ptr()).inner.counted, 1 + cpu.index() as i64) };
    });
    machine(NR_CPUS).run(1, |_| assert_eq!(field!(OUTER, inner.counted).sum(), 4 + 1 + 2 + 3));
}

#[test]
fn another_cpus_copy_is_where_ptr_on_says() {
    per_cpu! {
        static HERE: u32 = 0;
    }
    machine(NR_CPUS).run(NR_CPUS, |cpu| {
        assert_eq!(HERE.this_ptr(), HERE.ptr_on(cpu));
        HERE.set(cpu.as_u32() + 1);
    });
    machine(NR_CPUS).run(1, |_| {
        for cpu in CpuId::possible() {
            // SAFETY: no other CPU runs.
            assert_eq!(unsafe { *HERE.ptr_on(cpu) }, cpu.as_u32() + 1);
        }
    });
}

#[test]
fn a_variables_names_do_not_capture_the_users() {
    const TEMPLATE: u32 = 7;
    const VALUE: u32 = TEMPLATE + 1;
    mod inner {
        pub const RECORD: u32 = 9;
        pcpu::per_cpu! {
            pub static PRISTINE: u32 = RECORD;
        }
    }
    per_cpu! {
        static RECORD: u32 = VALUE;
    }
    machine(NR_CPUS).run(1, |_| assert_eq!((RECORD.get(), inner::PRISTINE.get()), (8, 9)));
}

#[test]
fn a_static_add_from_all_cpus_loses_nothing() {
    per_cpu! {
        static ADDED: u64 = 0;
    }
    let rounds = 200_000;
    machine(NR_CPUS).run(NR_CPUS, |_| (0..rounds).for_each(|_| ADDED.inc()));
    machine(NR_CPUS).run(1, |_| {
        for cpu in CpuId::possible() {
            assert_eq!(ADDED.get_on(cpu), rounds);
        }
    });
}

per_cpu! {
    /// Neither the type nor the value is there.
    #[cfg(not(all()))]
    static LEFT_OUT: NoSuchType = NO_SUCH_VALUE;
    #[cfg(all())]
    #[allow(dead_code)]
    static LEFT_IN: u8 = 1;
}

pcpu::counters! {
    #[cfg(not(all()))]
    enum LeftOutNames { One }
    #[cfg(not(all()))]
    static LEFT_OUT_EVENTS: EventCounter = "left.out";
    #[cfg(not(all()))]
    static LEFT_OUT_COUNTER: Counter = NO_SUCH_VALUE;
}

#[test]
fn a_variable_can_depend_on_a_condition() {
    machine(NR_CPUS).run(1, |_| assert_eq!(LEFT_IN.get(), 1));
    assert!(pcpu::named_counters().iter().all(|counter| counter.name() != "left.out"));
}
