//! Finding QEMU and telling it which machine to be.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{Error, Kernel};

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Accel {
    /// QEMU's own translator: works everywhere.
    #[default]
    Tcg,
    /// The processor's virtualization, through Linux: fast, where it is real.
    Kvm,
}

impl Accel {
    /// Why this machine cannot use it.
    ///
    /// `/dev/kvm` alone proves nothing: without `vmx` or `svm` in `/proc/cpuinfo` it may emulate every instruction, far
    /// slower than TCG does.
    pub fn unavailable(self) -> Option<&'static str> {
        let has_virtualization = || {
            let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            cpuinfo.split_ascii_whitespace().any(|flag| flag == "vmx" || flag == "svm")
        };
        match self {
            Accel::Tcg => None,
            Accel::Kvm if !Path::new("/dev/kvm").exists() => Some("no KVM: there is no /dev/kvm; use tcg"),
            Accel::Kvm if !has_virtualization() => {
                Some("no KVM: /proc/cpuinfo has neither vmx nor svm, so /dev/kvm would be slower than tcg; use tcg")
            }
            Accel::Kvm => None,
        }
    }
}

/// The machine that a kernel is booted in. Make one with [`Machine::find`] and change what should be different.
#[derive(Debug, Clone)]
pub struct Machine {
    /// QEMU's executable.
    pub qemu: PathBuf,
    /// How many CPUs, at most [`MAX_CPUS`](crate::MAX_CPUS); default 4.
    pub cpus: u32,
    /// RAM, as QEMU's `-m` takes it: MiB, or with a suffix; default `512M`.
    pub memory: String,
    /// What executes the guest; default TCG.
    pub accel: Accel,
    /// Wait for a debugger on TCP port 1234 before the first instruction; default no. Set no time limit with it.
    pub gdb: bool,
    /// Further arguments for QEMU, after all others.
    pub qemu_args: Vec<OsString>,
    /// How long a boot may last; default 60 s.
    pub time_limit: Option<Duration>,
}

impl Machine {
    /// A machine of 4 CPUs in the QEMU that the environment variable `QEMU` names, or else `qemu-system-x86_64` on `PATH`.
    ///
    /// # Errors
    /// There is no such executable.
    pub fn find() -> Result<Machine, Error> {
        let program =
            env::var_os("QEMU").filter(|program| !program.is_empty()).map_or_else(|| PathBuf::from("qemu-system-x86_64"), PathBuf::from);
        match find_on_path(&program) {
            Some(qemu) => Ok(Machine {
                qemu,
                cpus: 4,
                memory: "512M".to_owned(),
                accel: Accel::Tcg,
                gdb: false,
                qemu_args: Vec::new(),
                time_limit: Some(Duration::from_secs(60)),
            }),
            None => Err(Error::QemuMissing { program }),
        }
    }

    /// The command that boots `kernel` with the words of `command_line`. Its stdout is the debug console.
    pub fn command(&self, kernel: &Kernel, command_line: &str) -> Command {
        let mut qemu = Command::new(&self.qemu);
        let (accel, cpu) = match self.accel {
            Accel::Tcg => ("tcg", "max"),
            Accel::Kvm => ("kvm", "host"),
        };
        qemu.args(["-machine", "q35", "-accel", accel, "-cpu", cpu])
            .args(["-smp", &self.cpus.to_string(), "-m", &self.memory])
            .args(["-nodefaults", "-display", "none", "-monitor", "none", "-serial", "none", "-no-reboot"])
            .args(["-chardev", "stdio,id=log,signal=off", "-device", "isa-debugcon,iobase=0xe9,chardev=log"])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        if self.gdb {
            qemu.args(["-s", "-S"]);
        }
        qemu.arg("-kernel").arg(kernel.path()).args(["-append", command_line]).args(&self.qemu_args);
        qemu
    }
}

/// What a shell would run: a name with a slash is a path, any other is looked for on `PATH`.
fn find_on_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
