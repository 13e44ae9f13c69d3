//! The nested `cargo` call that makes the plugin.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = "conflict-plugin";

/// Builds the plugin in the folder `workspace`, optimised, and returns its file. Cargo's progress and errors go to stderr.
///
/// # Errors
/// Cargo cannot be run, or fails.
pub fn build_plugin(workspace: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--package", PACKAGE, "--message-format=json-render-diagnostics"]);
    let output = cargo.current_dir(workspace).stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{PACKAGE} cannot be built");
    }
    library(&output.stdout).with_context(|| format!("cargo made no library of {PACKAGE}"))
}

/// The shared library, from cargo's JSON messages.
fn library(messages: &[u8]) -> Option<PathBuf> {
    let lines = str::from_utf8(messages).ok()?.lines();
    let own = lines
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|message| message["target"]["name"] == PACKAGE.replace('-', "_") && message["target"]["crate_types"].as_array().is_some())?;
    let files = own["filenames"].as_array()?.iter().filter_map(Value::as_str);
    files.map(PathBuf::from).find(|file| file.extension().is_some_and(|extension| extension == env::consts::DLL_EXTENSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_among_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"serde","crate_types":["lib"]},"filenames":["/t/libserde.rlib"]}
{"reason":"compiler-artifact","target":{"name":"conflict_plugin","crate_types":["cdylib","rlib"]},"filenames":["/t/libconflict_plugin.so","/t/libconflict_plugin.rlib"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(library(messages), Some("/t/libconflict_plugin.so".into()));
        assert_eq!(library(b"{}"), None);
    }
}
