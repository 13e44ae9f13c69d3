//! Each mistake is one line that says what is wrong.

use super::{KERNEL, PLUGIN, kernel_called, machine, workspace};
use kernel_runner::{Kernel, Machine};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use transfers::{Marks, count, read_report};

fn count_error(machine: &Machine, plugin: &Path, words: &str) -> String {
    let marks = Marks::open(&KERNEL, workspace()).unwrap();
    one_line(&count(machine, plugin, &Kernel::open(&*KERNEL).unwrap(), &marks, words, |_| {}).unwrap_err())
}

fn one_line(error: &anyhow::Error) -> String {
    let line = format!("{error:#}");
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn a_kernel_without_marks_is_refused_before_it_boots() {
    let error = one_line(&Marks::open(&kernel_called("operations"), workspace()).unwrap_err());
    assert!(error.contains("marks no operation"), "{error}");
}

#[test]
fn a_kernel_that_executes_no_mark_is_named_so() {
    let error = count_error(&machine(2), &PLUGIN, "op=no_such_operation");
    assert!(error.contains("executed no marked operation"), "{error}");
}

#[test]
fn a_qemu_without_plugins_is_named_so() {
    let folder = tempfile::tempdir().unwrap();
    let qemu = folder.path().join("qemu");
    fs::write(&qemu, "#!/bin/sh\necho 'qemu-system-x86_64: -plugin: invalid option' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
    let error = count_error(&Machine { qemu, ..machine(2) }, Path::new("plugin.so"), "");
    assert!(error.contains("this QEMU has no plugins"), "{error}");
}

#[test]
fn a_plugin_that_qemu_cannot_load_is_named() {
    let error = count_error(&machine(2), Path::new("no_such_plugin.so"), "");
    assert!(error.contains("no_such_plugin.so"), "{error}");
}

#[test]
fn more_cpus_than_can_be_told_apart_are_refused() {
    let error = count_error(&machine(257), Path::new("plugin.so"), "");
    assert!(error.contains("257 CPUs"), "{error}");
}

#[test]
fn a_file_that_is_no_report_is_named() {
    let marks = Marks::open(&KERNEL, workspace()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    assert!(one_line(&read_report(&path, 2, &marks).unwrap_err()).contains("report.json"));
    fs::write(&path, "{").unwrap();
    assert!(one_line(&read_report(&path, 2, &marks).unwrap_err()).contains("is no report of the plugin's"));
}
