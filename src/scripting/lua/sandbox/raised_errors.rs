//! The message of an error that Lua raised, as its author should see it.

use crate::scripting::lua::{bounded_text::bounded, libraries::NO_MEMORY};

/// The message an error was raised with, without mlua's additions; `None` if memory ran out.
pub(super) fn message(error: &mlua::Error) -> Option<String> {
    match error {
        mlua::Error::MemoryError(_) => None,
        mlua::Error::CallbackError { cause, .. } => message(cause),
        mlua::Error::RuntimeError(text) => {
            let text = text.split_once("\nstack traceback:").map_or(text.as_str(), |(text, _)| text);
            if text == NO_MEMORY {
                return None;
            }
            Some(bounded(text).to_owned())
        }
        other => Some(bounded(&other.to_string()).to_owned()),
    }
}

/// Shifts the line number of a message from `name`, whose chunk begins on `line` of the author's source.
pub(super) fn shift_line(name: &str, message: String, line: u32) -> String {
    let prefix = format!("{name}:");
    let number = message.strip_prefix(&prefix).and_then(|rest| rest.split_once(':'));
    match number.and_then(|(number, rest)| Some((number.parse::<u32>().ok()?, rest))) {
        Some((number, rest)) => format!("{prefix}{}:{rest}", number + line - 1),
        None => message,
    }
}
