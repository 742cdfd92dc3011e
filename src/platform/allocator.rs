//! Settings of the system's allocator, for a program that runs for months.

/// Bytes from which a block comes straight from the system, and goes back there when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 1 << 20;

/// Makes the allocator give memory back.
///
/// glibc has an arena for nearly every thread, and what one thread has freed in its arena no other uses. It also raises the size of
/// what it calls large with every such block that is freed, up to 32 MiB, and keeps the smaller ones. Fewer arenas, or returning
/// memory sooner, costs emits from many callers a third of their speed: threads wait for one another, and blocks of sled's log
/// (512 KiB) come from the system again and again.
pub fn configure_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let arenas = 2 * std::thread::available_parallelism().map_or(2, usize::from).max(2);
        // SAFETY: no other thread runs yet, and these options take a number each.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, libc::c_int::try_from(arenas).unwrap_or(4));
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, 8 * LARGE);
        }
    }
}
