//! What processes do.

use core::fmt;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A child runs in its copy and exits.
    Fork,
    /// A child execs a program, which runs and exits.
    Exec,
    /// The same without a copy: the child runs in its parent's space until it execs.
    Vfork,
    /// A child execs a shell, which has a child of its own exec a program.
    Shell,
    /// A program on each CPU execs itself again and again.
    Doexec,
    /// All CPUs are threads of one process.
    Threads,
    /// Processes double until the live limit, and then all exit; again and again.
    Bomb,
    /// Every process runs, and ends, on another CPU than the one that forked it.
    Migrate,
    /// A reader looks for the largest space while the other CPUs make, change and free them.
    OomScan,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 9] = [
        Workload::Fork,
        Workload::Exec,
        Workload::Vfork,
        Workload::Shell,
        Workload::Doexec,
        Workload::Threads,
        Workload::Bomb,
        Workload::Migrate,
        Workload::OomScan,
    ];

    /// Its name on command lines and in result rows.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Fork => "fork",
            Workload::Exec => "exec",
            Workload::Vfork => "vfork",
            Workload::Shell => "shell",
            Workload::Doexec => "doexec",
            Workload::Threads => "threads",
            Workload::Bomb => "bomb",
            Workload::Migrate => "migrate",
            Workload::OomScan => "oom-scan",
        }
    }

    /// The workload of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
