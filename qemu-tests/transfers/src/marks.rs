//! The operations that a kernel marks, from its ELF file.

use crate::place::Places;
use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the library's `marked!` puts numbers and names.
const SECTION: &str = ".pcpu_markers";

/// What an ELF file says about its marks.
#[derive(Debug)]
pub struct Marks {
    /// The names of operations, by number.
    pub operations: BTreeMap<u16, String>,
    /// Where its instructions come from.
    pub places: Places,
}

impl Marks {
    /// Reads an ELF file. Paths below `root` are shown relative to it.
    ///
    /// # Errors
    /// The file cannot be read, or carries no marks.
    pub fn open(path: &Path, root: &Path) -> Result<Self> {
        // Something else, as a device, may have no end.
        if path.exists() && !path.is_file() {
            bail!("cannot read {}: it is not a regular file", path.display());
        }
        let elf = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = object::File::parse(&*elf).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(section) = file.section_by_name(SECTION) else {
            bail!("{} marks no operation: use `pcpu::marked!`, of the feature `markers`", path.display());
        };
        let operations =
            names(section.data().context(SECTION)?).with_context(|| format!("the names of operations in {}", path.display()))?;
        Ok(Self { operations, places: Places::open(path, root)? })
    }
}

/// Reads the section: numbers of 16 bits, each with a string that ends with a nul. A mark that was inlined twice is there twice.
fn names(mut records: &[u8]) -> Result<BTreeMap<u16, String>> {
    let mut names = BTreeMap::new();
    while let Some((number, rest)) = records.split_first_chunk() {
        let number = u16::from_le_bytes(*number);
        let length = rest.iter().position(|&byte| byte == 0).context("a name has no end")?;
        let name = String::from_utf8_lossy(&rest[..length]).into_owned();
        if let Some(other) = names.insert(number, name.clone()).filter(|other| *other != name) {
            bail!("number {number} is both `{other}` and `{name}`");
        }
        records = &rest[length + 1..];
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_numbers_and_names_and_may_be_there_twice() {
        let found = names(b"\x01\x00one\0\x02\x01two\0\x01\x00one\0").unwrap();
        assert_eq!(found, BTreeMap::from([(1, "one".into()), (0x102, "two".into())]));
        assert!(names(b"").unwrap().is_empty());
    }

    #[test]
    fn a_number_with_two_names_and_a_name_without_an_end_are_refused() {
        let error = names(b"\x01\x00one\0\x01\x00other\0").unwrap_err();
        assert_eq!(error.to_string(), "number 1 is both `one` and `other`");
        assert!(names(b"\x01\x00one").is_err());
    }
}
