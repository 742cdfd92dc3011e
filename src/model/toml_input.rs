//! Reads TOML that users write, with errors in one line that name the line and the key.
//!
//! The values are read as those of JSON, so that each type has code for one format instead of two.

use super::{
    json_input::{describe, locate},
    located_json::{JsonFault, PathStep},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use std::{borrow::Cow, fmt};
use toml::{
    Spanned,
    de::{DeArray, DeString, DeTable, DeValue},
};

/// The error for a TOML text: its line, the key and the fault; or the position at which the text is not TOML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}{message}")]
pub struct InvalidToml {
    position: TomlPosition,
    /// The key and its fault.
    message: String,
}

impl InvalidToml {
    /// The error for a value that does not fit, without its line.
    fn of(fault: &JsonFault) -> Self {
        let message = describe(&fault.path(), &in_terms_of_toml(&fault.message));
        Self { position: TomlPosition::Unknown, message }
    }
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
    locate(&Value::Object(table(text)?)).map_err(|fault| {
        let line = line_at(text, fault.path.iter().map(step));
        InvalidToml { position: line.map_or(TomlPosition::Unknown, TomlPosition::Line), ..InvalidToml::of(&fault) }
    })
}

/// Reads the values of a part of a document.
///
/// # Errors
///
/// Fails if they do not fit `T`. The error has no line.
pub fn read<T: DeserializeOwned>(values: Map<String, Value>) -> Result<T, InvalidToml> {
    locate(&Value::Object(values)).map_err(|fault| InvalidToml::of(&fault))
}

/// Reads the values of a TOML document as those of JSON, a date or a time as a string.
///
/// # Errors
///
/// Fails if the text is not TOML, or has a number that JSON cannot express.
pub fn table(text: &str) -> Result<Map<String, Value>, InvalidToml> {
    let document = DeTable::parse(text).map_err(|fault| {
        let position = fault.span().map_or(TomlPosition::Unknown, |span| {
            let (line, column) = line_and_column(text, span.start);
            TomlPosition::LineAndColumn(line, column)
        });
        InvalidToml { position, message: fault.message().to_owned() }
    })?;
    entries(document.get_ref()).map_err(|NumberFault { start, path, message }| InvalidToml {
        position: TomlPosition::Line(line_and_column(text, start).0),
        message: describe(&path, message),
    })
}

/// The line of a field such as `methods[2].events[0]`, or of the innermost existing table around it.
pub fn line_of(text: &str, field: &str) -> Option<usize> {
    line_at(text, field.split(['.', '[']).map(|step| step.trim_end_matches(']').into()))
}

/// A number that JSON cannot express.
struct NumberFault {
    start: usize,
    /// Its keys and indexes below the table that is read.
    path: String,
    message: &'static str,
}

impl NumberFault {
    fn below(self, step: String) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: step + separator + &self.path, ..self }
    }
}

fn entries(table: &DeTable<'_>) -> Result<Map<String, Value>, NumberFault> {
    let entry = |(key, entry): (&Spanned<DeString<'_>>, _)| {
        let key = key.get_ref().to_string();
        let value = value(entry).map_err(|fault| fault.below(key.clone()))?;
        Ok((key, value))
    };
    table.iter().map(entry).collect()
}

fn items(array: &DeArray<'_>) -> Result<Vec<Value>, NumberFault> {
    let item = |(index, item)| value(item).map_err(|fault| fault.below(format!("[{index}]")));
    array.iter().enumerate().map(item).collect()
}

fn value(spanned: &Spanned<DeValue<'_>>) -> Result<Value, NumberFault> {
    let fault = |message| NumberFault { start: spanned.span().start, path: String::new(), message };
    Ok(match spanned.get_ref() {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(boolean) => (*boolean).into(),
        DeValue::Integer(digits) => {
            let (digits, radix) = (digits.as_str(), digits.radix());
            let signed = i64::from_str_radix(digits, radix).map(Number::from);
            let number = signed.or_else(|_| u64::from_str_radix(digits, radix).map(Number::from));
            Value::Number(number.map_err(|_| fault("an integer must fit into 64 bits"))?)
        }
        DeValue::Float(digits) => {
            let number = digits.as_str().parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or_else(|| fault("a number must be finite"))?)
        }
        DeValue::Datetime(moment) => moment.to_string().into(),
        DeValue::Array(array) => Value::Array(items(array)?),
        DeValue::Table(table) => Value::Object(entries(table)?),
    })
}

fn step(step: &PathStep) -> Cow<'_, str> {
    match step {
        PathStep::Key(key) => key.into(),
        PathStep::Index(index) => index.to_string().into(),
    }
}

/// The line of the last key or item on the path that the document has.
fn line_at<'a>(text: &str, steps: impl Iterator<Item = Cow<'a, str>>) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let (mut found, mut inside): (_, Option<&DeValue<'_>>) = (None, None);
    for step in steps {
        let next = match inside {
            None => entry_at(document.get_ref(), &step),
            Some(DeValue::Table(table)) => entry_at(table, &step),
            Some(DeValue::Array(array)) => {
                step.parse::<usize>().ok().and_then(|index| array.get(index)).map(|item| (item.span().start, item))
            }
            Some(_) => None,
        };
        let Some((start, value)) = next else { break };
        (found, inside) = (Some(start), Some(value.get_ref()));
    }
    found.map(|start| line_and_column(text, start).0)
}

fn entry_at<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<(usize, &'t Spanned<DeValue<'i>>)> {
    table.get_key_value(key).map(|(key, value)| (key.span().start, value))
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// Serde's message about a value of the wrong type, with the types of TOML in place of those of Rust. Every other
/// message stays as it is.
fn in_terms_of_toml(message: &str) -> String {
    if message == "invalid value: map, expected map with a single key" {
        // Of a name, which serde also reads from a map with its content.
        return "expected a string, found a table".to_owned();
    }
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
        "string or map" => "a string",
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
    fn a_number_that_json_cannot_express_is_refused_with_its_line_and_key() {
        for (text, error) in [
            ("name = ''\nsection.share = inf", "line 2: `section.share`: a number must be finite"),
            ("name = ''\n[section]\nshare = 1e400", "line 3: `section.share`: a number must be finite"),
            ("name = ''\nmany = [[1], [{ b = nan }]]", "line 2: `many[1][0].b`: a number must be finite"),
            (
                "name = ''\n[section]\ncount = 99999999999999999999",
                "line 3: `section.count`: an integer must fit into 64 bits",
            ),
        ] {
            assert_eq!(parse::<TestDocument>(text).unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn a_quoted_key_has_its_own_line() {
        type Headers = std::collections::BTreeMap<String, std::collections::BTreeMap<String, String>>;
        let text = "[headers]\nX = '1'\n'X.A' = '2'\n\"X[0]\" = 5";
        let error = parse::<Headers>(text).unwrap_err().to_string();
        assert!(error.starts_with("line 4: ") && error.ends_with("expected a string, found the integer 5"), "{error}");
        let error = parse::<Headers>("'a.b' = 1").unwrap_err().to_string();
        assert_eq!(error, "line 1: `a.b`: expected a table, found the integer 1");
    }

    #[test]
    fn a_field_has_the_line_of_the_innermost_table_that_exists() {
        let text = "[[methods]]\nname = 'a'\n\n[[methods]]\nname = 'b'\n";
        assert_eq!(line_of(text, "methods[1].name"), Some(5));
        assert_eq!(line_of(text, "methods[1].groups[0]"), Some(4));
        assert_eq!(line_of(text, "methods"), Some(1));
        assert_eq!(line_of(text, "nothing"), None);
    }

    #[test]
    fn a_value_in_the_place_of_a_name_is_told_with_both_types() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum TestLevel {
            Info,
        }
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "only its errors are looked at")]
        struct TestLog {
            level: TestLevel,
        }
        for (value, found) in [("3", "the integer 3"), ("{}", "a table"), ("['info']", "an array")] {
            let error = parse::<TestLog>(&format!("level = {value}")).unwrap_err().to_string();
            assert_eq!(error, format!("line 1: `level`: expected a string, found {found}"));
        }
        assert!(matches!(parse::<TestLog>("level = 'info'").unwrap().level, TestLevel::Info));
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
