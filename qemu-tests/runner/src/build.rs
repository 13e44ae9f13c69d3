//! The nested `cargo` call that makes a kernel.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, str};

use serde_json::Value;

use crate::Error;

/// Variables with which the outer cargo, or its caller, would take the place of what the kernel's config file says.
const OVERRIDES: [&str; 4] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET"];

/// Runs `cargo` with `arguments` in the folder `workspace` and returns the one executable that it made (the last, if there
/// are several). Cargo's progress and errors go to stderr.
///
/// The kernel is built as its config file says, whatever `RUSTFLAGS` and the like are set for the host. With
/// `CARGO_TARGET_DIR` set, the kernel gets the folder `kernel` in it.
///
/// ```no_run
/// # use std::path::Path;
/// let arguments = ["build", "--config", ".cargo/kernel-host.toml", "--package", "test-kernel", "--bin", "forkbomb", "--release"];
/// let elf = kernel_runner::build_kernel(Path::new("."), &arguments)?;
/// # Ok::<(), kernel_runner::Error>(())
/// ```
///
/// # Errors
/// Cargo cannot be run or fails, or made no executable.
pub fn build_kernel(workspace: &Path, arguments: &[&str]) -> Result<PathBuf, Error> {
    // Set when cargo runs this process, and then the right one of several toolchains.
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).arg("--message-format=json-render-diagnostics").current_dir(workspace);
    for name in OVERRIDES {
        cargo.env_remove(name);
    }
    if let Some(folder) = env::var_os("CARGO_TARGET_DIR") {
        cargo.env("CARGO_TARGET_DIR", Path::new(&folder).join("kernel"));
    }
    let failed = || Error::BuildFailed { command: format!("cargo {}", shell_words::join(arguments)) };
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|_| failed())?;
    if !output.status.success() {
        return Err(failed());
    }
    last_executable(&output.stdout).ok_or_else(failed)
}

/// The last executable in cargo's JSON messages.
fn last_executable(messages: &[u8]) -> Option<PathBuf> {
    let lines = str::from_utf8(messages).ok()?.lines();
    let messages = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_the_messages() {
        let messages = br#"{"reason":"compiler-artifact","executable":null}
{"reason":"compiler-artifact","executable":"/t/deps/kernel-0a"}
not JSON
{"reason":"build-finished","success":true}"#;
        assert_eq!(last_executable(messages), Some(PathBuf::from("/t/deps/kernel-0a")));
        assert_eq!(last_executable(b"{}"), None);
    }
}
