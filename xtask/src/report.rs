//! `cargo xtask report`.

mod bench_sections;
mod data;
mod figures;
mod forkbomb_sections;
mod measure;
mod numbers;
mod page;
mod scale_section;
mod section;
mod transfers_section;

#[cfg(test)]
mod fixture;

use crate::json_file::Destination;
use crate::output::show;
use crate::workspace;
use anyhow::{Context, Result, bail};
use clap::Args;
use data::Data;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The page beside its JSON files.
const PAGE_FILE: &str = "index.html";

/// Write what the commands measure as one HTML page
///
/// Runs `forkbomb`, `bench`, `transfers` and `scale`, keeps their JSON files in the page's folder, and writes a page with their tables and charts that needs no network
/// and no other file. About nine minutes on two CPUs; measure on a machine that does nothing else.
///
/// With `--from` measures nothing: the page is of the files forkbomb.json, bench.json, transfers.json and scale.json in that folder. A section whose file is
/// missing or cannot be understood says so.
///
/// QEMU is installed first when it is missing (by apt, as root on Debian or Ubuntu; elsewhere the command to type is printed).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask report                              measure, target/report/index.html
  cargo xtask report --from DIR --out page.html   a page of JSON files that are there
  cargo xtask report --numbers docs/numbers.md    the key figures as Markdown too")]
pub struct Report {
    /// Measure nothing; the folder with the JSON files
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,

    /// The page [default: index.html in DIR, or in target/report]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Write the key figures to this file as Markdown, each with its spread, command and machine
    #[arg(long, value_name = "FILE")]
    pub numbers: Option<PathBuf>,
}

/// Measures, if that is wanted, and writes the page. A command that fails does not keep the others' results from the page.
pub fn run(options: &Report) -> Result<ExitCode> {
    let out = options.out.clone().unwrap_or_else(|| default_folder(options).join(PAGE_FILE));
    let folder = options.from.clone().unwrap_or_else(|| folder_of(&out));
    if options.from.is_none() && options.out.is_none() {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    if !folder.is_dir() {
        bail!("{} is not a folder", folder.display());
    }
    let destination = Destination::new(&out)?;
    let numbers = options.numbers.as_deref().map(Destination::new).transpose()?;
    let measured = if options.from.is_none() { measure::all(&folder) } else { Ok(()) };

    let data = Data::read(&folder);
    if data.is_empty() {
        measured?;
        bail!("nothing to show in {}: {}", folder.display(), data.problems().join("; "));
    }
    destination.write_text(&page::render(&data))?;
    if let Some(numbers) = numbers {
        numbers.write_text(&numbers::render(&data))?;
    }
    for problem in data.problems() {
        eprintln!("note: {problem}");
    }
    measured?;
    show(out.display())?;
    Ok(ExitCode::SUCCESS)
}

fn default_folder(options: &Report) -> PathBuf {
    options.from.clone().unwrap_or_else(|| workspace::root().join("target/report"))
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")).to_owned()
}
