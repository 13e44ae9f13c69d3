//! Installs QEMU where a package manager is known to bring it.

use anyhow::{Context, Result, bail};
use kernel_runner::Machine;
use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Debian's and Ubuntu's package. What it depends on brings the firmware and the option ROMs that `-kernel` needs.
const APT_PACKAGE: &str = "qemu-system-x86";

/// Who can install QEMU, and how.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// This process, by apt.
    Apt,
    /// The user, with this command.
    Ask(&'static str),
}

/// A machine with the QEMU that is there, which is installed first when that takes no question; else the error says what to type.
pub fn find_or_install() -> Result<Machine> {
    let machine = found_or_installed()?;
    let version = Command::new(&machine.qemu).arg("--version").stdin(Stdio::null()).output();
    let version = version.with_context(|| format!("cannot start {}", machine.qemu.display()))?;
    if !version.status.success() || !String::from_utf8_lossy(&version.stdout).contains("QEMU") {
        bail!("{} is not QEMU: it does not say so with `--version`", machine.qemu.display());
    }
    Ok(machine)
}

fn found_or_installed() -> Result<Machine> {
    match Machine::find() {
        Ok(machine) => return Ok(machine),
        // Who names an executable wants that one.
        Err(error) if env::var_os("QEMU").is_some_and(|program| !program.is_empty()) => return Err(error.into()),
        Err(_) => {}
    }
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    // The owner of this process's own entry is its effective user.
    let is_root = fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0);
    match plan(&os_release, is_root) {
        Plan::Ask(command) => bail!("QEMU is not installed; install it with: {command}"),
        Plan::Apt => {
            eprintln!("QEMU is not installed: installing the package {APT_PACKAGE} with apt-get");
            apt_get(&["update"])?;
            apt_get(&["install", "-y", "--no-install-recommends", APT_PACKAGE])?;
            Ok(Machine::find()?)
        }
    }
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    // Its output is not this command's, whose tables may go to a file.
    command.arg("-q").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(std::io::stderr());
    let status = command.status().context("cannot start apt-get")?;
    if !status.success() {
        bail!("`apt-get {}` failed ({status})", arguments.join(" "));
    }
    Ok(())
}

fn plan(os_release: &str, is_root: bool) -> Plan {
    let systems = systems(os_release);
    let is_any = |names: &[&str]| systems.iter().any(|system| names.contains(system));
    if is_any(&["debian", "ubuntu"]) {
        if is_root && Path::new("/usr/bin/apt-get").exists() { Plan::Apt } else { Plan::Ask("sudo apt-get install qemu-system-x86") }
    } else if is_any(&["fedora", "rhel"]) {
        Plan::Ask("sudo dnf install qemu-system-x86-core")
    } else if is_any(&["arch"]) {
        Plan::Ask("sudo pacman -S qemu-system-x86")
    } else if is_any(&["alpine"]) {
        Plan::Ask("apk add qemu-system-x86_64")
    } else if is_any(&["suse", "opensuse"]) {
        Plan::Ask("sudo zypper install qemu-x86")
    } else {
        Plan::Ask("your system's package manager (the package that has qemu-system-x86_64)")
    }
}

/// The system's name and those that it says it is like, from the text of os-release(5).
fn systems(os_release: &str) -> Vec<&str> {
    os_release
        .lines()
        .filter_map(|line| line.trim().split_once('='))
        .filter(|(key, _)| matches!(*key, "ID" | "ID_LIKE"))
        .flat_map(|(_, value)| value.trim_matches(['"', '\'']).split_whitespace())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n";
    const UBUNTU: &str = "NAME='Ubuntu'\nID=ubuntu\nID_LIKE=debian\n";
    const MINT: &str = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n";
    const ROCKY: &str = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n";

    #[test]
    fn id_and_id_like_are_read_quoted_or_not() {
        assert_eq!(systems(DEBIAN), ["debian"]);
        assert_eq!(systems(UBUNTU), ["ubuntu", "debian"]);
        assert_eq!(systems(MINT), ["linuxmint", "ubuntu", "debian"]);
        assert_eq!(systems("# ID=debian\n\nNAME=\"ID=debian\"\n"), [""; 0]);
    }

    #[test]
    fn only_root_on_debian_and_what_is_like_it_installs() {
        for os_release in [DEBIAN, UBUNTU, MINT] {
            assert_eq!(plan(os_release, false), Plan::Ask("sudo apt-get install qemu-system-x86"));
        }
        for os_release in [ROCKY, "ID=arch", "", "nonsense"] {
            assert!(matches!(plan(os_release, true), Plan::Ask(_)));
        }
    }

    #[test]
    fn a_system_that_is_like_another_gets_its_command() {
        assert_eq!(plan(ROCKY, true), Plan::Ask("sudo dnf install qemu-system-x86-core"));
    }
}
