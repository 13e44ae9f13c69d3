//! The cases of the test kernel, on 1, 2, 4 and 8 CPUs: each is a line of the usual test output.
//!
//! All selected cases of one CPU count run in one boot. The package's name puts this file before all other tests that
//! `cargo test` runs and that need QEMU, so that a missing QEMU shows at once.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kernel_runner::{CaseReport, Error, Kernel, Machine, SuiteReport, build_kernel, list_cases, run_cases};
use libtest_mimic::{Arguments, Failed, Trial};

const CPU_COUNTS: [u32; 4] = [1, 2, 4, 8];

/// For one boot with all cases: 8 CPUs may share 2 slow ones.
const TIME_LIMIT: Duration = Duration::from_secs(300);

const BUILD: [&str; 8] = ["test", "--config", ".cargo/kernel-host.toml", "--package", "test-kernel", "--test", "kernel", "--no-run"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match trials(&arguments) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let machine = Machine::find().map_err(|error| match error {
        Error::QemuMissing { program } => {
            format!("{} is not installed: `cargo xtask test` installs it and then runs the tests", program.display())
        }
        error => error.to_string(),
    })?;
    let machine = Machine { time_limit: Some(TIME_LIMIT), ..machine };
    let kernel = Kernel::open(build().map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    let names = list_cases(&machine, &kernel, "").map_err(|ending| format!("the test kernel did not list its cases: {ending}"))?;
    if names.is_empty() {
        return Err("the test kernel listed no cases".to_owned());
    }
    let kernel = Arc::new(kernel);
    Ok(CPU_COUNTS.iter().flat_map(|&cpus| on(Machine { cpus, ..machine.clone() }, &kernel, &names, arguments)).collect())
}

fn build() -> Result<PathBuf, Error> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    build_kernel(&workspace, &BUILD)
}

/// One trial for each case. The first that runs boots the machine, for all that the filters select.
fn on(machine: Machine, kernel: &Arc<Kernel>, names: &[String], arguments: &Arguments) -> Vec<Trial> {
    let cpus = machine.cpus;
    let full_name = move |name: &str| format!("cpus_{cpus}::{name}");
    let selects = |name: &&String| !arguments.is_filtered_out(&Trial::test(full_name(name), || Ok(())));
    let selected: Vec<String> = names.iter().filter(selects).cloned().collect();
    // A kernel that runs all its cases needs no list of them.
    let cases = (selected.len() < names.len()).then_some(selected);
    let kernel = Arc::clone(kernel);
    let suite = OnceLock::new();
    let boot = Arc::new(move || -> SuiteReport {
        let report = suite.get_or_init(|| run_cases(&machine, &kernel, "", cases.as_deref(), |_| {}));
        report.clone()
    });
    let trial = |name: &String| {
        let boot = Arc::clone(&boot);
        let wanted = name.clone();
        Trial::test(full_name(name), move || result(&boot(), &wanted))
    };
    names.iter().map(trial).collect()
}

/// What the boot says about this case.
fn result(suite: &SuiteReport, name: &str) -> Result<(), Failed> {
    match (suite.cases.iter().find(|case| case.name == name), &suite.trouble) {
        (Some(CaseReport { failure: Some(reason), log, .. }), _) => {
            let lines = log.iter().map(|line| format!("{line}\n"));
            Err(format!("{}{reason}", lines.collect::<String>()).into())
        }
        // Of a boot that did not end well no case counts as passed.
        (Some(_), None) => Ok(()),
        (_, Some(trouble)) => {
            let lines = suite.log.iter().map(|line| format!("{line}\n"));
            Err(format!("{}outside of any case: {trouble}", lines.collect::<String>()).into())
        }
        (None, None) => Err("the kernel did not run it".into()),
    }
}
