//! Reads TOML that users write, with errors in one line that name the line and the key.
//!
//! The values are read as those of JSON, so that each type has code for one format instead of two.

use super::json_input::{describe, locate};
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use std::{fmt, ops::Range};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The error for a TOML text: its line, the key and the fault; or the position at which the text is not TOML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}{message}")]
pub struct InvalidToml {
    position: TomlPosition,
    /// The key and its fault.
    message: String,
}

/// The position of an error, as the prefix of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TomlPosition {
    Unknown,
    Line(usize),
    LineAndColumn(usize, usize),
}

/// Reads a TOML document.
///
/// # Errors
///
/// Fails if the text is not TOML, or its values do not fit `T`.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, InvalidToml> {
    let value = Value::Object(table(text)?);
    locate(value).map_err(|error| misfit(text, &error.path().to_string(), &error.into_inner().to_string()))
}

/// Reads the values of a TOML document as those of JSON, a date or a time as a string.
///
/// # Errors
///
/// Fails if the text is not TOML, or has a number that JSON has not.
pub fn table(text: &str) -> Result<Map<String, Value>, InvalidToml> {
    let document = DeTable::parse(text).map_err(|fault| {
        let position = fault.span().map_or(TomlPosition::Unknown, |span| {
            let (line, column) = line_and_column(text, span.start);
            TomlPosition::LineAndColumn(line, column)
        });
        InvalidToml { position, message: fault.message().to_owned() }
    })?;
    entries(document.get_ref()).map_err(|Unfit { span, message }| {
        let (line, _) = line_and_column(text, span.start);
        InvalidToml { position: TomlPosition::Line(line), message: message.to_owned() }
    })
}

/// A number that JSON has not.
struct Unfit {
    span: Range<usize>,
    message: &'static str,
}

fn entries(table: &DeTable<'_>) -> Result<Map<String, Value>, Unfit> {
    table.iter().map(|(key, entry)| Ok((key.get_ref().to_string(), value(entry)?))).collect()
}

fn value(spanned: &Spanned<DeValue<'_>>) -> Result<Value, Unfit> {
    let unfit = |message| Unfit { span: spanned.span(), message };
    Ok(match spanned.get_ref() {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(boolean) => (*boolean).into(),
        DeValue::Integer(digits) => {
            let (digits, radix) = (digits.as_str(), digits.radix());
            let signed = i64::from_str_radix(digits, radix).map(Number::from);
            let number = signed.or_else(|_| u64::from_str_radix(digits, radix).map(Number::from));
            Value::Number(number.map_err(|_| unfit("an integer has at most 64 bits"))?)
        }
        DeValue::Float(digits) => {
            let number = digits.as_str().parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or_else(|| unfit("a number has bounds"))?)
        }
        DeValue::Datetime(moment) => moment.to_string().into(),
        DeValue::Array(items) => Value::Array(items.iter().map(value).collect::<Result<_, _>>()?),
        DeValue::Table(table) => Value::Object(entries(table)?),
    })
}

/// The error for the value at `path`, with its line.
fn misfit(text: &str, path: &str, fault: &str) -> InvalidToml {
    InvalidToml {
        position: line_of(text, path).map_or(TomlPosition::Unknown, TomlPosition::Line),
        message: describe(path, &in_terms_of_toml(fault)),
    }
}

/// The line of a field such as `methods[2].events[0]`, or of the innermost existing table around it.
pub fn line_of(text: &str, field: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut steps = field.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let (key, mut value) = table.get_ref().get_key_value(steps.next()?)?;
    let mut found = key.span().start;
    for step in steps {
        let inner = match value.get_ref() {
            DeValue::Table(table) => table.get_key_value(step).map(|(key, value)| (key.span().start, value)),
            DeValue::Array(items) => {
                step.parse::<usize>().ok().and_then(|index| items.get(index)).map(|item| (item.span().start, item))
            }
            _ => None,
        };
        let Some((at, next)) = inner else { break };
        (found, value) = (at, next);
    }
    Some(line_and_column(text, found).0)
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// Serde's message about a value of the wrong type, with the types of TOML in place of those of Rust. Every other message
/// stays as it is.
fn in_terms_of_toml(message: &str) -> String {
    let types = message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "));
    let Some((found, expected)) = types else { return message.to_owned() };
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    let found = match (kind, value.strip_prefix("point ").unwrap_or(value)) {
        ("string", text) => format!("the string {text}"),
        ("integer", number) => format!("the integer {}", number.trim_matches('`')),
        ("floating", number) => format!("the number {}", number.trim_matches('`')),
        ("boolean", word) => word.trim_matches('`').to_owned(),
        ("sequence", _) => "an array".to_owned(),
        ("map", _) => "a table".to_owned(),
        _ => found.to_owned(),
    };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" | "an object" => "a table",
        other => other,
    };
    format!("expected {expected}, found {found}")
}

impl fmt::Display for TomlPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Line(line) => write!(f, "line {line}: "),
            Self::LineAndColumn(line, column) => write!(f, "line {line}, column {column}: "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are looked at")]
    struct TestDocument {
        name: String,
        #[serde(default)]
        section: TestSection,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are looked at")]
    struct TestSection {
        count: u32,
        flag: bool,
        share: f64,
        words: Vec<String>,
    }

    #[test]
    fn an_error_names_the_line_the_key_and_both_types() {
        for (text, error) in [
            ("name = 5", "line 1: `name`: expected a string, found the integer 5"),
            (
                "name = 'é'\n\n[section]\ncount = 'many'",
                "line 4: `section.count`: expected an integer, found the string \"many\"",
            ),
            ("name = ''\nsection.flag = 1", "line 2: `section.flag`: expected true or false, found the integer 1"),
            (
                "name = ''\nsection.flag = 'yes'",
                "line 2: `section.flag`: expected true or false, found the string \"yes\"",
            ),
            ("name = ''\nsection.share = true", "line 2: `section.share`: expected a number, found true"),
            ("name = ''\nsection.words = 'a'", "line 2: `section.words`: expected an array, found the string \"a\""),
            (
                "name = ''\nsection.words = ['a', 1.5]",
                "line 2: `section.words[1]`: expected a string, found the number 1.5",
            ),
            ("name = ''\nsection = 3", "line 2: `section`: expected a table, found the integer 3"),
            ("name = []", "line 1: `name`: expected a string, found an array"),
            ("name = {}", "line 1: `name`: expected a string, found a table"),
        ] {
            assert_eq!(parse::<TestDocument>(text).unwrap_err().to_string(), error, "{text}");
        }
        let unknown = parse::<TestDocument>("name = ''\n[section]\ncont = 1").unwrap_err().to_string();
        assert!(unknown.starts_with("line 3: ") && unknown.contains("unknown field `cont`"), "{unknown}");
        let missing = parse::<TestDocument>("section = {}").unwrap_err().to_string();
        assert!(missing.contains("missing field `name`"), "{missing}");
        let negative = parse::<TestDocument>("name = ''\nsection.count = -1").unwrap_err().to_string();
        assert!(negative.starts_with("line 2: `section.count`: "), "{negative}");
    }

    #[test]
    fn a_number_that_json_has_not_is_refused_with_its_line() {
        for (text, error) in [
            ("name = ''\nsection.share = inf", "line 2: a number has bounds"),
            ("name = ''\n[section]\ncount = 99999999999999999999", "line 3: an integer has at most 64 bits"),
        ] {
            assert_eq!(parse::<TestDocument>(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn the_values_are_those_of_json() {
        let text = "a = 0xff\nb = -1_000\nc = 18446744073709551615\nd = 1_0.5e3\ne = 2026-11-17\nf = [{g = true}, {}]";
        assert_eq!(
            Value::Object(table(text).unwrap()),
            serde_json::json!({
                "a": 255, "b": -1000, "c": u64::MAX, "d": 10500.0, "e": "2026-11-17", "f": [{"g": true}, {}]
            })
        );
    }

    #[test]
    fn a_text_that_is_not_toml_is_refused_with_its_position() {
        let error = parse::<TestDocument>("name = 'a'\nsection =\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2, column "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
