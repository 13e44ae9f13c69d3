//! What `counters!` and `per_cpu!` take.

mod common;

use common::machine;
use pcpu::{CounterIndex, LazyCounterSet, counters, per_cpu};

/// A block of statics with these names, of two kinds in turns.
macro_rules! block {
    ($($event:ident $counter:ident)*) => {
        counters! {
            $(
                /// Counts events,
                /// with two lines to say so.
                static $event: EventCounter = "declare.event";
                static $counter: Counter = 1, batch: pcpu::Batch::DEFAULT;
            )*
        }

        /// All of them, once, with how often they were.
        fn inc_all() -> Vec<(u64, i64)> {
            vec![$({
                $event.inc();
                $counter.inc();
                ($event.sum(), $counter.sum())
            }),*]
        }
    };
}

block! {
    A0 A1 A2 A3 A4 A5 A6 A7 A8 A9 B0 B1 B2 B3 B4 B5 B6 B7 B8 B9
    C0 C1 C2 C3 C4 C5 C6 C7 C8 C9 D0 D1 D2 D3 D4 D5 D6 D7 D8 D9
    E0 E1 E2 E3 E4 E5 E6 E7 E8 E9 F0 F1 F2 F3 F4 F5 F6 F7 F8 F9
    G0 G1 G2 G3 G4 G5 G6 G7 G8 G9 H0 H1 H2 H3 H4 H5 H6 H7 H8 H9
    I0 I1 I2 I3 I4 I5 I6 I7 I8 I9 J0 J1 J2 J3 J4 J5 J6 J7 J8 J9
    K0 K1 K2 K3 K4 K5 K6 K7 K8 K9 L0 L1 L2 L3 L4 L5 L6 L7 L8 L9
    M0 M1 M2 M3 M4 M5 M6 M7 M8 M9 N0 N1 N2 N3 N4 N5 N6 N7 N8 N9
    O0 O1 O2 O3 O4 O5 O6 O7 O8 O9 P0 P1 P2 P3 P4 P5 P6 P7 P8 P9
    Q0 Q1 Q2 Q3 Q4 Q5 Q6 Q7 Q8 Q9 R0 R1 R2 R3 R4 R5 R6 R7 R8 R9
    S0 S1 S2 S3 S4 S5 S6 S7 S8 S9 T0 T1 T2 T3 T4 T5 T6 T7 T8 T9
}

/// A static with a line of documentation for each of these.
macro_rules! documented {
    ($($line:literal)*) => {
        per_cpu! {
            $(#[doc = $line])*
            static LONG: u64 = 0;
        }
        counters! {
            $(#[doc = $line])*
            static LONG_EVENTS: EventCounter;
        }
    };
}

documented! {
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
    "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line" "line"
}

counters! {
    /// Some that are there, and some that are not.
    #[repr(u8)]
    enum Kind {
        #[cfg(not(test))]
        Never,
        /// The first.
        First,
        /// Not there,
        #[cfg(any())]
        #[cfg(test)]
        /// whatever is.
        Neither,
        #[cfg(test)]
        Last,
    }
    #[cfg_attr(all(), cfg(any()))]
    static ABSENT: EventCounter = "declare.absent";
    #[cfg_attr(test, cfg(test))]
    static PRESENT: EventCounter = "declare.present";
    static BY_KIND: CounterSet<Kind::COUNT>;
    static WITH_INITIAL: CounterSet<Kind::COUNT> = [3, 4];
}

#[test]
fn a_block_may_be_long() {
    machine(2).run(1, |_| {
        assert_eq!(inc_all(), [(1, 2); 100]);
        assert_eq!(pcpu::named_counters().iter().filter(|counter| counter.name() == "declare.event").count(), 100);
    });
}

#[test]
fn documentation_may_be_long() {
    machine(2).run(1, |_| {
        LONG.inc();
        LONG_EVENTS.inc();
        assert_eq!((LONG.sum(), LONG_EVENTS.sum()), (1, 1));
    });
}

#[test]
fn variants_and_statics_may_depend_on_the_configuration() {
    assert_eq!(Kind::ALL, [Kind::First, Kind::Last]);
    assert_eq!(Kind::ALL.map(CounterIndex::<2>::index), [0, 1]);
    machine(2).run(1, |_| {
        PRESENT.inc();
        BY_KIND.add(Kind::Last, 2);
        assert_eq!((BY_KIND.sum_all(), WITH_INITIAL.sum_all()), ([0, 2], [3, 4]));
        let lazy = LazyCounterSet::new([0; Kind::COUNT]);
        lazy.inc(Kind::First);
        assert_eq!(lazy.sum_all(), [1, 0]);
    });
}
