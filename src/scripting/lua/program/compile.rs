//! Compiles Lua source to bytecode, and loads bytecode into a Lua state.

use mlua::{
    Function, Lua,
    chunk::{ChunkMode, Compiler},
};

/// The reason a source does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct CompileError {
    /// The line in the author's source, from 1.
    pub line: u32,
    pub message: String,
}

/// Compiles a chunk to bytecode.
pub(super) fn compile(source: &str) -> Result<Vec<u8>, CompileError> {
    // Level 1 keeps line numbers for messages; more would only serve a debugger.
    let compiler = Compiler::new().set_optimization_level(1).set_debug_level(1);
    compiler.compile(source).map_err(|error| {
        let message = match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        };
        // "3: Expected …"
        match message.split_once(": ").map(|(line, rest)| (line.parse(), rest)) {
            Some((Ok(line), rest)) => CompileError { line, message: rest.to_owned() },
            _ => CompileError { line: 1, message },
        }
    })
}

/// Compiles Lua that is built into the host. It gets no line numbers, so that none of them appears in a script's
/// errors.
pub(in crate::scripting::lua) fn compile_builtin(source: &str) -> Vec<u8> {
    Compiler::new().set_debug_level(0).compile(source).expect("the built-in Lua compiles")
}

/// Loads bytecode of this host into a state. `name` is the prefix of the line in its errors.
pub(in crate::scripting::lua) fn load(lua: &Lua, name: &str, bytecode: &[u8]) -> mlua::Result<Function> {
    lua.load(bytecode).set_name(format!("={name}")).set_mode(ChunkMode::Binary).into_function()
}

/// Removes a first line of the form `#!/usr/bin/env …`. The other lines keep their numbers.
pub(super) fn without_shebang(file: &str) -> &str {
    match file.starts_with("#!") {
        true => file.find('\n').map_or("", |end| &file[end..]),
        false => file,
    }
}

pub(super) fn check_length(source: &str, limit: usize) -> Result<&str, CompileError> {
    if source.len() > limit {
        let message = format!("the source has {} bytes; at most {limit} are allowed", source.len());
        return Err(CompileError { line: 1, message });
    }
    Ok(source)
}
