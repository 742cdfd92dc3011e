//! Checks of the arguments of library functions.

use super::library_error::LibraryError;
use std::time::Duration;

/// The longest text a library function takes, unless the function has a limit of its own.
pub(super) const MAX_TEXT: usize = 4 << 20;

/// The longest time span, about a century: it can be added to any timestamp without an overflow.
const MAX_SPAN: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Checks that an argument is UTF-8 and short enough for work that no interrupt ends.
pub(super) fn text<'a>(bytes: &'a [u8], what: &str, limit: usize) -> Result<&'a str, LibraryError> {
    bounded_bytes(bytes, what, limit)?;
    std::str::from_utf8(bytes).map_err(|_| LibraryError::Message(format!("the {what} is not valid UTF-8")))
}

/// Checks the length of an argument.
pub(super) fn bounded_bytes<'a>(bytes: &'a [u8], what: &str, limit: usize) -> Result<&'a [u8], LibraryError> {
    if bytes.len() > limit {
        let message = format!("the {what} has {} bytes; at most {limit} are taken", bytes.len());
        return Err(LibraryError::Message(message));
    }
    Ok(bytes)
}

/// Reads a time span in seconds, fractions allowed. A longer one than a century is taken as a century.
pub(super) fn seconds(value: f64, what: &str) -> Result<Duration, LibraryError> {
    if value.is_finite() && value > MAX_SPAN.as_secs_f64() {
        return Ok(MAX_SPAN);
    }
    Duration::try_from_secs_f64(value)
        .map_err(|_| LibraryError::Message(format!("{what} must be a number of seconds from 0 up")))
}
