//! Percent-encoding of one path segment or one query value (RFC 3986).
//!
//! Encoding escapes every byte that is not unreserved, so its output is right in a path and in a query. Two texts
//! cannot be path segments in any encoding: clients resolve `.` and `..`, also escaped ones, before they send a path.
//! Decoding has two forms because `+` stands for a space in a query and for itself in a path.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Every byte that RFC 3986 does not call unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text that is not valid percent-encoded UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not percent-encoded UTF-8")]
pub struct PercentError(String);

/// Encodes a text as one path segment or one query value.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Decodes one path segment, in which `+` stands for itself.
pub fn decode_segment(segment: &str) -> Result<String, PercentError> {
    let invalid = || PercentError(segment.to_owned());
    // The decoder passes a broken escape through; here it is an error, so that no two segments mean the same name.
    let escapes = segment.split('%').skip(1);
    if !escapes.map(str::as_bytes).all(|rest| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit)) {
        return Err(invalid());
    }
    let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| invalid())?;
    Ok(decoded.into_owned())
}

/// Decodes one value of a query, in which `+` stands for a space.
pub fn decode_query_value(value: &str) -> Result<String, PercentError> {
    // The error names the value as it was sent.
    decode_segment(&value.replace('+', " ")).map_err(|PercentError(_)| PercentError(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_survives_a_path_and_a_query() {
        for text in ["", "a", "my method", "a+b", "100%", "a/b?c#d&e=f", "%2e", "\0\n", "ä"] {
            let encoded = encode(text);
            assert_eq!(decode_segment(&encoded).as_deref(), Ok(text), "{encoded}");
            assert_eq!(decode_query_value(&encoded).as_deref(), Ok(text), "{encoded}");
        }
        assert_eq!(encode("a-b.c_d~e f*ü"), "a-b.c_d~e%20f%2A%C3%BC");
    }

    #[test]
    fn a_plus_is_a_space_only_in_a_query() {
        assert_eq!(decode_segment("a+b").as_deref(), Ok("a+b"));
        assert_eq!(decode_query_value("a+b").as_deref(), Ok("a b"));
    }

    #[test]
    fn broken_escapes_and_bytes_that_are_not_utf8_are_refused() {
        for text in ["%", "a%2", "%zz", "%2%20", "%ff", "%+1"] {
            assert_eq!(decode_segment(text), Err(PercentError(text.to_owned())));
            assert_eq!(decode_query_value(text), Err(PercentError(text.to_owned())));
        }
    }
}
