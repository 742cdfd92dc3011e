//! Reads TOML that users write, with errors in one line that name the line and the key.

use super::json_input::describe;
use serde::de::DeserializeOwned;
use std::fmt;

/// The error for a TOML text: its line, the key and the fault; or the position at which the text is not TOML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}{message}")]
pub struct InvalidToml {
    position: TomlPosition,
    /// The key and its fault.
    pub message: String,
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
    let not_toml = |fault: toml::de::Error| {
        let position = fault.span().map_or(TomlPosition::Unknown, |span| {
            let (line, column) = line_and_column(text, span.start);
            TomlPosition::LineAndColumn(line, column)
        });
        InvalidToml { position, message: fault.message().to_owned() }
    };
    let document = toml::Deserializer::parse(text).map_err(not_toml)?;
    serde_path_to_error::deserialize(document).map_err(|fault| {
        let path = fault.path().to_string();
        let fault = fault.into_inner();
        let line = fault.span().map(|span| line_and_column(text, span.start).0);
        let message = describe(&path, &in_terms_of_toml(fault.message()));
        InvalidToml { position: line.map_or(TomlPosition::Unknown, TomlPosition::Line), message }
    })
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
        "a map" => "a table",
        rust if rust.starts_with("struct ") => "a table",
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
    fn a_text_that_is_not_toml_is_refused_with_its_position() {
        let error = parse::<TestDocument>("name = 'a'\nsection =\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2, column "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
