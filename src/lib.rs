#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc as alloc_crate;
#[cfg(feature = "host")]
extern crate std;

#[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64")))]
compile_error!("pcpu reaches per-CPU data through GS, which only x86_64 has");
#[cfg(all(feature = "host", not(target_os = "linux")))]
compile_error!("the `host` feature runs on Linux, which leaves GS to programs");

pub mod alloc;
mod arch;
mod area;
mod counter;
mod cpu;
mod cpu_mask;
mod handle;
#[cfg(feature = "host")]
pub mod host;
mod local;
mod lock;
#[cfg(feature = "markers")]
pub mod marker;
mod pin;
mod var;
mod word;

pub use alloc::{AllocError, AllocFlags};
pub use area::{AreaLayout, DEFAULT_UNIT_BYTES, InitError, InstallError, LayoutError, init, install, pcpu_install, uninstall};
#[cfg(feature = "alloc")]
pub use counter::CounterVec;
pub use counter::{
    Batch, Counter, CounterIndex, CounterSet, CpuChanges, EventCounter, EventWord, Explicit, HighWater, LazyCounter, LazyCounterSet,
    LimitCounter, LimitExceeded, NESTING, NamedCounter, NamedKind, PromotionPolicy, Verdict, named_counters,
};
pub use cpu::{ApicMap, ApicMapError, CpuId, MAX_CPUS};
pub use handle::{Handle, PerCpuBox, TryNewError, Zeroable};
pub use local::Local;
pub use pin::{
    IrqControl, IrqsOff, Pinned, PreemptControl, Ring0, assume_irqs_off, assume_pinned, with_irqs_off, with_irqs_off_by, with_pin,
    with_pin_by,
};
pub use var::{Field, Var};
pub use word::{Integer, Word};

/// What the macros expand to; not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use crate::arch::{Bytes, GsBase, Offset};
    pub use crate::area::InitRecord;
    pub use crate::counter::SlotLines;
    pub use crate::var::{Place, Pristine, TemplateCell};
}
