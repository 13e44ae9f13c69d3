//! What the rows' names mean, for people.

use crate::message::Operation;

/// Names and their meanings, in the order in which they are told. Capitals stand for what differs from row to row.
const MEANINGS: [(&str, &str); 28] = [
    ("gs_add", "`add gs:[address], 1`, the address in a register: the unit of `gs adds`"),
    ("static_add", "`add` to a word declared with `per_cpu!`"),
    ("atomic_add", "a locked add to a word that no other thread uses"),
    ("atomic_add_shared", "a locked add to one word that all threads use"),
    ("event_add", "`EventCounter::add`"),
    ("counter_add", "`Counter::add`: in any context"),
    ("counter_add_pinned", "`Counter::add_pinned`: by a thread that stays on its CPU"),
    ("set4_add", "`CounterSet<4>::add` to one of four counters that are one object"),
    ("set4_add_pinned", "`CounterSet<4>::add_pinned`: by a thread that stays on its CPU"),
    ("set4_add_all", "`CounterSet<4>::add_all`: to all four"),
    ("lazy4_add_inline", "`LazyCounterSet<4>::add` as long as it has no per-CPU memory"),
    ("lazy4_add_sole_user", "`LazyCounterSet<4>::add_sole_user` without per-CPU memory: by the only thread that uses it"),
    ("lazy4_add_promoted", "`LazyCounterSet<4>::add` when it has per-CPU memory"),
    ("limit_add", "`LimitCounter::try_add` and `sub` in turns, far from the limit"),
    ("alloc_free/SIZE", "an object of SIZE bytes for each CPU is allocated and freed at once"),
    ("alloc_here_free_there/SIZE", "one thread allocates, another one frees"),
    ("line_transfer", "a cache line goes to another core: a quarter of a round trip in which each core reads it once and writes it once"),
    ("set4_new_drop", "a `CounterSet<4>` is made and dropped"),
    ("lazy4_new_drop", "a `LazyCounterSet<4>` is made and dropped"),
    ("sum/touched_NR", "exact sum of a `Counter` that NR CPUs wrote to"),
    ("lifetime/set4", "a `CounterSet<4>` is made, gets the adds of a fork, an exec and an exit, is summed and dropped"),
    ("lifetime/lazy4", "a `LazyCounterSet<4>` is made, gets those adds, is summed and dropped"),
    ("lifetime/lazy4_explicit", "as lifetime/lazy4, but it never takes per-CPU memory by itself"),
    ("lifetime/sole_user4", "as lifetime/lazy4, but it has one user, and the adds are not atomic"),
    ("lifetime/atomic4", "four plain atomics get those adds: the baseline of all lifetime/..."),
    ("million/SIZE/ORDER/alloc", "each of a million objects of SIZE bytes is allocated"),
    ("million/SIZE/ORDER/free", "each of them is freed: in_order, in reverse, or alternating (every other one, then the others)"),
    ("linux_like_alloc_free/SIZE", "as alloc_free/SIZE, with the allocator that works as Linux's does: its baseline"),
];

/// The operations that the rows of these names measure.
///
/// # Panics
/// A name has no meaning: [`MEANINGS`] is to say it.
pub fn operations(rows: &[&str]) -> Vec<Operation> {
    for row in rows {
        assert!(MEANINGS.iter().any(|(name, _)| is_of(row, name)), "nothing says what {row} means");
    }
    let operation = |(name, meaning)| {
        let mut rows: Vec<_> = rows.iter().filter(|row| is_of(row, name)).map(|&row| row.to_owned()).collect();
        // A row for each number of threads.
        rows.sort();
        rows.dedup();
        (!rows.is_empty()).then_some(Operation { name, meaning, rows })
    };
    MEANINGS.into_iter().filter_map(operation).collect()
}

/// Whether a row's name is this one, in which capitals at the end of a part stand for any text.
fn is_of(row: &str, name: &str) -> bool {
    let is_part = |part: &str, of: &str| match of.trim_end_matches(|letter: char| letter.is_ascii_uppercase()) {
        all if all == of => part == of,
        start => part.starts_with(start),
    };
    row.split('/').count() == name.split('/').count() && row.split('/').zip(name.split('/')).all(|(part, of)| is_part(part, of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rows: &[&str]) -> Vec<&'static str> {
        operations(rows).into_iter().map(|operation| operation.name).collect()
    }

    #[test]
    fn rows_that_differ_in_a_number_are_one_operation() {
        assert_eq!(names(&["alloc_free/8", "gs_add", "alloc_free/16"]), ["gs_add", "alloc_free/SIZE"]);
        assert_eq!(operations(&["sum/touched_2", "sum/touched_all"])[0].rows, ["sum/touched_2", "sum/touched_all"]);
    }

    #[test]
    fn a_name_that_begins_as_another_is_told_from_it() {
        assert_eq!(names(&["counter_add_pinned"]), ["counter_add_pinned"]);
        assert_eq!(names(&["million/8/in_order/alloc"]), ["million/SIZE/ORDER/alloc"]);
    }

    #[test]
    #[should_panic = "nothing says what spoon_add means"]
    fn a_name_without_a_meaning_is_a_mistake() {
        operations(&["spoon_add"]);
    }
}
