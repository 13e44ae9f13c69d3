//! How far a command is: a bar on a terminal, lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use kernel_runner::on_signal;
use std::process;
use std::time::Duration;

/// What the bar is wide when a run is done.
const PARTS_PER_RUN: u64 = 1000;

/// Takes 30 of a terminal's 80 columns, and leaves the rest to the label, which is cut when the line is full.
const TEMPLATE: &str = "{elapsed_precise} [{bar:12}] {percent:>3} % {wide_msg}";

/// What a process exits with that a signal ended, added to the signal's number, as shells have it.
const SIGNALLED: i32 = 128;

/// Progress over several runs, boots of the kernel or processes, one after the other. While it is shown, and after, Ctrl-C clears the bar and
/// ends this process with one line.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    runs_done: u64,
}

impl Progress {
    /// No step done of any of `nr_runs` runs.
    pub fn new(nr_runs: usize) -> Self {
        let bar = ProgressBar::new(PARTS_PER_RUN * nr_runs as u64);
        // The template is this constant; a mistake in it falls back to the default style.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        let shown = bar.clone();
        on_signal(move |signal| {
            shown.finish_and_clear();
            transfers::remove_folders();
            eprintln!("interrupted");
            process::exit(SIGNALLED + signal);
        });
        Self { bar, runs_done: 0 }
    }

    /// Says what happens now. Lines that are not on a terminal appear only for this.
    pub fn stage(&self, text: &str) {
        if self.bar.is_hidden() {
            eprintln!("{text}");
        }
        self.bar.set_message(text.to_owned());
    }

    /// `done` of `total` steps of this run are done; `label` is the one that is on.
    pub fn step(&mut self, done: u64, total: u64, label: &str) {
        self.bar.set_position(PARTS_PER_RUN * self.runs_done + PARTS_PER_RUN * done.min(total) / total.max(1));
        self.bar.set_message(label.to_owned());
    }

    /// This run, of a boot or a process, is over.
    pub fn boot_done(&mut self) {
        self.runs_done += 1;
        self.bar.set_position(PARTS_PER_RUN * self.runs_done);
    }

    /// Prints a line without disturbing the bar.
    pub fn print(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_goes_on_from_run_to_run_whatever_their_numbers_of_steps() {
        let mut progress = Progress::new(2);
        let part = |progress: &Progress| progress.bar.position() as f64 / progress.bar.length().unwrap() as f64;
        progress.step(5, 10, "a");
        assert_eq!(part(&progress), 0.25);
        progress.boot_done();
        assert_eq!(part(&progress), 0.5);
        progress.step(0, 1000, "b");
        assert_eq!(part(&progress), 0.5);
        progress.step(500, 1000, "b");
        assert_eq!(part(&progress), 0.75);
        progress.step(0, 0, "nothing to do");
        progress.boot_done();
        assert_eq!(part(&progress), 1.0);
    }
}
