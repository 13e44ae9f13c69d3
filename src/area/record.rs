//! The template and the init records: what the linker collects from every `per_cpu!` of the image.

use core::slice;

use crate::var::{Pristine, TemplateCell};

/// One static variable: where it lies in the template, and its pristine value.
#[repr(C)]
#[derive(Debug)]
pub struct InitRecord {
    variable: *const u8,
    pristine: *const u8,
    size_bytes: usize,
    align_bytes: usize,
}

// SAFETY: names statics and is never written.
unsafe impl Sync for InitRecord {}

impl InitRecord {
    /// The record of a variable.
    pub const fn new<T>(variable: &'static TemplateCell<T>, pristine: &'static Pristine<T>) -> Self {
        InitRecord {
            variable: (&raw const *variable).cast(),
            pristine: (&raw const *pristine).cast(),
            size_bytes: size_of::<T>(),
            align_bytes: align_of::<T>(),
        }
    }

    /// The variable's distance from the template's start, in bytes.
    pub(super) fn offset(&self, template: &Template) -> usize {
        self.variable as usize - template.start
    }

    /// The bytes that every CPU but the boot CPU starts from.
    pub(super) fn pristine(&self) -> (*const u8, usize) {
        (self.pristine, self.size_bytes)
    }
}

/// The template: the link-time image of all static per-CPU variables.
pub(crate) struct Template {
    /// Its first byte's address.
    pub(crate) start: usize,
    pub(crate) size_bytes: usize,
    /// The largest alignment of a variable.
    pub(crate) align_bytes: usize,
    pub(super) records: &'static [InitRecord],
}

// The linker makes these symbols for every section whose name is a C identifier. The sections are never empty: the crate's own
// header is in them.
unsafe extern "C" {
    static __start_pcpu_template: u8;
    static __stop_pcpu_template: u8;
    static __start_pcpu_init: InitRecord;
    static __stop_pcpu_init: InitRecord;
}

/// The template of this image.
pub(crate) fn template() -> Template {
    let start = &raw const __start_pcpu_template as usize;
    let stop = &raw const __stop_pcpu_template as usize;
    let first = &raw const __start_pcpu_init;
    let nr_records = (&raw const __stop_pcpu_init as usize - first as usize) / size_of::<InitRecord>();
    // SAFETY: nothing but `InitRecord`s is put into the section, by `per_cpu!` alone, so it is an array of them; never written.
    let records = unsafe { slice::from_raw_parts(first, nr_records) };
    let align_bytes = records.iter().map(|record| record.align_bytes).max().unwrap_or(1);
    Template { start, size_bytes: stop - start, align_bytes, records }
}
