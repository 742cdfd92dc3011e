//! Lua that comes with a sink: the source is stored, the program is compiled at first use and then kept.
//!
//! Saving a sink compiles the source once to check it, so that a syntax error is reported to the user who saves it.
//! Thousands of sinks that never run cost their source and nothing more.

use crate::{
    model::body_template::BodyTemplate,
    scripting::lua::{CompileError, Program},
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::OnceLock};

/// A source and, after its first use, its program. It is stored as its source.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct LazyProgram<S> {
    source: S,
    #[serde(skip)]
    program: OnceLock<Result<Program, CompileError>>,
}

/// A text that compiles to a [`Program`].
pub trait LuaSource {
    fn compile(&self) -> Result<Program, CompileError>;
}

/// The Lua of a script sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScriptSource(pub String);

impl<S: LuaSource> LazyProgram<S> {
    /// Checks that the source compiles. The program is not kept before it is needed.
    ///
    /// # Errors
    ///
    /// A syntax error, with its line.
    pub fn new(source: S) -> Result<Self, CompileError> {
        source.compile()?;
        Ok(Self { source, program: OnceLock::new() })
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns the program.
    ///
    /// # Errors
    ///
    /// A source that was saved by an older version may no longer compile.
    pub fn program(&self) -> Result<&Program, &CompileError> {
        self.program.get_or_init(|| self.source.compile()).as_ref()
    }
}

impl LuaSource for BodyTemplate {
    fn compile(&self) -> Result<Program, CompileError> {
        Program::template(self)
    }
}

impl LuaSource for ScriptSource {
    fn compile(&self) -> Result<Program, CompileError> {
        Program::script("script", &self.0)
    }
}

impl<S: fmt::Debug> fmt::Debug for LazyProgram<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
