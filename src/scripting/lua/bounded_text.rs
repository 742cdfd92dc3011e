//! Texts that leave a script: the messages of its errors and the reasons it gives.
//!
//! They go into history, dead letters, the audit log and the server's own log, none of which is for a script to fill.

/// The most that is kept of one, in bytes.
const MAX_MESSAGE: usize = 4 << 10;

/// As much of a text as is kept.
pub(super) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_MESSAGE)]
}
