//! What the rows were measured on.

use crate::table::counted;
use kernel_runner::Machine;
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;
use std::thread;

/// The machine and its software, as far as they matter for a row.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Host {
    /// The processor's name.
    pub processor: String,
    /// CPUs of the host, not of the kernel under test.
    pub host_cpus: usize,
    /// The host's operating system and its kernel's release.
    pub system: String,
    /// QEMU's version line; empty for native threads.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub qemu: String,
    /// What executes the guest's instructions; empty for native threads.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub accel: String,
}

impl Host {
    /// This host, with the QEMU and the accelerator of `machine`; what cannot be found out is empty.
    pub fn of(machine: &Machine) -> Self {
        let version = Command::new(&machine.qemu).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
        Self {
            qemu: String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned(),
            accel: crate::cli::name(machine.accel),
            ..Self::native()
        }
    }

    /// This host; what cannot be found out is empty.
    pub fn native() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            processor: processor.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            host_cpus: thread::available_parallelism().map_or(0, usize::from),
            system: format!("{} {}", read("/proc/sys/kernel/ostype").trim(), read("/proc/sys/kernel/osrelease").trim()),
            ..Self::default()
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        let cpus = counted(self.host_cpus, "CPU");
        let qemu = if self.qemu.is_empty() { String::new() } else { format!("{} ({})", self.qemu, self.accel) };
        [&self.processor, &cpus, &self.system, &qemu].into_iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
    }
}
