//! Integers in a source that equal no field of an event.
//!
//! A number in a source is rounded past 2^53, whereas an integer of JSON from there to 2^63 keeps all its digits and is
//! of another type in Lua. A filter that compares the two for equality never matches, and one that asks for their order
//! fails.

use super::{
    compile::CompileError,
    strings::{long_bracket_length, string_length},
};

/// Refuses a filter with an integer between 2^53 and 2^63.
pub fn refuse_large_integers(filter: &str) -> Result<(), CompileError> {
    let source = filter.as_bytes();
    let mut at = 0;
    while at < source.len() {
        at += match &source[at..] {
            [quote @ (b'"' | b'\'' | b'`'), ..] => string_length(&source[at..], *quote),
            [b'[', b'[' | b'=', ..] => long_bracket_length(&source[at..]),
            [b'-', b'-', b'[', ..] if long_bracket_length(&source[at + 2..]) > 1 => {
                2 + long_bracket_length(&source[at + 2..])
            }
            [b'-', b'-', ..] => source[at..].iter().position(|byte| *byte == b'\n').unwrap_or(source.len() - at),
            [byte, ..] if is_part(*byte) => {
                let word = source[at..].iter().take_while(|byte| is_part(**byte)).count();
                if let Some(number) = large_integer(&filter[at..at + word]) {
                    let message = format!(
                        "{number} is past 2^53, where a field is an `integer` and equals no number: write \
                         tostring(FIELD) == \"{number}\", or integer.lt and others for an order"
                    );
                    let line = 1 + source[..at].iter().filter(|byte| **byte == b'\n').count();
                    return Err(CompileError { line: u32::try_from(line).unwrap_or(u32::MAX), message });
                }
                word
            }
            _ => 1,
        };
    }
    Ok(())
}

/// A name or a number consists of these.
const fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')
}

/// The digits of a decimal integer between 2^53 and 2^63.
fn large_integer(word: &str) -> Option<String> {
    if !word.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let digits: String = word.chars().filter(|digit| *digit != '_').collect();
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_integer && digits.parse::<u64>().is_ok_and(|value| value > 1 << 53 && value <= 1 << 63)).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_past_2_to_the_53_is_refused_with_its_line_and_a_way_out() {
        for (filter, line) in [
            ("event.data.id == 9007199254740993", 1),
            ("event.data.a == 1 and\nevent.data.id ~= -9223372036854775808", 2),
            ("event.data.id==9_007_199_254_740_993", 1),
            ("event.data.a == \"x\" -- [[ 1\nand 9007199254740993 == event.data.id", 2),
        ] {
            let error = refuse_large_integers(filter).unwrap_err();
            assert_eq!(error.line, line, "{filter}");
            assert!(error.message.contains("write tostring(FIELD) == \"9"), "{error:?}");
        }
        for filter in [
            "event.data.id == 9007199254740992",
            "event.data.id == 18446744073709551615",
            "event.data.a == 1 --[see 9007199254740993]",
            "tostring(event.data.id) == '9007199254740993'",
            "event.data.x > 1e300 and event.data.y < 9007199254740993.5",
            "event.data.id9007199254740993",
            "event.data.a == [==[9007199254740993]==] -- 9007199254740993",
            "--[[ 9007199254740993 ]] true",
            "event.data.mask == 0xffffffffffffffff",
            "`{event.data.id}` == \"9007199254740993\"",
            "event.data.é == \"9007199254740993",
        ] {
            assert_eq!(refuse_large_integers(filter).map_err(|error| error.message), Ok(()), "{filter}");
        }
    }
}
