//! Lua that came with a sink: its source is stored, its program is made when first needed and then kept.
//!
//! Saving a sink compiles once to check it, so that a syntax error is the saver's to see. Thousands of sinks that
//! never fire cost their source and nothing more.

use crate::{
    model::body_template::BodyTemplate,
    scripting::lua::{CompileError, Program},
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::OnceLock};

/// A source and, once it was needed, what it compiled to.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Compiled<S> {
    source: S,
    #[serde(skip)]
    program: OnceLock<Result<Program, CompileError>>,
}

/// What compiles to a [`Program`].
pub trait Source {
    /// # Errors
    ///
    /// Fails on a syntax error, with its line.
    fn compile(&self) -> Result<Program, CompileError>;
}

/// The Lua of a script sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScriptSource(pub String);

impl<S: Source> Compiled<S> {
    /// Checks that the source compiles. What it compiles to is not kept before it is needed.
    ///
    /// # Errors
    ///
    /// Fails on a syntax error, with its line.
    pub fn new(source: S) -> Result<Self, CompileError> {
        source.compile()?;
        Ok(Self { source, program: OnceLock::new() })
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    /// The program.
    ///
    /// # Errors
    ///
    /// What was saved by an older version may no longer compile.
    pub fn program(&self) -> Result<&Program, &CompileError> {
        self.program.get_or_init(|| self.source.compile()).as_ref()
    }
}

impl Source for BodyTemplate {
    fn compile(&self) -> Result<Program, CompileError> {
        Program::template(self)
    }
}

impl Source for ScriptSource {
    fn compile(&self) -> Result<Program, CompileError> {
        Program::script("script", &self.0)
    }
}

impl<S: fmt::Debug> fmt::Debug for Compiled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
