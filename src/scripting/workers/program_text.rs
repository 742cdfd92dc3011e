//! The text of a user's program, as the server keeps it. Only a worker compiles it.

use crate::model::{body_template::BodyTemplate, owner::Owner};
use sha2::{Digest as _, Sha256};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// A template, script, library or tool. Cloning it is cheap. Programs with the same text share the states that the
/// workers of one owner keep for it, so that a thousand sinks with one template cost as much as one.
#[derive(Clone)]
pub struct ProgramText(Arc<ProgramRecord>);

struct ProgramRecord {
    content: ProgramContent,
    digest: OnceLock<[u8; 32]>,
}

/// The parts of a program that a worker compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramContent {
    pub kind: TextKind,
    /// The prefix of the line number in the program's errors.
    pub name: String,
    pub source: String,
}

/// The kind of a program, which decides how it is compiled and the libraries it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    LuaTemplate,
    TextTemplate,
    Script,
    Library,
    Tool,
    Transform,
    Filter,
}

/// Finds the libraries that programs `require`.
pub trait LibraryTexts: Send + Sync {
    /// The library of this name for a program of this owner, or `None` if there is none.
    fn find(&self, owner: Owner, name: &str) -> Option<ProgramText>;
}

impl ProgramText {
    /// A body template.
    pub fn template(template: &BodyTemplate) -> Self {
        let (kind, source) = match template {
            BodyTemplate::Lua(source) => (TextKind::LuaTemplate, source),
            BodyTemplate::Text(source) => (TextKind::TextTemplate, source),
        };
        Self::new(kind, "template", source)
    }

    /// A script. `name` is the prefix of the line in its errors: the name of a stored script, else `script`.
    pub fn script(name: &str, source: &str) -> Self {
        Self::new(TextKind::Script, name, source)
    }

    /// A library that other programs `require`. Its errors begin with its name and line: `acme.text:3: …`.
    pub fn library(name: &str, source: &str) -> Self {
        Self::new(TextKind::Library, name, source)
    }

    /// A tool, which is called with arguments and returns a result. Its errors begin with its name and line.
    pub fn tool(name: &str, source: &str) -> Self {
        Self::new(TextKind::Tool, name, source)
    }

    /// A transform of a source, which turns a request into events.
    pub fn transform(source: &str) -> Self {
        Self::new(TextKind::Transform, "transform", source)
    }

    /// A filter of a sink or subscription.
    pub fn filter(source: &str) -> Self {
        Self::new(TextKind::Filter, "filter", source)
    }

    fn new(kind: TextKind, name: &str, source: &str) -> Self {
        let content = ProgramContent { kind, name: name.to_owned(), source: source.to_owned() };
        Self(Arc::new(ProgramRecord { content, digest: OnceLock::new() }))
    }

    /// Returns true if the other program has the same kind, name and source.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.content() == other.content()
    }

    /// The number that stands for the program in messages: a part of its digest. A worker has the programs of one
    /// owner, who could make two of one number only to their own harm.
    pub(super) fn id(&self) -> u64 {
        u64::from_le_bytes(*self.digest().first_chunk().expect("a digest has 32 bytes"))
    }

    pub(super) fn content(&self) -> &ProgramContent {
        &self.0.content
    }

    /// A digest of kind, name and source: the same for a program that was saved again without a change.
    pub(super) fn digest(&self) -> [u8; 32] {
        *self.0.digest.get_or_init(|| {
            let content = &self.0.content;
            let mut digest = Sha256::new();
            digest.update([content.kind.code()]);
            digest.update(content.name.len().to_le_bytes());
            digest.update(&content.name);
            digest.update(&content.source);
            digest.finalize().into()
        })
    }
}

impl TextKind {
    /// The number that stands for the kind in a frame.
    pub const fn code(self) -> u8 {
        match self {
            Self::LuaTemplate => 0,
            Self::TextTemplate => 1,
            Self::Script => 2,
            Self::Library => 3,
            Self::Tool => 4,
            Self::Transform => 5,
            Self::Filter => 6,
        }
    }

    pub const fn of_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::LuaTemplate,
            1 => Self::TextTemplate,
            2 => Self::Script,
            3 => Self::Library,
            4 => Self::Tool,
            5 => Self::Transform,
            6 => Self::Filter,
            _ => return None,
        })
    }
}

impl fmt::Debug for ProgramText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramText({:x} {:?})", self.id(), self.0.content.kind)
    }
}
