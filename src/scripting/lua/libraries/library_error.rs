//! The failure of a library function.

use super::boxed_json::BoxedJson;
use crate::scripting::lua::json::JsonError;

/// The failure of a library function, by its effect on the script.
pub(super) enum LibraryError {
    /// Raised in the script as a string.
    Message(String),
    /// Raised in the script as a table: a structured error that came from elsewhere.
    Table(BoxedJson),
    /// Ends the run.
    Fatal(mlua::Error),
}

impl From<mlua::Error> for LibraryError {
    fn from(error: mlua::Error) -> Self {
        match error {
            mlua::Error::FromLuaConversionError { from, to, message } => {
                let hint = message.map_or_else(String::new, |message| format!(" ({message})"));
                Self::Message(format!("cannot take a {from} as {to}{hint}"))
            }
            other => Self::Fatal(other),
        }
    }
}

impl From<String> for LibraryError {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl From<JsonError> for LibraryError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Lua(error) => Self::Fatal(error),
            other => Self::Message(other.to_string()),
        }
    }
}
