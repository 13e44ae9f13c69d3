//! Where the plugin writes its report.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// Those that are there.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A folder that is removed with this.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for the plugin's report")?;
        FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).push(folder.path().to_owned());
        Ok(Self(folder))
    }

    /// The report's file.
    pub(crate) fn report(&self) -> PathBuf {
        self.0.path().join("report.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let is_other = |folder: &PathBuf| Path::new(folder) != self.0.path();
        FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).retain(is_other);
    }
}

/// Removes what boots under the plugin would leave, for a process that is about to end without unwinding. The boots must have ended.
pub fn remove_folders() {
    for folder in FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // There is nobody left to tell.
        let _ = std::fs::remove_dir_all(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_with_its_owner_or_at_the_end() {
        let (one, other) = (Folder::new().unwrap(), Folder::new().unwrap());
        std::fs::write(other.report(), "{").unwrap();
        let (first, second) = (one.report(), other.report());
        drop(one);
        assert!(!first.parent().unwrap().exists() && second.exists());
        remove_folders();
        assert!(!second.parent().unwrap().exists());
    }
}
