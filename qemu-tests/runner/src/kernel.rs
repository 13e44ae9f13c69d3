//! A kernel's ELF file: what QEMU boots, and the table that its log is decoded with.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use defmt_decoder::{DecodeError, Frame, Locations, StreamDecoder, Table};
use serde_json::Value;

use crate::{Error, Level, LogLine};

/// An ELF file with a defmt table.
pub struct Kernel {
    path: PathBuf,
    table: Table,
    locations: Locations,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Reads the file and its defmt table; source locations too, if it has debug information.
    ///
    /// # Errors
    /// The file is not readable, not ELF, or without a usable defmt table.
    pub fn open(path: impl AsRef<Path>) -> Result<Kernel, Error> {
        let path = path.as_ref().to_owned();
        let elf = match fs::read(&path) {
            Ok(elf) => elf,
            Err(reason) => return Err(Error::KernelUnreadable { path, reason }),
        };
        if !elf.starts_with(b"\x7fELF") {
            return Err(Error::NotElf { path });
        }
        let table = match Table::parse(&elf) {
            Ok(Some(table)) => table,
            Ok(None) => return Err(Error::NoDefmt { path }),
            Err(error) => {
                let reason = error.to_string().lines().collect::<Vec<_>>().join("; ");
                return Err(Error::BadDefmt { path, reason });
            }
        };
        // Without debug information the log is still worth reading.
        let mut locations = table.get_locations(&elf).unwrap_or_default();
        let root = workspace_root();
        for location in locations.values_mut() {
            if let Some(relative) = root.as_ref().and_then(|root| location.file.strip_prefix(root).ok()) {
                location.file = relative.to_owned();
            }
        }
        Ok(Kernel { path, table, locations })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the kernel has a message `@plan` to send: then it holds test cases. Known without a boot, as every format
    /// string is in the table.
    pub fn holds_tests(&self) -> bool {
        // A symbol is JSON, in which `@` may be escaped, as it means something to linkers.
        let format = |symbol: &str| Some(serde_json::from_str::<Value>(symbol).ok()?["data"].as_str()?.to_owned());
        self.table.raw_symbols().filter_map(format).any(|format| format.starts_with("@plan"))
    }

    pub(crate) fn decoder(&self) -> Decoder<'_> {
        Decoder { kernel: self, stream: self.table.new_stream_decoder() }
    }

    fn line(&self, frame: &Frame<'_>) -> LogLine {
        let timestamp = frame.display_timestamp().map(|timestamp| timestamp.to_string()).unwrap_or_default();
        let (timestamp, cpu) = split_cpu(&timestamp);
        LogLine {
            timestamp,
            cpu,
            // The decoder's own level type is not re-exported by it, but its words are stable.
            level: frame.level().and_then(|level| match level.as_str() {
                "trace" => Some(Level::Trace),
                "debug" => Some(Level::Debug),
                "info" => Some(Level::Info),
                "warn" => Some(Level::Warn),
                "error" => Some(Level::Error),
                _ => None,
            }),
            message: frame.display_message().to_string(),
            location: self.locations.get(&frame.index()).map(|at| (at.file.display().to_string(), at.line)),
        }
    }
}

/// Turns the bytes of the debug console into lines.
pub(crate) struct Decoder<'k> {
    kernel: &'k Kernel,
    stream: Box<dyn StreamDecoder + Send + Sync + 'k>,
}

impl Decoder<'_> {
    /// The lines that are complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], mut on_line: impl FnMut(LogLine)) {
        self.stream.received(bytes);
        loop {
            match self.stream.decode() {
                Ok(frame) => on_line(self.kernel.line(&frame)),
                Err(DecodeError::UnexpectedEof) => return,
                Err(DecodeError::Malformed) => {
                    let mut line = LogLine::new("the runner could not decode a frame, and skipped it");
                    line.level = Some(Level::Warn);
                    on_line(line);
                    if !self.kernel.table.encoding().can_recover() {
                        return;
                    }
                }
            }
        }
    }
}

/// Splits `0.001234 cpu3`: the CPU is part of the timestamp because defmt has no other field that every frame carries.
fn split_cpu(timestamp: &str) -> (String, Option<u32>) {
    let parts = timestamp.rsplit_once(' ');
    let cpu = parts.and_then(|(_, word)| word.strip_prefix("cpu")).and_then(|number| number.parse().ok());
    match (parts, cpu) {
        (Some((time, _)), Some(_)) => (time.trim().to_owned(), cpu),
        _ => (timestamp.trim().to_owned(), None),
    }
}

/// The outermost folder with a Cargo.lock above the current one. Cargo starts a runner in the folder of the package, and the
/// debug information holds absolute paths.
fn workspace_root() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().filter(|folder| folder.join("Cargo.lock").exists()).last().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::split_cpu;

    #[test]
    fn the_cpu_is_taken_off_the_timestamp() {
        assert_eq!(split_cpu("0.001234 cpu3"), ("0.001234".into(), Some(3)));
    }

    #[test]
    fn a_timestamp_of_another_form_is_kept_whole() {
        for other in ["", "0.001234", "12:30 core 4", "cpu3", "1 cpux"] {
            assert_eq!(split_cpu(other), (other.into(), None));
        }
    }
}
