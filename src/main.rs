//! The `svc` program. Everything is in the library; the command line starts in `svc::cli`.

use std::process::ExitCode;

/// A call is a few dozen small allocations that one thread makes and another frees, which glibc is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    svc::cli::run(std::env::args_os().skip(1))
}
