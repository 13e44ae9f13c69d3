//! `counters!`.

/// Declares static counters, and enums that name the counters of a set.
///
/// ```text
/// static NAME: Counter;                        an approximate counter
/// static NAME: Counter = 100;                  with an initial value,
/// static NAME: Counter = 100, batch: BATCH;    and a batch, a constant
/// static NAME: CounterSet<N>;                  a set, with the same options: = [1, 2, 3], batch: BATCH
/// static NAME: EventCounter;                   counts events
/// static NAME: EventCounter = "a.name";        and is in the registry
/// static NAME: HighWater;                      a high-water mark, with or without a name
/// enum Name { One, Two }                       names the counters of a set of two
/// ```
///
/// Doc comments and visibilities are allowed everywhere, `cfg` on items but not on an enum's variants. A block of more than about a hundred items
/// exceeds the compiler's recursion limit: begin another one. All counters work on the boot CPU before [`init`](crate::init), and what they
/// counted by then is counted once.
///
/// An enum has its variants in order as `ALL`, and their number as `COUNT`:
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// pcpu::counters! {
///     /// What an address space has in memory, in pages.
///     pub enum Rss { File, Anon, Swap, Shmem }
///
///     /// The same for the whole machine.
///     pub static RESIDENT: CounterSet<{ Rss::COUNT }>;
///     /// Bytes that are free, in batches of a page.
///     static FREE_BYTES: Counter = 1 << 20, batch: pcpu::Batch::new(4096).unwrap();
///     static FAULTS: EventCounter = "mm.faults";
/// }
///
/// struct AddressSpace { rss: pcpu::CounterSet<{ Rss::COUNT }> }
/// let mm = AddressSpace { rss: pcpu::CounterSet::new([0; Rss::COUNT])? };
/// mm.rss.add(Rss::Anon, 1);
/// RESIDENT.add(Rss::Anon, 1);
/// FREE_BYTES.sub(4096);
/// FAULTS.inc();
/// assert_eq!(Rss::ALL.map(|kind| mm.rss.sum(kind)), [0, 1, 0, 0]);
/// assert_eq!(FREE_BYTES.sum(), (1 << 20) - 4096);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
///
/// A set is not indexed by an enum with more or fewer variants than it has counters (but by any that has as many):
///
/// ```compile_fail,E0277
/// pcpu::counters! {
///     enum Three { A, B, C }
///     static PAIR: CounterSet<2>;
/// }
/// PAIR.add(Three::A, 1);
/// ```
#[macro_export]
macro_rules! counters {
    () => {};

    ($(#[$attribute:meta])* $visibility:vis static $name:ident: Counter $(= $initial:expr $(, batch: $batch:expr)?)?; $($rest:tt)*) => {
        $(#[$attribute])*
        $visibility static $name: $crate::Counter = {
            $crate::__template! { [i64; 1] = [0] }
            const __PCPU_INITIAL: i64 = $crate::__or!($($initial)?, 0);
            const __PCPU_BATCH: $crate::Batch = $crate::__or!($($($batch)?)?, $crate::Batch::DEFAULT);
            // SAFETY: a static, with a slot of its own.
            unsafe { $crate::Counter::of_static(&__PCPU_TEMPLATE, __PCPU_INITIAL, __PCPU_BATCH) }
        };
        $crate::counters! { $($rest)* }
    };

    ($(#[$attribute:meta])* $visibility:vis static $name:ident: CounterSet<$nr:tt> $(= $initial:expr $(, batch: $batch:expr)?)?; $($rest:tt)*) => {
        $(#[$attribute])*
        #[allow(unused_braces)]
        $visibility static $name: $crate::CounterSet<$nr> = {
            $crate::__template! { $crate::__private::SlotLines<$nr> = $crate::__private::SlotLines::ZERO }
            const __PCPU_INITIAL: [i64; $nr] = $crate::__or!($($initial)?, [0; $nr]);
            const __PCPU_BATCH: $crate::Batch = $crate::__or!($($($batch)?)?, $crate::Batch::DEFAULT);
            // SAFETY: a static, with slots of its own.
            unsafe { $crate::CounterSet::of_static(&__PCPU_TEMPLATE, __PCPU_INITIAL, __PCPU_BATCH) }
        };
        $crate::counters! { $($rest)* }
    };

    ($(#[$($attribute:tt)*])* $visibility:vis static $name:ident: EventCounter $(= $text:literal)?; $($rest:tt)*) => {
        $crate::__split_attributes! { __static_word [] [] $(#[$($attribute)*])* ; $visibility $name, EventCounter $(, $text)? }
        $crate::counters! { $($rest)* }
    };

    ($(#[$($attribute:tt)*])* $visibility:vis static $name:ident: HighWater $(= $text:literal)?; $($rest:tt)*) => {
        $crate::__split_attributes! { __static_word [] [] $(#[$($attribute)*])* ; $visibility $name, HighWater $(, $text)? }
        $crate::counters! { $($rest)* }
    };

    ($(#[$($attribute:tt)*])* $visibility:vis enum $name:ident {
        $($(#[$variant_attribute:meta])* $variant:ident),+ $(,)?
    } $($rest:tt)*) => {
        $crate::__split_attributes! {
            __counter_names [] [] $(#[$($attribute)*])* ; $visibility $name { $($(#[$variant_attribute])* $variant),+ }
        }
        $crate::counters! { $($rest)* }
    };
}

/// An enum of [`counters!`](crate::counters).
#[doc(hidden)]
#[macro_export]
macro_rules! __counter_names {
    ([$($cfg:tt)*] [$($attribute:tt)*] $visibility:vis $name:ident { $($(#[$variant_attribute:meta])* $variant:ident),+ }) => {
        $($cfg)*
        $($attribute)*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name {
            $(
                #[allow(missing_docs)]
                $(#[$variant_attribute])*
                $variant
            ),+
        }

        $($cfg)*
        impl $name {
            /// How many counters there are.
            #[allow(dead_code)]
            $visibility const COUNT: usize = [$($name::$variant),+].len();

            /// All of them, in order.
            #[allow(dead_code)]
            $visibility const ALL: [$name; Self::COUNT] = [$($name::$variant),+];
        }

        $($cfg)*
        impl $crate::CounterIndex<{ $name::COUNT }> for $name {
            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// A static [`EventCounter`](crate::EventCounter) or [`HighWater`](crate::HighWater); for [`counters!`](crate::counters).
#[doc(hidden)]
#[macro_export]
macro_rules! __static_word {
    ([$($cfg:tt)*] [$($attribute:tt)*] $visibility:vis $name:ident, $type:ident $(, $text:literal)?) => {
        $crate::__per_cpu_place! { [$($cfg)*] $visibility $name: u64 = 0 }

        $($cfg)*
        $($attribute)*
        $visibility static $name: $crate::$type<$crate::Var<$name>> = $crate::$type::of_word($crate::Var::new($name { _private: () }));

        $crate::__counter_record! { [$($cfg)*] $name $(, $text)? }
    };
}

/// The record of a counter that has a name.
#[doc(hidden)]
#[macro_export]
macro_rules! __counter_record {
    ([$($cfg:tt)*] $name:ident) => {};
    ([$($cfg:tt)*] $name:ident, $text:literal) => {
            $($cfg)*
            const _: () = {
                #[used]
                #[unsafe(link_section = "pcpu_names")]
                static __PCPU_RECORD: $crate::NamedCounter = $crate::NamedCounter::new($text, &$name);
            };
    };
}

/// The first expression, or the second if there is no first.
#[doc(hidden)]
#[macro_export]
macro_rules! __or {
    (, $default:expr) => {
        $default
    };
    ($value:expr, $default:expr) => {
        $value
    };
}
