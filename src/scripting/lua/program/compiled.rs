//! Compiled Lua.
//!
//! A source is compiled once, when it is saved, so that its author gets a syntax error with its line. Only text is ever
//! compiled: bytecode from outside could break the interpreter, and none is accepted.

use super::{
    compile::{CompileError, check_length, compile, without_shebang},
    data_use::DataUse,
    text_template::{self, TemplatePiece},
    variables::Variables,
};
use crate::model::{
    body_template::BodyTemplate,
    lua_source::{MAX_FILTER, MAX_SOURCE},
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The longest source of a Lua file of a space, in bytes.
pub const MAX_SPACE_FILE: usize = 1 << 20;

/// A compiled template, script, library, tool or program of a space. Cloning it is cheap; clones share pooled states.
#[derive(Clone)]
pub struct Program(pub(in crate::scripting::lua) Arc<CompiledProgram>);

pub(in crate::scripting::lua) struct CompiledProgram {
    /// Unique in this process, also after the program is gone.
    pub id: u64,
    pub kind: ProgramKind,
    /// The prefix of the line number in the program's errors.
    pub name: String,
    pub code: ProgramCode,
    /// The fields that it can touch of the data of the event it runs for.
    pub data_use: DataUse,
    /// The variables that it can touch of a run for an event.
    pub variables: Variables,
}

/// The kind of a program, which decides the libraries it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scripting::lua) enum ProgramKind {
    Template,
    Script,
    /// Runs only inside other programs, with their libraries.
    Library,
    Tool,
    /// Turns a request at a source into events; it computes and has no effects.
    Transform,
    /// An expression that decides whether a sink gets an event. All filters of an owner share a state.
    Filter,
    Space(Capabilities),
}

/// The capabilities of a program of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capabilities {
    /// `fs`, `process`, `os` and `svc.agent`.
    Full,
    /// None of them, and no other means to start a process.
    Sandboxed,
}

pub(in crate::scripting::lua) enum ProgramCode {
    /// The bytecode of one chunk.
    Chunk(Vec<u8>),
    /// The pieces of a text template.
    Text(Vec<TemplatePiece>),
}

impl Program {
    /// Compiles a body template.
    ///
    /// # Errors
    ///
    /// Fails with the line if the source is longer than [`MAX_SOURCE`] or is not valid Lua.
    pub fn template(template: &BodyTemplate) -> Result<Self, CompileError> {
        let (code, data_use) = match template {
            BodyTemplate::Lua(source) => {
                (ProgramCode::Chunk(compile(check_length(source, MAX_SOURCE)?)?), DataUse::of(source))
            }
            BodyTemplate::Text(source) => {
                let (pieces, data_use) = text_template::parse(check_length(source, MAX_SOURCE)?)?;
                (ProgramCode::Text(pieces), data_use)
            }
        };
        let variables = match template {
            BodyTemplate::Lua(source) | BodyTemplate::Text(source) => Variables::of(source, &data_use),
        };
        Ok(Self::new(ProgramKind::Template, ProgramKind::Template.name(), code, data_use, variables))
    }

    /// Compiles a script. `name` is the prefix of the line in its errors: the name of a stored script, else `script`.
    pub fn script(name: &str, source: &str) -> Result<Self, CompileError> {
        Self::stored(ProgramKind::Script, name, source)
    }

    /// Compiles a library that other programs `require`. Its errors begin with its name and line: `acme.text:3: …`.
    pub fn library(name: &str, source: &str) -> Result<Self, CompileError> {
        Self::stored(ProgramKind::Library, name, source)
    }

    /// Compiles a tool, which is called with arguments and returns a result. Its errors begin with its name and line.
    pub fn tool(name: &str, source: &str) -> Result<Self, CompileError> {
        Self::stored(ProgramKind::Tool, name, source)
    }

    /// Compiles a transform of a source.
    pub fn transform(source: &str) -> Result<Self, CompileError> {
        Self::stored(ProgramKind::Transform, ProgramKind::Transform.name(), source)
    }

    /// Compiles a filter: one expression over `event`, `space` and `actor`.
    ///
    /// # Errors
    ///
    /// Fails with the line if the source is longer than [`MAX_FILTER`] or is no Lua expression.
    pub fn filter(source: &str) -> Result<Self, CompileError> {
        let source = check_length(source, MAX_FILTER)?;
        // The parentheses below could be closed early by `1) or (2`, which is no expression by itself.
        compile(&format!("return {source}"))?;
        let bytecode = compile(&format!("local event, space, actor = ... return ({source}\n)"))?;
        // The event is also the first of the arguments that `...` stands for.
        let data_use = if source.contains("...") { DataUse::Whole } else { DataUse::of(source) };
        let variables = Variables::of(source, &data_use);
        Ok(Self::new(
            ProgramKind::Filter,
            ProgramKind::Filter.name(),
            ProgramCode::Chunk(bytecode),
            data_use,
            variables,
        ))
    }

    /// Returns true if the program can touch all of an event's data.
    pub fn takes_whole_data(&self) -> bool {
        self.0.data_use == DataUse::Whole
    }

    /// Compiles a program of a space. `name` is the name of its file, the prefix of the line in its errors.
    ///
    /// # Errors
    ///
    /// Fails with the line if the source is longer than [`MAX_SPACE_FILE`] or is not valid Lua.
    pub fn for_space(name: &str, source: &str, capabilities: Capabilities) -> Result<Self, CompileError> {
        Self::file(ProgramKind::Space(capabilities), name, source)
    }

    /// Compiles a file that programs of a space `require`, as [`Program::for_space`] does.
    pub fn space_module(name: &str, source: &str) -> Result<Self, CompileError> {
        Self::file(ProgramKind::Library, name, source)
    }

    fn stored(kind: ProgramKind, name: &str, source: &str) -> Result<Self, CompileError> {
        let bytecode = compile(check_length(source, MAX_SOURCE)?)?;
        let data_use = match kind {
            ProgramKind::Script => DataUse::of(source),
            // It runs for no event.
            _ => DataUse::Whole,
        };
        let variables = Variables::of(source, &data_use);
        Ok(Self::new(kind, name, ProgramCode::Chunk(bytecode), data_use, variables))
    }

    fn file(kind: ProgramKind, name: &str, source: &str) -> Result<Self, CompileError> {
        let bytecode = compile(without_shebang(check_length(source, MAX_SPACE_FILE)?))?;
        // It runs for no event.
        Ok(Self::new(kind, name, ProgramCode::Chunk(bytecode), DataUse::Whole, Variables::ALL))
    }

    fn new(kind: ProgramKind, name: &str, code: ProgramCode, data_use: DataUse, variables: Variables) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(CompiledProgram { id, kind, name: name.to_owned(), code, data_use, variables }))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({} {:?})", self.0.id, self.0.kind)
    }
}

impl ProgramKind {
    /// The noun for a program of this kind in messages and, unless it has a name, before the line number.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Script => "script",
            Self::Library => "library",
            Self::Tool => "tool",
            Self::Transform => "transform",
            Self::Filter => "filter",
            Self::Space(_) => "program",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = Program::script("script", "local a = 1\nlocal b = = 2\n").unwrap_err();
        assert_eq!((error.line, error.message.contains("'='")), (2, true), "{error}");
        let error = Program::template(&BodyTemplate::Lua("return {".into())).unwrap_err();
        assert_eq!(error.line, 1, "{error}");
    }

    #[test]
    fn bytecode_is_refused_as_source() {
        let bytecode = compile("return 1").unwrap();
        let disguised = String::from_utf8_lossy(&bytecode).into_owned();
        assert!(Program::script("script", &disguised).is_err());
        assert!(Program::script("script", "\u{1b}Lua").is_err());
    }

    #[test]
    fn a_filter_is_one_expression() {
        for filter in ["true", "event.data.n > 1", "event.data.tag == 'a' -- a comment", "(function() return 1 end)()"]
        {
            assert!(Program::filter(filter).is_ok(), "{filter}");
        }
        for filter in ["", "return true", "x = 1", "1, 2", "1) or (2", "1; while true do end", "local a = 1"] {
            assert!(Program::filter(filter).is_err(), "{filter}");
        }
        let error = Program::filter("event.data.n >\n\n< 1").unwrap_err();
        assert_eq!(error.line, 3, "{error}");
        assert!(Program::filter(&format!("true{}", " ".repeat(MAX_FILTER))).unwrap_err().message.contains("4096"));
    }

    #[test]
    fn a_source_is_bounded_in_length() {
        assert!(Program::script("script", &" ".repeat(MAX_SOURCE)).is_ok());
        assert!(Program::script("script", &" ".repeat(MAX_SOURCE + 1)).unwrap_err().message.contains("65536"));
    }

    #[test]
    fn a_deeply_nested_source_does_not_crash_the_compiler() {
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
