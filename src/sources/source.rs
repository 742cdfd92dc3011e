//! A source that was checked, as it is stored.

use super::secrets::SourceSecrets;
use crate::{
    model::{id::SourceId, owner::Owner, timestamp::Timestamp, units::Span, verifier::Verifier},
    scripting::workers::ProgramText,
};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// A checked source. It is stored as this JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Source {
    pub id: SourceId,
    /// Unique among all sources: it is the address.
    pub slug: String,
    #[serde(default)]
    pub description: String,
    pub owner: Owner,
    /// An inactive source looks absent to senders.
    pub active: bool,
    pub verifier: Verifier,
    pub secrets: SourceSecrets,
    /// The time for which a replaced secret stays valid.
    pub overlap: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
    /// Verified requests a second.
    pub rate: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The Lua of a source. It is stored as its text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Transform {
    source: String,
    #[serde(skip)]
    program: OnceLock<ProgramText>,
}

impl Transform {
    pub fn new(source: String) -> Self {
        Self { source, program: OnceLock::new() }
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn program(&self) -> &ProgramText {
        self.program.get_or_init(|| ProgramText::transform(&self.source))
    }
}
