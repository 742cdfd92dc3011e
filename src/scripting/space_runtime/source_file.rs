//! Reads and compiles Lua files of a space.

use crate::scripting::lua::{MAX_SPACE_FILE, Program};
use std::{
    io::{self, Read as _},
    path::Path,
};

/// Reads a file as text. One longer than the compiler accepts is cut behind its limit, so that compiling it fails.
pub fn read(path: &Path) -> io::Result<String> {
    let mut source = String::new();
    std::fs::File::open(path)?.take(MAX_SPACE_FILE as u64 + 1).read_to_string(&mut source)?;
    Ok(source)
}

/// Compiles a module of a space. The message of a failure begins with `name:line`.
pub fn compile_module(name: &str, source: &str) -> Result<Program, String> {
    Program::space_module(name, source).map_err(|error| format!("{name}:{}: {}", error.line, error.message))
}
