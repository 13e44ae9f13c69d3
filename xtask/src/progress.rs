//! How far a command is: a bar on a terminal, lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Progress over several boots of the kernel, which all have the same number of steps.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    nr_boots: u64,
    boots_done: u64,
    steps: u64,
}

impl Progress {
    /// No step done of any of `nr_boots` boots.
    pub fn new(nr_boots: usize) -> Self {
        let bar = ProgressBar::no_length();
        // The template is this constant; a mistake in it falls back to the default style.
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:32}] {percent:>3} % {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, nr_boots: nr_boots as u64, boots_done: 0, steps: 0 }
    }

    /// Says what happens now. Lines that are not on a terminal appear only for this.
    pub fn stage(&self, text: &str) {
        if self.bar.is_hidden() {
            eprintln!("{text}");
        }
        self.bar.set_message(text.to_owned());
    }

    /// `done` of `total` steps of this boot are done; `label` is the one that runs.
    pub fn step(&mut self, done: u64, total: u64, label: &str) {
        self.steps = total;
        self.bar.set_length(total * self.nr_boots);
        self.bar.set_position(total * self.boots_done + done);
        self.bar.set_message(label.to_owned());
    }

    /// This boot is over.
    pub fn boot_done(&mut self) {
        self.boots_done += 1;
        self.bar.set_position(self.steps * self.boots_done);
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
