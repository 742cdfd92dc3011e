//! The key space: the first byte is the kind, fixed-length ids follow, big-endian numbers sort as numbers.
//!
//! | prefix | then | value |
//! |---|---|---|
//! | `E` | accepted time, event id | the event's record: envelope and the sinks it was routed to |
//! | `Q` | sink id, sequence | accepted time, event id; an undelivered event |
//! | `S` | sink id | the sink's last sequence number |
//! | `D` | accepted time, event id, sink id | the delivery: state and attempts |
//! | `X` | sink id, sequence | a dead letter |
//! | `G` | sink id, sequence | numbers from this one on that the sink misses and was not told of: the last one, and the reason |
//! | `N` | sink id, sequence | accepted time, event id; the event that was queued again under this number |
//! | `R` | sink id, job id | a job that queues events again |
//! | `H` | | bytes of history |
//! | `A` | audit id | an audit entry |
//! | `B` | | bytes of audit log |
//! | `K` | owner, key | a script's stored value |
//! | `u` `r` `g` `t` `c` `s` | id | users, roles, groups, tokens, console sessions, sinks |
//! | `p` `q` `l` | id | spaces, templates, scripts |
//! | `i` | id | sources |
//! | `I` | source id, letter id | a request that a source could not turn into events |
//! | `f` | sink id | the failure of a sink, while it lasts |
//! | `m` | space id, method | the method's subscription to events |
//! | `o` | number | an event that an agent keeps until a server has stored it |
//! | `O` | name | another record of an agent: its space, its registration |
//! | `C` | | the number of the last group |
//! | `~` | key, generation, number | a piece of the large value under that key |

use crate::model::timestamp::Timestamp;

pub const EVENT: u8 = b'E';
pub const QUEUE: u8 = b'Q';
pub const SEQUENCE: u8 = b'S';
pub const DELIVERY: u8 = b'D';
pub const DEAD: u8 = b'X';
pub const GAP: u8 = b'G';
pub const NUMBER: u8 = b'N';
pub const REPLAY: u8 = b'R';
pub const HISTORY: u8 = b'H';
pub const AUDIT: u8 = b'A';
pub const AUDIT_BYTES: u8 = b'B';
pub const KV: u8 = b'K';
pub const USERS: u8 = b'u';
pub const ROLES: u8 = b'r';
pub const GROUPS: u8 = b'g';
pub const TOKENS: u8 = b't';
pub const SESSIONS: u8 = b'c';
pub const SINKS: u8 = b's';
pub const SPACES: u8 = b'p';
pub const TEMPLATES: u8 = b'q';
pub const SCRIPTS: u8 = b'l';
pub const SOURCES: u8 = b'i';
pub const SOURCE_LETTERS: u8 = b'I';
pub const SINK_FAILURES: u8 = b'f';
pub const SUBSCRIPTIONS: u8 = b'm';
pub const SPOOL: u8 = b'o';
pub const AGENT: u8 = b'O';
pub(in crate::platform) const COMMIT: u8 = b'C';
pub(in crate::platform) const PIECE: u8 = b'~';

/// The noun for records under keys of this kind, for error messages.
pub(in crate::platform) fn kind_name(key: &[u8]) -> &'static str {
    match key.first().copied().unwrap_or_default() {
        EVENT => "event",
        QUEUE => "queue entry",
        SEQUENCE => "sequence number",
        DELIVERY => "delivery",
        DEAD => "dead letter",
        GAP => "gap in the numbers of a sink",
        NUMBER => "number of an event that was queued again",
        REPLAY => "replay",
        HISTORY => "size of the history",
        AUDIT => "audit entry",
        AUDIT_BYTES => "size of the audit log",
        KV => "value of a script",
        USERS => "user",
        ROLES => "role",
        GROUPS => "group",
        TOKENS => "token",
        SESSIONS => "session",
        SINKS => "sink",
        SPACES => "space",
        TEMPLATES => "template",
        SCRIPTS => "script",
        SOURCES => "source",
        SOURCE_LETTERS => "dead letter of a source",
        SINK_FAILURES => "failure of a sink",
        SUBSCRIPTIONS => "subscription",
        SPOOL => "spooled event",
        AGENT => "record of the agent",
        COMMIT => "commit number",
        PIECE => "piece of a value",
        _ => "record",
    }
}

/// The parts of a key after its kind, for error messages: ids as UUIDs where the length says that it is made of them.
pub(super) fn display(key: &[u8]) -> String {
    let parts = match (key.first(), key.len()) {
        // The accepted time comes before the ids and says nothing that they do not.
        (Some(&EVENT), 25) | (Some(&DELIVERY), 41) => &key[9..],
        _ => key.get(1..).unwrap_or_default(),
    };
    let uuid = |at: usize| uuid::Uuid::from_slice(parts.get(at..at + 16)?).ok();
    match (parts.len(), uuid(0)) {
        (16, Some(id)) => id.to_string(),
        (24, Some(id)) => format!("{id}/{}", number(parts, 16).unwrap_or_default()),
        (32, Some(id)) => format!("{id}/{}", uuid(16).unwrap_or_default()),
        _ => format!("`{}`", parts.escape_ascii()),
    }
}

/// Returns a sequence number that no sink has reached: it would have needed an event in each millisecond since 1970.
pub fn beyond_every_sequence() -> u64 {
    u64::try_from(Timestamp::now().micros() / 1000).unwrap_or(0)
}

/// A key of this kind made of these parts.
pub fn key(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.push(kind);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// The number in the eight bytes at `at`, as [`u64::to_be_bytes`] wrote it.
pub fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
