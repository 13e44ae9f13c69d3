//! Cargo, called for this workspace.

use crate::cli::{Target, name};
use anyhow::{Context, Result, bail};
use kernel_runner::{Kernel, build_kernel};
use std::env;
use std::path::Path;
use std::process::Command;

/// The cargo that runs this process, at the workspace's root.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// The release kernel called `binary`, built for `target`.
pub fn kernel(binary: &str, target: Target) -> Result<Kernel> {
    if target == Target::None {
        require_none_target()?;
    }
    let config = format!(".cargo/kernel-{}.toml", name(target));
    let elf = build_kernel(root(), &["build", "--config", &config, "--package", "test-kernel", "--release", "--bin", binary])?;
    Ok(Kernel::open(elf)?)
}

/// The workspace's folder.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// Fails with the way out when the toolchain in use lacks the target; cargo's own error is a page for each crate.
fn require_none_target() -> Result<()> {
    const TARGET: &str = "x86_64-unknown-none";
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output().context("cannot start rustc")?;
    if !Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir() {
        bail!("this toolchain has no {TARGET}; add it with: rustup target add {TARGET}");
    }
    Ok(())
}
