//! The table of counter updates, against plain integers.

use workload::lifetime::{
    CHILD_RUN, EXEC_NEW, EXEC_TEARDOWN, EXIT_TEARDOWN, FORK_COPY, FORK_EXIT, FORK_RUN, Member, PROGRAM_RUN, THREAD_RUN, Update, VFORK_RUN,
};

const COPY: [&[Update]; 3] = [FORK_COPY, CHILD_RUN, EXEC_TEARDOWN];
const OWN: [&[Update]; 3] = [EXEC_NEW, PROGRAM_RUN, EXIT_TEARDOWN];

/// The counters' values after each update.
fn replay(phases: [&[Update]; 3]) -> Vec<[i64; Member::COUNT]> {
    let mut counters = [0; Member::COUNT];
    let mut history = Vec::new();
    for update in phases.concat() {
        counters[update.member.index()] += update.pages;
        history.push(counters);
    }
    history
}

#[test]
fn each_space_ends_at_zero() {
    for space in [COPY, OWN] {
        assert_eq!(replay(space).last(), Some(&[0; Member::COUNT]));
    }
}

#[test]
fn no_counter_is_ever_negative() {
    for space in [COPY, OWN] {
        assert!(replay(space).iter().flatten().all(|&pages| pages >= 0));
    }
}

#[test]
fn the_phases_are_as_long_as_in_the_trace() {
    let lengths = [FORK_COPY, CHILD_RUN, EXEC_NEW, EXEC_TEARDOWN, PROGRAM_RUN, EXIT_TEARDOWN].map(<[_]>::len);
    assert_eq!(lengths, [6, 8, 1, 8, 26, 10]);
    assert_eq!(lengths.iter().sum::<usize>(), 59);
}

#[test]
fn a_fork_without_exec_has_16_updates_and_ends_at_zero() {
    let history = replay([FORK_COPY, FORK_RUN, FORK_EXIT]);
    assert_eq!((history.len(), history.last()), (16, Some(&[0; Member::COUNT])));
    assert!(history.iter().flatten().all(|&pages| pages >= 0));
}

#[test]
fn a_child_of_vfork_leaves_its_parent_as_it_was() {
    let of_parent = replay([VFORK_RUN, &[], &[]]);
    assert_eq!(of_parent.last(), Some(&[0; Member::COUNT]));
    assert_eq!(VFORK_RUN.len() + OWN.map(<[_]>::len).iter().sum::<usize>(), 40);
}

#[test]
fn a_threads_run_ends_at_zero() {
    assert_eq!(replay([THREAD_RUN, &[], &[]]).last(), Some(&[0; Member::COUNT]));
}
