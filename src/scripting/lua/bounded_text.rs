//! The bound on texts that leave a script: the messages of its errors and the reasons it gives.
//!
//! They go into history, dead letters, the audit log and the server's log, none of which a script may fill.

/// The most bytes kept of a text.
const MAX_MESSAGE: usize = 4 << 10;

/// The beginning of `text` that is kept.
pub(in crate::scripting) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_MESSAGE)]
}
