//! The `svc` program. Everything is in the library; the command line starts in `svc::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    svc::cli::run(std::env::args_os().skip(1))
}
