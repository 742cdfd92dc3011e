//! `time`: `now()` in seconds since 1970, `format(seconds, [strftime])` in UTC, `parse(text)` of RFC 3339.

use super::{Maker, Raise, text};
use crate::model::timestamp::Timestamp;
use chrono::{DateTime, Utc};
use mlua::{LuaString, Table};
use std::fmt::Write;

/// The longest `strftime` format.
const MAX_FORMAT: usize = 256;

pub(super) fn module(maker: &Maker<'_>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    module.raw_set("now", maker.function("time.now", |_, ()| Ok(Timestamp::now().micros() as f64 / 1e6))?)?;
    module.raw_set(
        "format",
        maker.function("time.format", |_, (seconds, format): (f64, Option<LuaString>)| {
            // A float that is no number becomes 0 here, and one out of range the end of time.
            let moment = DateTime::<Utc>::from_timestamp_micros((seconds * 1e6) as i64)
                .filter(|_| seconds.is_finite())
                .ok_or_else(|| Raise::Message(format!("{seconds} is no time this calendar knows")))?;
            let Some(format) = format else { return Ok(Timestamp::from_micros(moment.timestamp_micros()).to_string()) };
            let mut out = String::new();
            let format = format.as_bytes();
            let format = text(&format, "format", MAX_FORMAT)?;
            write!(out, "{}", moment.format(format)).map_err(|_| format!("`{format}` is no strftime format"))?;
            Ok(out)
        })?,
    )?;
    module.raw_set(
        "parse",
        maker.function("time.parse", |_, moment: String| {
            let parsed = moment.parse::<Timestamp>();
            let parsed = parsed.map_err(|_| format!("`{moment}` is no RFC 3339 time such as 2026-01-31T12:00:00Z"))?;
            Ok(parsed.micros() as f64 / 1e6)
        })?,
    )?;
    Ok(module)
}
