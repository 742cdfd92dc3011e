//! The allocator of the whole program, jemalloc, and the return of memory that a server does not need any more.

use std::path::Path;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The settings, which jemalloc reads at its start: freed memory goes back to the system after a second, instead of ten
/// and ten more.
// jemalloc has a weak symbol of this name, a pointer to a C string.
#[used]
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 37] = b"dirty_decay_ms:1000,muzzy_decay_ms:0\0";

/// Gives memory that has been free for a while back to the system. jemalloc does so by itself only in threads that use
/// memory, so that an idle server would keep what it needed last.
pub fn return_freed_memory() {
    // The number stands for all arenas.
    let command = c"arena.4096.decay";
    // SAFETY: the command is known, and neither reads nor writes a value. A failure would cost memory only.
    unsafe {
        tikv_jemalloc_sys::mallctl(
            command.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        );
    }
}

/// Unmaps the code of this program, once it has started. What serves is mapped again from the system's file cache when
/// it runs; what only the start needs stays out of the memory of a process that runs for months.
pub fn unmap_start_code() {
    #[cfg(target_os = "linux")]
    if let (Ok(program), Ok(mappings)) = (std::env::current_exe(), std::fs::read_to_string("/proc/self/maps")) {
        for (start, length) in code_mappings(&mappings, &program) {
            // SAFETY: the range is a private mapping of a file that nobody can write to, so that its pages come back as
            // they were.
            unsafe { libc::madvise(std::ptr::without_provenance_mut(start), length, libc::MADV_DONTNEED) };
        }
    }
}

/// The start and the length of each mapping of this program's code. Other mappings of the file hold data that was
/// changed.
#[cfg(target_os = "linux")]
fn code_mappings<'a>(mappings: &'a str, program: &'a Path) -> impl Iterator<Item = (usize, usize)> + 'a {
    mappings.lines().filter_map(move |line| {
        let mut fields = line.splitn(6, ' ');
        let (range, permissions, path) = (fields.next()?, fields.next()?, fields.nth(3)?.trim_start());
        let (start, end) = range.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        (permissions == "r-xp" && Path::new(path) == program).then_some((start, end.checked_sub(start)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a number of jemalloc.
    fn read<T: Default>(name: &std::ffi::CStr) -> T {
        let (mut value, mut size) = (T::default(), size_of::<T>());
        // SAFETY: the value has the size that is told, and is a number, for which every bit pattern is legal.
        let error = unsafe {
            tikv_jemalloc_sys::mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut size, std::ptr::null_mut(), 0)
        };
        assert_eq!((error, size), (0, size_of::<T>()), "{name:?}");
        value
    }

    #[test]
    fn only_the_code_of_the_program_is_unmapped() {
        let mappings = "\
55d0c0000000-55d0c0100000 r--p 00000000 08:01 42                         /usr/bin/svc
55d0c0100000-55d0c1900000 r-xp 00100000 08:01 42                         /usr/bin/svc
55d0c1a00000-55d0c1b00000 r--p 01a00000 08:01 42                         /usr/bin/svc
55d0c2000000-55d0c2100000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000100000 r-xp 00000000 08:01 43                         /usr/lib/libc.so.6
7f0000200000-7f0000300000 r-xp 00000000 00:00 0                          [vdso]
";
        let found: Vec<_> = code_mappings(mappings, Path::new("/usr/bin/svc")).collect();
        assert_eq!(found, [(0x55d0_c010_0000, 0x180_0000)]);
        assert_eq!(code_mappings("", Path::new("/usr/bin/svc")).count(), 0);
        // This test goes on afterwards.
        unmap_start_code();
    }

    #[test]
    fn freed_memory_goes_back_after_a_second() {
        assert_eq!((read::<isize>(c"opt.dirty_decay_ms"), read::<isize>(c"opt.muzzy_decay_ms")), (1000, 0));
        return_freed_memory();
    }
}
