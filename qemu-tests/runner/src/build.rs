//! The nested `cargo` call that makes a kernel.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, str};

use serde_json::Value;

use crate::Error;

/// Variables with which the outer cargo, or its caller, would take the place of what the kernel's config file says.
const OVERRIDES: [&str; 4] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET"];

/// Runs `cargo` with `arguments` in the folder `workspace` and returns the executable of the target that they name with
/// `--bin`, `--test` or `--example`. Cargo's progress and errors go to stderr.
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
/// Cargo cannot be run or fails, or made no such executable.
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
    executable(&output.stdout, arguments).ok_or_else(failed)
}

/// The executable of the target that the arguments name, from cargo's JSON messages. Others may be among them: with a test
/// cargo builds the binaries of its package too.
fn executable(messages: &[u8], arguments: &[&str]) -> Option<PathBuf> {
    let (kind, name) = arguments.windows(2).find_map(|pair| match pair {
        ["--bin", name] => Some(("bin", name)),
        ["--test", name] => Some(("test", name)),
        ["--example", name] => Some(("example", name)),
        _ => None,
    })?;
    let is_wanted = |message: &Value| message["target"]["name"] == *name && message["target"]["kind"][0] == kind;
    let mut messages = str::from_utf8(messages).ok()?.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.find_map(|message| message["executable"].as_str().filter(|_| is_wanted(&message)).map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &[u8] = br#"{"reason":"compiler-artifact","target":{"kind":["custom-build"],"name":"kernel"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"kernel"},"executable":"/t/kernel"}
not JSON
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"kernel"},"executable":"/t/deps/kernel-0a"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"failures"},"executable":"/t/failures"}
{"reason":"build-finished","success":true}"#;

    fn found(arguments: &[&str]) -> Option<PathBuf> {
        executable(MESSAGES, arguments)
    }

    #[test]
    fn the_executable_is_that_of_the_target_that_was_asked_for() {
        assert_eq!(found(&["test", "--test", "kernel", "--no-run"]), Some(PathBuf::from("/t/deps/kernel-0a")));
        assert_eq!(found(&["build", "--bin", "kernel"]), Some(PathBuf::from("/t/kernel")));
        assert_eq!(found(&["build", "--bin", "failures"]), Some(PathBuf::from("/t/failures")));
    }

    #[test]
    fn no_such_executable_is_none() {
        for arguments in [&["build", "--bin", "forkbomb"][..], &["build", "--example", "kernel"], &["build", "--bin"], &["build"]] {
            assert_eq!(found(arguments), None, "{arguments:?}");
        }
    }
}
