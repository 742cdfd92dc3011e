//! JSON laid out anew without being parsed: names keep their order, numbers their digits.

use super::table::is_unsafe;

/// Indented, one value a line.
pub fn indented(json: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    let mut tokens = Tokens(json).peekable();
    while let Some(token) = tokens.next() {
        match token {
            "{" | "[" if matches!(tokens.peek(), Some(&("}" | "]"))) => {
                out.push_str(token);
                out.extend(tokens.next());
            }
            "{" | "[" => {
                depth += 1;
                out.push_str(token);
                new_line(&mut out, depth);
            }
            "}" | "]" => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push_str(token);
            }
            "," => {
                out.push(',');
                new_line(&mut out, depth);
            }
            ":" => out.push_str(": "),
            value => push_escaped(&mut out, value),
        }
    }
    out
}

/// Adds a value. Characters that a terminal would act on occur only in strings, and become JSON escapes.
fn push_escaped(out: &mut String, value: &str) {
    for c in value.chars() {
        match is_unsafe(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
            false => out.push(c),
        }
    }
}

/// Without white space between the tokens, and so on one line: strings of JSON hold no line breaks.
pub fn on_one_line(json: &str) -> String {
    Tokens(json).collect()
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

/// The tokens of a JSON text, white space left out.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let length = match rest.as_bytes().first()? {
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            b'"' => string_length(rest),
            _ => rest.find(['{', '}', '[', ']', ',', ':', ' ', '\n', '\r', '\t']).unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(length);
        self.0 = rest;
        Some(token)
    }
}

/// The length of the string that `text` starts with, quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_for_the_terminal() {
        let json = "{\"title\":\"\u{9b}31m \u{202e} ä\"}";
        let told = indented(json);
        assert_eq!(told, "{\n  \"title\": \"\\u009b31m \\u202e ä\"\n}");
        let same = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(same(&told), same(json));
    }

    #[test]
    fn order_and_digits_stay_as_they_came() {
        let json = r#"{"z":1.50,"a":[18446744073709551616,{},[]],"t":"a \"b\": {c}, \\"}"#;
        let expected = r#"{
  "z": 1.50,
  "a": [
    18446744073709551616,
    {},
    []
  ],
  "t": "a \"b\": {c}, \\"
}"#;
        assert_eq!(indented(json), expected);
        assert_eq!(on_one_line(expected), json);
    }
}
