//! What the two threads on the kernel's mailing lists printed that this workspace is compared with.

/// The first thread: executions a second with four counters allocated one by one, and as a group.
/// <https://lore.kernel.org/r/20230823050609.2228718-3-mjguzik@gmail.com>
pub const EXEC_BEFORE: f64 = 133_543.0;
pub const EXEC_AFTER: f64 = 186_061.0;
pub const EXEC_PLACE: &str = "26 cores (M. Guzik, 2023)";

/// The second thread: milliseconds of lmbench's programs with counters for each CPU, and with atomics until there is a second thread.
/// Message 20240418142008.2775308-1. The changes are as printed there.
pub const OPERATIONS_MS: [(&str, f64, f64, &str); 3] =
    [("fork_proc", 416.3, 398.6, "-4.2 %"), ("exec_proc", 2_095.9, 2_047.7, "-2.3 %"), ("shell_proc", 3_028.2, 2_961.2, "-2.2 %")];
pub const OPERATIONS_PLACE: &str = "ZhangPeng, 2024; machine not told";
