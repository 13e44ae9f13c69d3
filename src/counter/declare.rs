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
/// Doc comments, `cfg` and visibilities are allowed everywhere, other attributes on items. A block of some 800 items meets the compiler's recursion
/// limit: begin another one. All counters work on the boot CPU before [`init`](crate::init), and what they counted by then is counted once.
///
/// An enum has its variants in order as `ALL`, and their number as `COUNT`; it is `Copy`, `Debug`, `Eq`, `Ord` and `Hash`:
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

    // Statics by eights: each step is one of the compiler's recursion limit.
    (
        $(#[$($a0:tt)*])* $v0:vis static $n0:ident: $k0:ident $(<$nr0:tt>)? $(= $i0:expr $(, batch: $b0:expr)?)?;
        $(#[$($a1:tt)*])* $v1:vis static $n1:ident: $k1:ident $(<$nr1:tt>)? $(= $i1:expr $(, batch: $b1:expr)?)?;
        $(#[$($a2:tt)*])* $v2:vis static $n2:ident: $k2:ident $(<$nr2:tt>)? $(= $i2:expr $(, batch: $b2:expr)?)?;
        $(#[$($a3:tt)*])* $v3:vis static $n3:ident: $k3:ident $(<$nr3:tt>)? $(= $i3:expr $(, batch: $b3:expr)?)?;
        $(#[$($a4:tt)*])* $v4:vis static $n4:ident: $k4:ident $(<$nr4:tt>)? $(= $i4:expr $(, batch: $b4:expr)?)?;
        $(#[$($a5:tt)*])* $v5:vis static $n5:ident: $k5:ident $(<$nr5:tt>)? $(= $i5:expr $(, batch: $b5:expr)?)?;
        $(#[$($a6:tt)*])* $v6:vis static $n6:ident: $k6:ident $(<$nr6:tt>)? $(= $i6:expr $(, batch: $b6:expr)?)?;
        $(#[$($a7:tt)*])* $v7:vis static $n7:ident: $k7:ident $(<$nr7:tt>)? $(= $i7:expr $(, batch: $b7:expr)?)?;
        $($rest:tt)*
    ) => {
        $crate::counters! { $(#[$($a0)*])* $v0 static $n0: $k0 $(<$nr0>)? $(= $i0 $(, batch: $b0)?)?; }
        $crate::counters! { $(#[$($a1)*])* $v1 static $n1: $k1 $(<$nr1>)? $(= $i1 $(, batch: $b1)?)?; }
        $crate::counters! { $(#[$($a2)*])* $v2 static $n2: $k2 $(<$nr2>)? $(= $i2 $(, batch: $b2)?)?; }
        $crate::counters! { $(#[$($a3)*])* $v3 static $n3: $k3 $(<$nr3>)? $(= $i3 $(, batch: $b3)?)?; }
        $crate::counters! { $(#[$($a4)*])* $v4 static $n4: $k4 $(<$nr4>)? $(= $i4 $(, batch: $b4)?)?; }
        $crate::counters! { $(#[$($a5)*])* $v5 static $n5: $k5 $(<$nr5>)? $(= $i5 $(, batch: $b5)?)?; }
        $crate::counters! { $(#[$($a6)*])* $v6 static $n6: $k6 $(<$nr6>)? $(= $i6 $(, batch: $b6)?)?; }
        $crate::counters! { $(#[$($a7)*])* $v7 static $n7: $k7 $(<$nr7>)? $(= $i7 $(, batch: $b7)?)?; }
        $crate::counters! { $($rest)* }
    };

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

    ($(#[$attribute:meta])* $visibility:vis static $name:ident: CounterSet<$first:ident $(:: $more:ident)+> $($rest:tt)*) => {
        $crate::counters! { $(#[$attribute])* $visibility static $name: CounterSet<{ $first $(:: $more)+ }> $($rest)* }
    };

    ($(#[$attribute:meta])* $visibility:vis static $name:ident: LazyCounter $($rest:tt)*) => {
        compile_error!(concat!("a lazy counter needs no macro: static ", stringify!($name), ": pcpu::LazyCounter = pcpu::LazyCounter::new(0);"));
    };

    ($(#[$attribute:meta])* $visibility:vis static $name:ident: LazyCounterSet $($rest:tt)*) => {
        compile_error!(concat!("a lazy set needs no macro: static ", stringify!($name), ": pcpu::LazyCounterSet<N> = pcpu::LazyCounterSet::new([0; N]);"));
    };

    ($(#[$($attribute:tt)*])* $visibility:vis static $name:ident: EventCounter $(= $text:literal)?; $($rest:tt)*) => {
        $crate::__split_attributes! { __static_word [] [] $(#[$($attribute)*])* ; $visibility $name, EventCounter $(, $text)? }
        $crate::counters! { $($rest)* }
    };

    ($(#[$($attribute:tt)*])* $visibility:vis static $name:ident: HighWater $(= $text:literal)?; $($rest:tt)*) => {
        $crate::__split_attributes! { __static_word [] [] $(#[$($attribute)*])* ; $visibility $name, HighWater $(, $text)? }
        $crate::counters! { $($rest)* }
    };

    ($(#[$($attribute:tt)*])* $visibility:vis static $name:ident: EventCounter = $text:expr; $($rest:tt)*) => {
        compile_error!(concat!("static ", stringify!($name), ": its name in the registry has to be a literal"));
    };

    ($(#[$($attribute:tt)*])* $visibility:vis static $name:ident: HighWater = $text:expr; $($rest:tt)*) => {
        compile_error!(concat!("static ", stringify!($name), ": its name in the registry has to be a literal"));
    };

    ($(#[$($attribute:tt)*])* $visibility:vis static $name:ident: $kind:ident $(<$nr:tt>)? $(= $initial:expr)?; $($rest:tt)*) => {
        compile_error!(concat!("static ", stringify!($name), ": `", stringify!($kind), "` is none of the kinds that this macro declares"));
    };

    ($(#[$($attribute:tt)*])* $visibility:vis enum $name:ident {
        $($(#[doc = $doc:expr])* $(#[cfg $cfg:tt] $(#[doc = $more_doc:expr])*)* $variant:ident),+ $(,)?
    } $($rest:tt)*) => {
        $crate::__split_attributes! {
            __counter_names [] [] $(#[$($attribute)*])* ;
            $visibility $name { $($(#[doc = $doc])* $($(#[doc = $more_doc])*)* [$(#[cfg $cfg])*] $variant),+ }
        }
        $crate::counters! { $($rest)* }
    };
}

/// An enum of [`counters!`](crate::counters).
#[doc(hidden)]
#[macro_export]
macro_rules! __counter_names {
    ([$($cfg:tt)*] [$($attribute:tt)*] $visibility:vis $name:ident {
        $($(#[doc = $doc:expr])* [$($variant_cfg:tt)*] $variant:ident),+
    }) => {
        $($crate::__refuse_constant! { $variant })+

        $($cfg)*
        $($attribute)*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name {
            $(
                #[allow(missing_docs)]
                $(#[doc = $doc])*
                $($variant_cfg)*
                $variant
            ),+
        }

        $($cfg)*
        impl $name {
            /// How many counters there are.
            #[allow(dead_code)]
            $visibility const COUNT: usize = [$($($variant_cfg)* $name::$variant),+].len();

            /// All of them, in order.
            #[allow(dead_code)]
            $visibility const ALL: [$name; Self::COUNT] = [$($($variant_cfg)* $name::$variant),+];
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

/// A variant must not hide one of the enum's constants.
#[doc(hidden)]
#[macro_export]
macro_rules! __refuse_constant {
    (ALL) => {
        compile_error!("`ALL` is the array of an enum's variants: the variant needs another name");
    };
    (COUNT) => {
        compile_error!("`COUNT` is the number of an enum's variants: the variant needs another name");
    };
    ($variant:ident) => {};
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
