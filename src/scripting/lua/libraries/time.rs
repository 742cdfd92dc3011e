//! `time`: `now()` in seconds since 1970, `format(seconds, [strftime])` in UTC, `parse(text)` of RFC 3339; in programs
//! of a space also `sleep(seconds)`.

use super::{
    arguments::{seconds, text},
    function_builder::FunctionBuilder,
    library_error::LibraryError,
};
use crate::model::timestamp::Timestamp;
use chrono::{DateTime, Utc};
use mlua::{LuaString, Table};
use std::fmt::Write;

/// The longest `strftime` format, and the longest time as a text.
const MAX_FORMAT: usize = 256;

pub(super) fn library(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    library.raw_set("now", builder.function("time.now", |_, ()| Ok(Timestamp::now().micros() as f64 / 1e6))?)?;
    library.raw_set(
        "format",
        builder.function("time.format", |_, (moment, format): (f64, Option<LuaString>)| {
            // The conversion to an integer makes 0 of NaN and saturates out of range.
            let moment = DateTime::<Utc>::from_timestamp_micros((moment * 1e6) as i64)
                .filter(|_| moment.is_finite())
                .ok_or_else(|| LibraryError::Message(format!("{moment} is no time this calendar knows")))?;
            let Some(format) = format else { return Ok(Timestamp::from_micros(moment.timestamp_micros()).to_string()) };
            let mut out = String::new();
            let format = format.as_bytes();
            let format = text(&format, "format", MAX_FORMAT)?;
            write!(out, "{}", moment.format(format)).map_err(|_| format!("`{format}` is no strftime format"))?;
            Ok(out)
        })?,
    )?;
    library.raw_set(
        "parse",
        builder.function("time.parse", |_, moment: LuaString| {
            let moment = moment.as_bytes();
            let moment = text(&moment, "time", MAX_FORMAT)?;
            let parsed = moment.parse::<Timestamp>();
            let parsed = parsed.map_err(|_| format!("`{moment}` is no RFC 3339 time such as 2026-01-31T12:00:00Z"))?;
            Ok(parsed.micros() as f64 / 1e6)
        })?,
    )?;
    Ok(library)
}

/// `time.sleep(seconds)`.
pub(super) fn sleep(builder: &FunctionBuilder<'_>) -> mlua::Result<mlua::Function> {
    builder.async_function("time.sleep", |_, span: f64| async move {
        tokio::time::sleep(seconds(span, "the time")?).await;
        Ok(())
    })
}
