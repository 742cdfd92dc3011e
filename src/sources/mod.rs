//! Sources: addresses at which other services raise events, `POST /in/{slug}`.
//!
//! [`definition`] makes a [`Source`] of the spec that its user writes, [`records`] is the collection of all sources. A
//! request goes top to bottom through [`intake`]: [`verify`] checks the raw bytes, [`rate`] limits what was verified,
//! [`transform`] turns it into events, which [`crate::routing::emit`] stores; what cannot be turned into events is kept
//! in [`dead_letters`].

mod activity;
mod dead_letters;
mod definition;
mod inbound_request;
mod intake;
mod rate;
mod records;
mod secrets;
mod source;
mod transform;
mod verify;

pub use activity::SourceActivity;
pub use dead_letters::{DeadLetters, SourceLetter};
pub use definition::SourceDefinitionError;
pub use inbound_request::InboundRequest;
pub use intake::{IntakeAnswer, IntakeError, RedeliveredLetters, SourceIntake, TrialRun};
pub use records::{Sources, SourcesError};
pub use source::Source;
pub use transform::{SourceResponse, TransformError};
pub use verify::Unverified;
