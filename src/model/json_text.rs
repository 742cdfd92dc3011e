//! Measures JSON text without decoding it, for limits that must be checked before anything is allocated for the values.
//!
//! Other readers of JSON have other jobs: [`super::jsonrpc`] splits a message into raw members,
//! `scripting::lua::json` builds Lua values within budgets, and `server::mcp::message` finds a tool's arguments in a
//! body.

/// The size of a JSON text in terms of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonShape {
    /// The deepest nesting of objects and arrays.
    pub depth: usize,
    /// The number of commas outside of strings: a lower bound on the number of values, and close to it in a large text.
    pub commas: usize,
}

/// Measures a JSON text. Its syntax must have been checked: outside of strings, each bracket and comma is taken as one.
pub fn measure(json: &str) -> JsonShape {
    let (mut depth, mut shape) = (0_usize, JsonShape { depth: 0, commas: 0 });
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                shape.depth = shape.depth.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => shape.commas += 1,
            _ => {}
        }
    }
    shape
}

/// Returns true if objects and arrays are nested deeper than `limit`. Few texts have as many brackets, and to count
/// them is quick.
pub fn is_deeper_than(json: &str, limit: usize) -> bool {
    let opened = json.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    opened > limit && measure(json).depth > limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_deep_as_its_nesting_and_not_as_its_brackets() {
        for (json, depth) in [("1", 0), ("[[1],[2],[3]]", 2), (r#"{"a":"[[[[","b":[{}]}"#, 3), (r#"["\"",[]]"#, 2)] {
            let deeper = [0, 1, 2, 3].map(|limit| is_deeper_than(json, limit));
            assert_eq!(deeper, [0, 1, 2, 3].map(|limit| depth > limit), "{json}");
        }
    }

    #[test]
    fn brackets_and_commas_in_strings_do_not_count() {
        assert_eq!(measure(r#"{"a":[1,{"b":[]}],"c":{}}"#), JsonShape { depth: 4, commas: 2 });
        assert_eq!(measure(r#"{"a":"[[[{{{,,","b":"\\\"[["}"#), JsonShape { depth: 1, commas: 1 });
        assert_eq!(measure("1"), JsonShape { depth: 0, commas: 0 });
    }
}
