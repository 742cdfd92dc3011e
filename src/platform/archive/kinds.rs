//! The kinds of records by the names that archives use, and the form of their keys and values.

use crate::platform::store::keys;
use std::collections::BTreeMap;

/// The name of a file of the data directory, which has no kind in the store.
pub const FILE: &str = "file";

/// One kind of record.
pub struct ArchivedKind {
    pub byte: u8,
    /// Never changes: older archives have it.
    pub name: &'static str,
    /// The parts of a key. A key of another form is written as bytes.
    pub key: &'static [KeyPart],
    pub value: ValueForm,
}

/// A part of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyPart {
    /// Sixteen bytes, as a UUID.
    Id,
    /// Eight bytes, as a number.
    Number,
    /// All bytes that are left, as text.
    Text,
}

/// The form of the values of a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    Json,
    /// JSON, or bytes that do not begin with a brace.
    JsonOrBytes,
    Bytes,
}

/// A kind whose records are JSON.
const fn json(byte: u8, name: &'static str, key: &'static [KeyPart]) -> ArchivedKind {
    ArchivedKind { byte, name, key, value: ValueForm::Json }
}

/// A kind whose records are bytes.
const fn bytes(byte: u8, name: &'static str, key: &'static [KeyPart]) -> ArchivedKind {
    ArchivedKind { byte, name, key, value: ValueForm::Bytes }
}

const ID: &[KeyPart] = &[KeyPart::Id];
const QUEUED: &[KeyPart] = &[KeyPart::Id, KeyPart::Number];

/// Every kind.
const KINDS: &[ArchivedKind] = &[
    json(keys::EVENT, "event", &[KeyPart::Number, KeyPart::Id]),
    bytes(keys::QUEUE, "queue", QUEUED),
    bytes(keys::SEQUENCE, "sequence", ID),
    ArchivedKind {
        value: ValueForm::JsonOrBytes,
        ..json(keys::DELIVERY, "delivery", &[KeyPart::Number, KeyPart::Id, KeyPart::Id])
    },
    json(keys::DEAD, "dead_letter", QUEUED),
    bytes(keys::GAP, "gap", QUEUED),
    bytes(keys::NUMBER, "number", QUEUED),
    json(keys::REPLAY, "replay", &[KeyPart::Id, KeyPart::Id]),
    bytes(keys::HISTORY, "history_bytes", &[]),
    json(keys::AUDIT, "audit", ID),
    bytes(keys::AUDIT_BYTES, "audit_bytes", &[]),
    bytes(keys::KV, "kv", &[KeyPart::Id, KeyPart::Text]),
    json(keys::USERS, "user", ID),
    json(keys::ROLES, "role", ID),
    json(keys::GROUPS, "group", ID),
    json(keys::TOKENS, "token", ID),
    json(keys::SESSIONS, "session", ID),
    json(keys::SINKS, "sink", ID),
    json(keys::SPACES, "space", ID),
    json(keys::TEMPLATES, "template", ID),
    json(keys::SCRIPTS, "script", ID),
    json(keys::SOURCES, "source", ID),
    json(keys::SOURCE_LETTERS, "source_letter", &[KeyPart::Id, KeyPart::Id]),
    json(keys::SINK_FAILURES, "sink_failure", ID),
    json(keys::SUBSCRIPTIONS, "subscription", &[KeyPart::Id, KeyPart::Text]),
    json(keys::SPOOL, "spooled_event", &[KeyPart::Number]),
    json(keys::AGENT, "agent_record", &[KeyPart::Text]),
];

/// The kind of keys that begin with this byte.
pub fn of_byte(byte: u8) -> Option<&'static ArchivedKind> {
    KINDS.iter().find(|kind| kind.byte == byte)
}

/// The kind of this name.
pub fn of_name(name: &str) -> Option<&'static ArchivedKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// Numbers of records by kind.
pub struct KindCounts {
    rows: [u64; 256],
    files: u64,
    total: u64,
}

impl KindCounts {
    /// Counts a record under a key that begins with this byte, or a file.
    pub const fn add(&mut self, byte: Option<u8>) {
        self.total += 1;
        match byte {
            Some(byte) => self.rows[byte as usize] += 1,
            None => self.files += 1,
        }
    }

    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The numbers that are not zero, by the names of the kinds.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let name = |byte: u8| of_byte(byte).map_or_else(|| format!("x{byte:02x}"), |kind| kind.name.to_owned());
        let rows = (0..=u8::MAX).map(|byte| (name(byte), self.rows[byte as usize]));
        rows.chain([(FILE.to_owned(), self.files)]).filter(|(_, count)| *count > 0).collect()
    }
}

impl Default for KindCounts {
    fn default() -> Self {
        Self { rows: [0; 256], files: 0, total: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_of_record_has_a_name_of_its_own() {
        let internal = [keys::COMMIT, keys::PIECE];
        let known = (0..=u8::MAX).filter(|byte| keys::kind_name(&[*byte]) != "record" && !internal.contains(byte));
        assert_eq!(known.collect::<BTreeSet<_>>(), KINDS.iter().map(|kind| kind.byte).collect());
        assert_eq!(KINDS.iter().map(|kind| kind.name).collect::<BTreeSet<_>>().len(), KINDS.len());
        assert!(of_name(FILE).is_none());
    }
}
