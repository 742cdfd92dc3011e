//! The log on stderr: lines for people, or one JSON object a line for programs.
//!
//! A message may quote input from others, so control characters are escaped: one message is one line, and none can
//! control the operator's terminal.

use crate::model::timestamp::Timestamp;
use log::{Level, LevelFilter, Record, SetLoggerError};
use std::{
    fmt,
    io::{self, IsTerminal as _, LineWriter, Write},
};

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// Colouring of the level in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LevelColor {
    Coloured,
    Bare,
}

/// A writer that ignores errors. The reader of the log may be gone, as the pipe to a supervisor that died is; fern
/// panics at an error, which must not end the server.
struct IgnoreErrors<W>(W);

/// Libraries that log too much at `debug`; they log warnings and errors only.
const VERBOSE: [&str; 8] = ["isahc", "sled", "hyper", "h2", "rustls", "polling", "tracing", "tungstenite"];

/// Libraries that log the errors they return, which our own code logs where they matter.
const SILENCED: [&str; 2] = ["rmcp", "rustls_platform_verifier"];

/// Starts the log at `level`. Levels are coloured if stderr is a terminal and `NO_COLOR` is not set.
///
/// # Errors
///
/// Fails if a logger is set already.
pub fn init(level: LevelFilter, format: Format) -> Result<(), SetLoggerError> {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let paint = if io::stderr().is_terminal() && !plain { LevelColor::Coloured } else { LevelColor::Bare };
    let quiet = VERBOSE.into_iter().fold(fern::Dispatch::new().level(level), |dispatch, name| {
        dispatch.level_for(name, level.min(LevelFilter::Warn))
    });
    let quiet = SILENCED.into_iter().fold(quiet, |dispatch, name| dispatch.level_for(name, LevelFilter::Off));
    quiet
        .format(move |out, message, record| {
            let now = Timestamp::now();
            match format {
                Format::Text => out.finish(format_args!("{}", text_line(now, record, message, paint))),
                Format::Json => out.finish(format_args!("{}", json_line(now, record, message))),
            }
        })
        .chain(Box::new(LineWriter::new(IgnoreErrors(io::stderr()))) as Box<dyn Write + Send>)
        .apply()
}

impl<W: Write> Write for IgnoreErrors<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

fn text_line(now: Timestamp, record: &Record<'_>, message: &fmt::Arguments<'_>, paint: LevelColor) -> String {
    let level = match (paint, record.level()) {
        (LevelColor::Bare, level) => format!("{level:5}"),
        (LevelColor::Coloured, level @ Level::Error) => format!("\u{1b}[31m{level:5}\u{1b}[0m"),
        (LevelColor::Coloured, level @ Level::Warn) => format!("\u{1b}[33m{level:5}\u{1b}[0m"),
        (LevelColor::Coloured, level @ Level::Info) => format!("\u{1b}[32m{level:5}\u{1b}[0m"),
        (LevelColor::Coloured, level) => format!("\u{1b}[2m{level:5}\u{1b}[0m"),
    };
    let mut line = format!("{now} {level} {}: ", record.target());
    for c in message.to_string().chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

fn json_line(now: Timestamp, record: &Record<'_>, message: &fmt::Arguments<'_>) -> String {
    let level = record.level().as_str().to_lowercase();
    let line = serde_json::json!({
        "ts": now,
        "level": level,
        "target": record.target(),
        "message": message.to_string(),
    });
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Timestamp = Timestamp::from_micros(1_700_000_000_000_120);

    fn record(level: Level) -> Record<'static> {
        Record::builder().level(level).target("svc::deliver").build()
    }

    #[test]
    fn a_message_stays_on_its_line_and_off_the_terminal() {
        let line = text_line(MOMENT, &record(Level::Warn), &format_args!("said \"a\nb\u{1b}[2J\""), LevelColor::Bare);
        assert_eq!(line, "2023-11-14T22:13:20.000120Z WARN  svc::deliver: said \"a\\nb\\u{1b}[2J\"");
    }

    #[test]
    fn only_a_terminal_sees_colour() {
        let line = text_line(MOMENT, &record(Level::Error), &format_args!("x"), LevelColor::Coloured);
        assert!(line.contains("\u{1b}[31mERROR\u{1b}[0m"), "{line:?}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let line = json_line(MOMENT, &record(Level::Info), &format_args!("a\n\"b\""));
        assert!(!line.contains('\n'), "{line}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "ts": "2023-11-14T22:13:20.000120Z", "level": "info", "target": "svc::deliver", "message": "a\n\"b\""
        });
        assert_eq!(value, expected);
    }
    #[test]
    fn a_log_that_nobody_reads_any_more_is_no_error() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let mut log = LineWriter::new(IgnoreErrors(Gone));
        writeln!(log, "one").and_then(|()| writeln!(log, "two")).and_then(|()| log.flush()).unwrap();
    }
}
