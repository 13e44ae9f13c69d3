//! The heap that chunks come from keeps what it once got from the system, so that page faults are not measured: a kernel's page
//! allocator has its own price, which is not this library's.

/// Tells glibc to keep all memory in one arena. Other heaps do as they like.
pub fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: parameters that malloc has; a value that it does not like is ignored.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_MAX, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
    }
}
