//! Lua that comes with a sink: the source is stored, the program is made at first use and then kept.
//!
//! Saving a sink compiles the source once to check it, so that a syntax error is reported to the user who saves it.
//! Thousands of sinks that never run cost their source and nothing more.

use crate::{model::body_template::BodyTemplate, scripting::workers::ProgramText};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::OnceLock};

/// A source and, after its first use, its program. It is stored as its source.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct LazyProgram<S> {
    source: S,
    #[serde(skip)]
    program: OnceLock<ProgramText>,
}

/// A text that is a program.
pub trait LuaSource {
    fn program(&self) -> ProgramText;
}

/// The Lua of a script sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScriptSource(pub String);

impl<S: LuaSource> LazyProgram<S> {
    pub fn new(source: S) -> Self {
        Self { source, program: OnceLock::new() }
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    pub fn program(&self) -> &ProgramText {
        self.program.get_or_init(|| self.source.program())
    }
}

impl LuaSource for BodyTemplate {
    fn program(&self) -> ProgramText {
        ProgramText::template(self)
    }
}

impl LuaSource for ScriptSource {
    fn program(&self) -> ProgramText {
        ProgramText::script("script", &self.0)
    }
}

impl<S: fmt::Debug> fmt::Debug for LazyProgram<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
