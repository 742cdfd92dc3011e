//! Lua as its author wrote it ([`BodyTemplate`], or a script's text) and as it runs ([`Program`]).
//!
//! Compiling happens once, when a sink is saved, so that a mistake is told to its author with its line.
//! Only text is ever compiled: bytecode from outside could break the interpreter, and none is accepted.

use super::{
    space_program::Capabilities,
    text_template::{self, Piece},
};
use crate::model::{body_template::BodyTemplate, lua_source::MAX_SOURCE};
use mlua::chunk::Compiler;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The longest source of a file that is a space's own, in bytes.
pub const MAX_SPACE_FILE: usize = 1 << 20;

/// A compiled template, script, library or tool. Cloning it is cheap; clones run in the same pooled state.
#[derive(Clone)]
pub struct Program(pub(super) Arc<Compiled>);

pub(super) struct Compiled {
    /// Tells one program from every other of this process, also after it is gone.
    pub id: u64,
    pub kind: Kind,
    /// What stands before the line number in its errors.
    pub name: String,
    pub code: Code,
}

/// What a program is for, and so which libraries it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Template,
    Script,
    /// Runs only inside others, with what those have.
    Library,
    Tool,
    Space(Capabilities),
}

pub(super) enum Code {
    /// The bytecode of one chunk.
    Chunk(Vec<u8>),
    /// Literal text and expressions in turn.
    Text(Vec<Piece>),
}

/// Why a source does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct CompileError {
    /// The line in the author's source, from 1.
    pub line: u32,
    pub message: String,
}

impl Program {
    /// Compiles a template.
    ///
    /// # Errors
    ///
    /// Fails with the line if the source is longer than [`MAX_SOURCE`] or is no valid Lua.
    pub fn template(template: &BodyTemplate) -> Result<Self, CompileError> {
        let code = match template {
            BodyTemplate::Lua(source) => Code::Chunk(compile(checked(source)?)?),
            BodyTemplate::Text(source) => Code::Text(text_template::split(checked(source)?)?),
        };
        Ok(Self::new(Kind::Template, Kind::Template.name(), code))
    }

    /// Compiles a script. `name` stands before the line in its errors: that of a stored one, else `script`.
    ///
    /// # Errors
    ///
    /// As [`Program::template`].
    pub fn script(name: &str, source: &str) -> Result<Self, CompileError> {
        Ok(Self::new(Kind::Script, name, Code::Chunk(compile(checked(source)?)?)))
    }

    /// Compiles what other programs `require`. Its errors begin with its name and line: `acme.text:3: …`.
    ///
    /// # Errors
    ///
    /// As [`Program::template`].
    pub fn library(name: &str, source: &str) -> Result<Self, CompileError> {
        Ok(Self::new(Kind::Library, name, Code::Chunk(compile(checked(source)?)?)))
    }

    /// Compiles what is called with arguments and returns a result ([`Runtime::run_tool`](super::Runtime::run_tool)),
    /// named as [`Program::library`] has it.
    ///
    /// # Errors
    ///
    /// As [`Program::template`].
    pub fn tool(name: &str, source: &str) -> Result<Self, CompileError> {
        Ok(Self::new(Kind::Tool, name, Code::Chunk(compile(checked(source)?)?)))
    }

    /// Compiles a program of a space: `name` is that of its file, which stands before the line in its errors.
    ///
    /// # Errors
    ///
    /// As [`Program::template`], but for a source longer than [`MAX_SPACE_FILE`].
    pub fn for_space(name: &str, source: &str, reach: Capabilities) -> Result<Self, CompileError> {
        Ok(Self::new(Kind::Space(reach), name, Code::Chunk(compile(lua_of(sized(source, MAX_SPACE_FILE)?))?)))
    }

    /// Compiles a file that programs of a space `require`, named as [`Program::for_space`] has it.
    ///
    /// # Errors
    ///
    /// As [`Program::for_space`].
    pub fn space_module(name: &str, source: &str) -> Result<Self, CompileError> {
        Ok(Self::new(Kind::Library, name, Code::Chunk(compile(lua_of(sized(source, MAX_SPACE_FILE)?))?)))
    }

    fn new(kind: Kind, name: &str, code: Code) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Compiled { id: NEXT.fetch_add(1, Ordering::Relaxed), kind, name: name.to_owned(), code }))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({} {:?})", self.0.id, self.0.kind)
    }
}

impl Kind {
    /// What a program of this kind is called in messages and, unless it has a name, before the line number.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Script => "script",
            Self::Library => "library",
            Self::Tool => "tool",
            Self::Space(_) => "program",
        }
    }
}

/// The bytecode of a chunk.
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

/// A file without what its first line says to the system: `#!/usr/bin/env …`. The others keep their numbers.
fn lua_of(file: &str) -> &str {
    match file.starts_with("#!") {
        true => file.find('\n').map_or("", |end| &file[end..]),
        false => file,
    }
}

fn checked(source: &str) -> Result<&str, CompileError> {
    sized(source, MAX_SOURCE)
}

fn sized(source: &str, most: usize) -> Result<&str, CompileError> {
    if source.len() > most {
        let message = format!("the source has {} bytes; at most {most} are allowed", source.len());
        return Err(CompileError { line: 1, message });
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_with_its_line() {
        let error = Program::script("script", "local a = 1\nlocal b = = 2\n").unwrap_err();
        assert_eq!((error.line, error.message.contains("'='")), (2, true), "{error}");
        let error = Program::template(&BodyTemplate::Lua("return {".into())).unwrap_err();
        assert_eq!(error.line, 1, "{error}");
    }

    #[test]
    fn bytecode_is_no_source() {
        let bytecode = compile("return 1").unwrap();
        let disguised = String::from_utf8_lossy(&bytecode).into_owned();
        assert!(Program::script("script", &disguised).is_err());
        assert!(Program::script("script", "\u{1b}Lua").is_err());
    }

    #[test]
    fn a_source_has_a_longest_length() {
        assert!(Program::script("script", &" ".repeat(MAX_SOURCE)).is_ok());
        assert!(Program::script("script", &" ".repeat(MAX_SOURCE + 1)).unwrap_err().message.contains("65536"));
    }

    #[test]
    fn a_source_nested_without_end_is_refused_and_not_crashed_on() {
        for (open, middle, close) in [
            ("(", "1", ")"),
            ("{", "", "}"),
            ("f(", "", ")"),
            ("-", "1", ""),
            ("not ", "1", ""),
            ("function() return ", "1", " end"),
            ("`{", "1", "}`"),
            ("a.", "a", ""),
            ("1 ..", "1", ""),
            ("2 ^ ", "1", ""),
            ("if a then ", "1", " else 1"),
        ] {
            let depth = (MAX_SOURCE - 20) / (open.len() + close.len());
            let source = format!("return {}{middle}{}", open.repeat(depth), close.repeat(depth));
            let _ = Program::script("script", &source);
        }
        let depth = MAX_SOURCE / 20;
        let _ = Program::script("script", &format!("{}{}", "while a do ".repeat(depth), "end ".repeat(depth)));
        let _ = Program::script("script", &format!("local a: {} = 1", "{".repeat(MAX_SOURCE - 20)));
        let _ = Program::script("script", &format!("local a: {} = 1", "(".repeat(MAX_SOURCE - 20)));
    }
}
