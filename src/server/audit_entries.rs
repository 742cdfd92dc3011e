//! Audit entries of changes to sinks, sources and stored scripts, written in the same batch as the change.

use crate::{
    delivery::sinks::Sink,
    model::{event::Actor, id::SinkId, owner::OwnerSpec},
    platform::audit::AuditEntry,
    scripting::scripts::Script,
    sources::Source,
};
use serde_json::json;

pub fn sink_entry(actor: Actor, action: &str, sink: &Sink) -> AuditEntry {
    AuditEntry::new(Some(actor), action, sink_object(sink.id))
        .with(json!({"name": sink.name, "type": sink.kind(), "owner": OwnerSpec::from(sink.owner)}))
}

pub fn source_entry(actor: Actor, action: &str, source: &Source) -> AuditEntry {
    AuditEntry::new(Some(actor), action, format!("source:{}", source.id))
        .with(json!({"slug": source.slug, "verify": source.verifier.kind(), "owner": OwnerSpec::from(source.owner)}))
}

pub fn script_entry(actor: Actor, action: &str, script: &Script) -> AuditEntry {
    AuditEntry::new(Some(actor), action, format!("script:{}", script.id))
        .with(json!({"name": script.name, "kind": script.kind, "owner": OwnerSpec::from(script.owner)}))
}

/// The object of an entry about a sink or its queue.
pub fn sink_object(sink: SinkId) -> String {
    format!("sink:{sink}")
}
