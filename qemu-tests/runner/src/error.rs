//! What is wrong before a boot begins: the kernel's file, QEMU itself, or the build.

use std::path::PathBuf;

use crate::Ending;

/// Why there was nothing to boot, or (from [`Ending::into_result`]) why a boot did not end well. Each displays as one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel's file cannot be read.
    #[error("cannot read the kernel {}: {reason}", path.display())]
    KernelUnreadable {
        /// The file that was asked for.
        path: PathBuf,
        /// What the operating system said.
        reason: std::io::Error,
    },
    /// The file is not an ELF file.
    #[error("{} is not an ELF file", path.display())]
    NotElf {
        /// The file that was asked for.
        path: PathBuf,
    },
    /// An ELF file without a `.defmt` section: its log could not be decoded.
    #[error("{} is an ELF file without a defmt table: link it with `-T defmt.x`, and log with defmt", path.display())]
    NoDefmt {
        /// The file that was asked for.
        path: PathBuf,
    },
    /// The `.defmt` section is there, but this decoder does not understand it.
    #[error("the defmt table of {} cannot be used: {reason}", path.display())]
    BadDefmt {
        /// The file that was asked for.
        path: PathBuf,
        /// What the decoder said, on one line.
        reason: String,
    },
    /// There is no QEMU.
    #[error(
        "{} was not found: install QEMU (Debian, Ubuntu: `apt-get install qemu-system-x86`) or name its executable in the \
         environment variable QEMU", program.display()
    )]
    QemuMissing {
        /// What was looked for: `qemu-system-x86_64`, or what the environment variable `QEMU` says.
        program: PathBuf,
    },
    /// The nested `cargo` call failed; cargo has said why on stderr.
    #[error("the kernel does not build: `{command}` failed")]
    BuildFailed {
        /// The command, as a person would type it.
        command: String,
    },
    /// The boot ended otherwise than well.
    #[error("{0}")]
    Boot(Ending),
}
