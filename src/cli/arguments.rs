//! Values of arguments: payloads, files, passwords, and moments in time.

use super::{failure::Failure, shell::Shell};
use crate::{
    model::{
        event::EventType,
        pattern::{PatternError, Patterns},
        timestamp::Timestamp,
    },
    platform::config::Span,
};
use serde_json::value::RawValue;
use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

/// The spelling of `-` after the normalisation of the command line.
pub const STDIN: &str = "@-";

/// The source of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PayloadSource {
    Given(String),
    File(PathBuf),
    Stdin,
    /// No argument: stdin if something is piped in, and empty otherwise.
    Unspecified,
}

impl PayloadSource {
    /// Reads an argument: JSON, `@FILE`, or `-`, which arrives here as `@-`.
    pub fn of_argument(argument: Option<&str>) -> Self {
        match argument {
            None => Self::Unspecified,
            Some("-" | STDIN) => Self::Stdin,
            Some(text) => match text.strip_prefix('@') {
                Some(path) => Self::File(path.into()),
                None => Self::Given(text.to_owned()),
            },
        }
    }

    /// The payload, byte for byte as it was written; `{}` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read or is no JSON object.
    pub fn read(&self, shell: &mut Shell<'_>) -> Result<Box<RawValue>, Failure> {
        let text = self.text(shell)?.unwrap_or_default();
        // cron and systemd run programs with an empty stdin.
        let text = if text.trim().is_empty() && *self == Self::Unspecified { "{}" } else { text.trim() };
        object(text)
    }

    /// The text, which need not be JSON; `None` without an argument and with nothing piped in.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read.
    pub fn text(&self, shell: &mut Shell<'_>) -> Result<Option<String>, Failure> {
        match self {
            Self::Given(text) => Ok(Some(text.clone())),
            Self::File(path) if path.as_os_str().is_empty() => {
                Err(Failure::Usage("`@` names no file: write @FILE, such as @payload.json".to_owned()))
            }
            Self::File(path) => read_file(path).map(Some),
            Self::Stdin => shell.read_input().map(Some),
            Self::Unspecified => shell.piped(),
        }
    }
}

pub fn read_file(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|source| Failure::File { path: path.to_owned(), source })
}

fn object(text: &str) -> Result<Box<RawValue>, Failure> {
    let raw: Box<RawValue> = serde_json::from_str(text).map_err(|error| {
        Failure::Usage(format!("the payload is not JSON ({error}): write an object such as '{{\"version\": \"1.2\"}}'"))
    })?;
    match raw.get().starts_with('{') {
        true => Ok(raw),
        false => Err(Failure::Usage("the payload must be a JSON object, such as '{\"version\": \"1.2\"}'".to_owned())),
    }
}

/// Parses patterns of event types.
///
/// # Errors
///
/// Names the fault and its position.
pub fn parse_patterns(text: &str) -> Result<Patterns, String> {
    text.parse().map_err(|error: PatternError| error.to_string())
}

/// Parses the type of a custom event, and keeps it as it was written.
///
/// # Errors
///
/// Names the fault.
pub fn parse_event_type(text: &str) -> Result<String, String> {
    EventType::custom(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Parses the number of rows of a list.
///
/// # Errors
///
/// Says which numbers there are.
pub fn parse_limit(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of rows: give a whole number, 1 or more"))
}

/// Parses an address to listen on.
///
/// # Errors
///
/// Shows the right form.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is no address to listen on: write IP:PORT, such as 127.0.0.1:7300"))
}

/// The source of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    Asked,
    /// Asked twice: a new password with a typo would lock its user out.
    Chosen,
    Stdin,
    None,
}

impl PasswordSource {
    /// The password; `None` for [`Self::None`].
    ///
    /// # Errors
    ///
    /// Fails without a terminal to ask at, and on an empty password.
    pub fn read(self, shell: &mut Shell<'_>, question: &str) -> Result<Option<String>, Failure> {
        let mut ask =
            |question: &str| shell.ask_secret(question, "no terminal to ask for a password at: use --password-stdin");
        let password = match self {
            Self::None => return Ok(None),
            Self::Asked => ask(question)?,
            Self::Chosen => {
                let password = ask(question)?;
                if ask("The same again")? != password {
                    return Err(Failure::Usage("the two passwords differ: nothing was sent".to_owned()));
                }
                password
            }
            Self::Stdin => shell.read_input()?.lines().next().unwrap_or_default().to_owned(),
        };
        match password.is_empty() {
            true => Err(Failure::Usage("the password is empty: nothing was sent".to_owned())),
            false => Ok(Some(password)),
        }
    }
}

/// The longest span between now and a moment: a hundred years.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

/// A moment in time, absolute or relative to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Such as `2026-01-31T12:00:00Z`.
    At(Timestamp),
    /// Such as `15m`, before or after now.
    Relative(Span),
}

impl Moment {
    /// The moment; a relative one lies in the past.
    pub fn past(self) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Relative(span) => Timestamp::now().before(span.0),
        }
    }

    /// The moment; a relative one lies in the future.
    pub fn future(self) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Relative(span) => Timestamp::now().after(span.0),
        }
    }
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let moment = text.parse().map(Self::At);
        let moment = moment.or_else(|_| text.parse().map(Self::Relative)).map_err(|_| {
            format!("`{text}` is no time: write one such as 2026-01-31T12:00:00Z, or a span such as 15m, 2h or 7d")
        })?;
        match moment {
            Self::Relative(span) if span.0 > LONGEST => {
                Err(format!("`{text}` is too long: give at most {}", Span(LONGEST)))
            }
            moment => Ok(moment),
        }
    }
}

/// A time to the second, as tables show it.
pub fn brief(moment: Timestamp) -> String {
    let whole = moment.to_string();
    match whole.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{
        shell::{Stdin, Stdout, StdoutKind},
        table::Coloring,
    };

    fn read(argument: Option<&str>, piped: Option<&str>) -> Result<String, Failure> {
        let mut stdin = piped.unwrap_or_default().as_bytes();
        let input = if piped.is_some() { Stdin::Piped(&mut stdin) } else { Stdin::Terminal };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let out = Stdout::new(&mut out, StdoutKind::File, None, Coloring::Bare);
        let mut shell = Shell { environment: &|_| None, input, out, err: &mut err };
        PayloadSource::of_argument(argument).read(&mut shell).map(|raw| raw.get().to_owned())
    }

    #[test]
    fn without_a_payload_argument_a_piped_stdin_is_read() {
        assert_eq!(read(None, Some("{\"a\": 1}\n")).unwrap(), "{\"a\": 1}");
        assert_eq!(read(None, Some("")).unwrap(), "{}");
        assert_eq!(read(None, None).unwrap(), "{}");
    }

    #[test]
    fn a_given_payload_leaves_stdin_alone() {
        assert_eq!(read(Some("{\"b\":2}"), Some("{\"a\":1}")).unwrap(), "{\"b\":2}");
        assert_eq!(read(Some("-"), Some("{\"a\":1}")).unwrap(), "{\"a\":1}");
    }

    #[test]
    fn a_payload_keeps_its_digits_and_its_order() {
        let exact = "{\"z\":18446744073709551616,\"a\":1.50}";
        assert_eq!(read(Some(exact), None).unwrap(), exact);
    }

    #[test]
    fn a_payload_that_is_no_object_is_bad_usage() {
        for bad in ["[1]", "3", "\"x\"", "{", "version=3", ""] {
            assert_eq!(read(Some(bad), None).unwrap_err().exit_code(), 2, "{bad}");
        }
        assert_eq!(read(Some("-"), Some("")).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_file_is_named_with_an_at_sign() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("payload.json");
        std::fs::write(&path, "{\"from\":\"file\"}\n").unwrap();
        assert_eq!(read(Some(&format!("@{}", path.display())), None).unwrap(), "{\"from\":\"file\"}");
        assert_eq!(read(Some("@/nowhere"), None).unwrap_err().exit_code(), 1);
    }

    #[test]
    fn a_span_is_counted_from_now_in_the_direction_asked_for() {
        let hour: Moment = "1h".parse().unwrap();
        let now = Timestamp::now();
        assert!(hour.past() < now.before(Duration::from_secs(3590)));
        assert!(hour.future() > now.after(Duration::from_secs(3590)));
        let noon: Moment = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(noon.past(), noon.future());
        assert!("yesterday".parse::<Moment>().unwrap_err().contains("2h"));
    }

    #[test]
    fn a_table_shows_whole_seconds() {
        assert_eq!(brief(Timestamp::from_micros(1_700_000_000_000_120)), "2023-11-14T22:13:20Z");
    }
}
