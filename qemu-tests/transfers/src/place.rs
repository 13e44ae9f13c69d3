//! From an instruction's address to the source.

use addr2line::Loader;
use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where an instruction comes from: the function, and those that it was inlined into.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Place {
    /// Innermost first; functions of `core` are left out where others remain. Empty if the kernel has no symbol there.
    pub frames: Vec<Frame>,
}

/// A function and a line in it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Frame {
    /// Its path, without a hash.
    pub symbol: String,
    /// Empty without debug information.
    pub file: String,
    /// 0 without debug information.
    pub line: u32,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.symbol)?;
        if self.file.is_empty() { Ok(()) } else { write!(f, " ({}:{})", self.file, self.line) }
    }
}

/// The innermost function, and the way into it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nr, frame) in self.frames.iter().enumerate() {
            write!(f, "{}{frame}", if nr == 0 { "" } else { ", in " })?;
        }
        if self.frames.is_empty() { f.write_str("an unknown place") } else { Ok(()) }
    }
}

/// The debug information of an ELF file.
pub struct Places {
    loader: Loader,
    root: PathBuf,
    /// What was found so far: few instructions make most transfers, and a search takes a millisecond without optimisation.
    found: RefCell<HashMap<u64, Place>>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Places {
    /// Reads an ELF file. Paths below `root` are shown relative to it.
    pub(crate) fn open(path: &Path, root: &Path) -> Result<Self> {
        let loader = Loader::new(path).map_err(|error| anyhow!("the symbols of {}: {error}", path.display()))?;
        Ok(Self { loader, root: root.to_owned(), found: RefCell::default() })
    }

    /// Where the instruction at this address comes from.
    pub fn of(&self, address: u64) -> Place {
        if let Some(place) = self.found.borrow().get(&address) {
            return place.clone();
        }
        let place = self.search(address);
        self.found.borrow_mut().insert(address, place.clone());
        place
    }

    fn search(&self, address: u64) -> Place {
        let mut frames = self.frames(address).unwrap_or_default();
        if frames.is_empty() {
            frames.extend(self.loader.find_symbol(address).map(|symbol| Frame {
                symbol: addr2line::demangle_auto(symbol.into(), None).into_owned(),
                file: String::new(),
                line: 0,
            }));
        }
        // Every access is in some wrapper of `core`'s; who called it is of interest.
        if frames.iter().any(|frame| !is_of_core(frame)) {
            frames.retain(|frame| !is_of_core(frame));
        }
        Place { frames }
    }

    fn frames(&self, address: u64) -> Option<Vec<Frame>> {
        let mut frames = Vec::new();
        let mut found = self.loader.find_frames(address).ok()?;
        while let Ok(Some(frame)) = found.next() {
            let symbol = frame.function.as_ref().and_then(|function| function.demangle().ok().map(|name| without_hash(&name).to_owned()));
            let location = frame.location;
            let file = location.as_ref().and_then(|location| location.file).map(|file| self.shown(file)).unwrap_or_default();
            let line = location.and_then(|location| location.line).unwrap_or(0);
            frames.extend(symbol.map(|symbol| Frame { symbol, file, line }));
        }
        Some(frames)
    }

    /// A path as the reader knows it: in the workspace, or in its crate.
    fn shown(&self, file: &str) -> String {
        if let Ok(relative) = Path::new(file).strip_prefix(&self.root) {
            return relative.display().to_string();
        }
        // Sources of other crates are below `registry/src/HOST/`, the standard library's below `/rustc/HASH/`.
        let behind = |marker: &str| file.split_once(marker)?.1.split_once('/').map(|(_, rest)| rest.to_owned());
        behind("registry/src/").or_else(|| behind("/rustc/")).unwrap_or_else(|| file.to_owned())
    }
}

fn is_of_core(frame: &Frame) -> bool {
    frame.file.starts_with("library/core/")
}

fn without_hash(symbol: &str) -> &str {
    let is_hash = |tail: &str| tail.len() == 17 && tail.starts_with('h') && tail[1..].chars().all(|c| c.is_ascii_hexdigit());
    symbol.rsplit_once("::").filter(|(_, tail)| is_hash(tail)).map_or(symbol, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSymbol};

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn transfers_test_function() -> u32 {
        line!()
    }

    #[test]
    fn a_function_is_found_by_its_address() {
        let own = std::env::current_exe().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let places = Places::open(&own, root).unwrap();
        let elf = std::fs::read(&own).unwrap();
        let file = object::File::parse(&*elf).unwrap();
        // Its address in the file, and not where this process has it.
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok("transfers_test_function")).unwrap();
        let place = places.of(symbol.address());
        let frame = place.frames.last().unwrap();
        assert!(frame.symbol.ends_with("transfers_test_function"), "{place}");
        assert!(frame.file.ends_with("src/place.rs") && frame.line.abs_diff(transfers_test_function()) <= 2, "{place}");
        assert_eq!(places.of(1 << 60).to_string(), "an unknown place");
    }

    #[test]
    fn hashes_are_left_out_of_symbols() {
        assert_eq!(without_hash("core::ptr::read::h0123456789abcdef"), "core::ptr::read");
        assert_eq!(without_hash("core::ptr::read"), "core::ptr::read");
        assert_eq!(without_hash("heap::hello"), "heap::hello");
    }
}
