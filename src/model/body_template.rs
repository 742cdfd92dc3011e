//! The template of a request body, as users write it: Lua, or text with Lua expressions.
//!
//! [`crate::scripting::lua::Program`] compiles it.

use super::text_or_object::{self, TextOrObject};
use serde::{Deserialize, Deserializer, Serialize};

/// A body template: `{"lang":"lua"|"text","source":"…"}`, or a bare string, which is Lua.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "lang", content = "source", rename_all = "snake_case")]
pub enum BodyTemplate {
    /// A chunk that returns a table, sent as JSON, or a string, sent as it is.
    Lua(String),
    /// Text in which each `${{ expression }}` is replaced by the value of the Lua expression.
    Text(String),
}

impl<'de> Deserialize<'de> for BodyTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Explicit {
            lang: Lang,
            source: String,
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Lang {
            Lua,
            Text,
        }

        let expected = "a Lua source, or an object with `lang` (lua or text) and `source`";
        Ok(match text_or_object::read(deserializer, expected)? {
            TextOrObject::Text(source) | TextOrObject::Object(Explicit { lang: Lang::Lua, source }) => {
                Self::Lua(source)
            }
            TextOrObject::Object(Explicit { lang: Lang::Text, source }) => Self::Text(source),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_string_is_lua_and_an_object_says_its_language() {
        let read = serde_json::from_str::<BodyTemplate>;
        assert_eq!(read(r#""return 1""#).unwrap(), BodyTemplate::Lua("return 1".into()));
        let text = BodyTemplate::Text("hi".into());
        assert_eq!(read(r#"{"lang":"text","source":"hi"}"#).unwrap(), text);
        assert_eq!(serde_json::to_string(&text).unwrap(), r#"{"lang":"text","source":"hi"}"#);
        assert!(read(r#"{"lang":"text","source":"hi","x":1}"#).unwrap_err().to_string().contains("`x`"));
        assert!(read(r#"{"lang":"php","source":"hi"}"#).unwrap_err().to_string().contains("`php`"));
        assert!(read("5").unwrap_err().to_string().contains("a Lua source, or an object"));
    }
}
