//! Removes the parts of Rust source that are no code: comments, the contents of strings, and `#[cfg(test)]` items.

use regex::Regex;
use std::sync::LazyLock;

static TEST_MODULE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;").expect("a valid pattern")
});
/// The beginning of a struct's field, which ends at a comma.
static FIELD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?\w+\s*:[^:]").expect("a valid pattern"));

/// Blanks comments and the contents of string literals. Line breaks stay, so that line numbers do.
pub fn without_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match &bytes[at..] {
            [b'/', b'/', ..] => line_end(bytes, at),
            [b'/', b'*', ..] => block_comment_end(bytes, at),
            [b'"', ..] => string_end(bytes, at),
            [b'r', b'"' | b'#', ..] if !continues_a_name(bytes, at) => raw_string_end(bytes, at),
            [b'\'', ..] => char_end(bytes, at),
            _ => at,
        };
        if end == at {
            code.push(bytes[at]);
            at += 1;
        } else {
            code.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    String::from_utf8(code).expect("only whole tokens were replaced")
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

/// Block comments nest.
fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The end of `r"…"` or `r#"…"#`; `at` itself if this is a raw identifier such as `r#type`.
fn raw_string_end(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return at;
    }
    let terminator = [&b"\""[..], &b"#".repeat(hashes)].concat();
    let content = at + 2 + hashes;
    let length = bytes[content..].windows(terminator.len()).position(|window| window == terminator);
    length.map_or(bytes.len(), |length| content + length + terminator.len())
}

/// The end of a character literal; `at` itself if this is a lifetime.
fn char_end(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes[at + 3..].iter().position(|byte| *byte == b'\'');
        return close.map_or(at, |length| at + 4 + length);
    }
    // A character is at most four bytes.
    let close = bytes[at + 1..].iter().take(5).position(|byte| *byte == b'\'');
    match close {
        Some(length) if std::str::from_utf8(&bytes[at + 1..at + 1 + length]).is_ok_and(|t| t.chars().count() == 1) => {
            at + length + 2
        }
        _ => at,
    }
}

fn continues_a_name(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
    before.is_ascii_alphanumeric() && !matches!(before, b'b' | b'c') || before == b'_'
}

/// Blanks every item, statement and field behind `#[cfg(test)]`. The text has no comments and strings any more.
pub fn without_tests(code: &str) -> String {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut rest = code.to_owned();
    while let Some(start) = rest.find(ATTRIBUTE) {
        let end = item_end(&rest, start + ATTRIBUTE.len());
        let blank: String = rest[start..end].chars().filter(|c| *c == '\n').collect();
        rest.replace_range(start..end, &blank);
    }
    rest
}

/// Names of the modules that a file declares for tests only: `#[cfg(test)] mod NAME;`.
pub fn test_modules(code: &str) -> Vec<String> {
    TEST_MODULE.captures_iter(code).map(|found| found[1].to_owned()).collect()
}

/// The end of the item that begins here: behind its closing brace, its semicolon, or the comma of a field.
fn item_end(code: &str, start: usize) -> usize {
    let rest = code[start..].trim_start();
    let is_use = rest.starts_with("use ") || rest.starts_with("pub use ") || rest.starts_with("pub(");
    let (is_field, mut depth) = (FIELD.is_match(rest), 0_i32);
    for (at, found) in code[start..].char_indices() {
        match found {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth < 0 {
                    return start + at;
                }
                if depth == 0 && found == '}' && !(is_use && next_is_semicolon(&code[start + at + 1..])) {
                    return start + at + 1;
                }
            }
            ';' if depth == 0 => return start + at + 1,
            ',' if depth == 0 && is_field => return start + at + 1,
            _ => {}
        }
    }
    code.len()
}

fn next_is_semicolon(code: &str) -> bool {
    code.trim_start().starts_with(';')
}

#[test]
fn comments_and_strings_are_blanked_and_code_stays() {
    let text = "let a = \"// no {\"; // crate::x\n/* /* nested */ crate::y */ let b = r#\"a\"{\"#;\nlet c = '\"'; \
                fn f<'a>(x: &'a str) -> char { '\\'' } let r#type = b\"{\";";
    let code = without_comments_and_strings(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.lines().count(), text.lines().count());
    assert_eq!(code.matches('{').count(), 1, "{code}");
    assert!(!code.contains("crate") && code.contains("fn f<'a>(x: &'a str)") && code.contains("r#type"), "{code}");
}

#[test]
fn test_code_is_blanked_and_the_code_around_it_stays() {
    let code = "#[cfg(test)]\nmod fake;\nstruct S {\n    #[cfg(test)]\n    hook: Vec<(u8, u8)>,\n    kept: u8,\n}\n\
                #[cfg(test)]\nuse a::{b, c};\n#[cfg(test)]\npub(crate) fn only() { x(); }\nfn kept_too() {}\n\
                #[cfg(test)]\nmod tests {\n    mod nested {}\n}\n";
    let rest = without_tests(code);
    for gone in ["fake", "hook", "use", "only", "tests"] {
        assert!(!rest.contains(gone), "{gone}: {rest}");
    }
    assert!(rest.contains("kept: u8,") && rest.contains("fn kept_too() {}"), "{rest}");
    assert_eq!(rest.lines().count(), code.lines().count());
    assert_eq!(test_modules(code), ["fake"]);
}
