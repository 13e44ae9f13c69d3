//! The workspace's commands, as `cargo xtask COMMAND`.

mod bench;
mod bench_rows;
mod bench_table;
mod cli;
mod distinct;
mod forkbomb;
mod host;
mod json_file;
mod legend;
mod output;
mod plot;
mod progress;
mod published;
mod qemu_install;
mod report;
mod rows;
mod scale;
mod table;
mod test;
mod transfers;
mod transfers_table;
mod workspace;

use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::parse_or_line() {
        Ok(cli) => cli,
        Err(cli::Stop::Help(text)) => {
            // Who reads no further has seen enough.
            let _ = output::show(text.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(cli::Stop::Error(line)) => {
            eprintln!("{line}");
            return ExitCode::from(2);
        }
    };
    let result = match &cli.command {
        Command::Bench(options) => bench::run(options),
        Command::Forkbomb(options) => forkbomb::run(options),
        Command::Report(options) => report::run(options),
        Command::Scale(options) => scale::run(options),
        Command::Test(options) => test::run(options),
        Command::Transfers(options) => transfers::run(options),
    };
    result.unwrap_or_else(|error| {
        // The chain of causes on one line.
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
