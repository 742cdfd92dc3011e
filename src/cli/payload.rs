//! An event's payload on the command line: given as JSON, in a file, on stdin, or not at all.

use super::{failure::Failure, shell::Shell};
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

/// Where the payload is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Given(String),
    File(PathBuf),
    Stdin,
    /// Nobody said: stdin if something is piped in, and empty otherwise.
    Unsaid,
}

impl Source {
    /// What the argument means: JSON, `@FILE`, or `-` (which arrives here as `@-`).
    pub fn of_argument(argument: Option<&str>) -> Self {
        match argument {
            None => Self::Unsaid,
            Some("-" | "@-") => Self::Stdin,
            Some(text) => match text.strip_prefix('@') {
                Some(path) => Self::File(path.into()),
                None => Self::Given(text.to_owned()),
            },
        }
    }

    /// The payload itself, as the JSON object that was written; `{}` if none was.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read or is no JSON object.
    pub fn read(&self, shell: &mut Shell<'_>) -> Result<Box<RawValue>, Failure> {
        let text = self.text(shell)?.unwrap_or_default();
        // An empty pipe is what cron and systemd give a hook that has nothing to say.
        let text = if text.trim().is_empty() && *self == Self::Unsaid { "{}" } else { text.trim() };
        object(text)
    }

    /// What is there, whatever it is; `None` if nobody said and nothing is piped in.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read.
    pub fn text(&self, shell: &mut Shell<'_>) -> Result<Option<String>, Failure> {
        match self {
            Self::Given(text) => Ok(Some(text.clone())),
            Self::File(path) => read_file(path).map(Some),
            Self::Stdin => shell.read_input().map(Some),
            Self::Unsaid => shell.piped(),
        }
    }
}

/// A file's text.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{
        shell::{Input, Screen, ScreenKind},
        table::Paint,
    };

    fn read(argument: Option<&str>, piped: Option<&str>) -> Result<String, Failure> {
        let mut stdin = piped.unwrap_or_default().as_bytes();
        let input = if piped.is_some() { Input::Piped(&mut stdin) } else { Input::Terminal };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let out = Screen::new(&mut out, ScreenKind::File, None, Paint::Bare);
        let mut shell = Shell { environment: &|_| None, input, out, err: &mut err };
        Source::of_argument(argument).read(&mut shell).map(|raw| raw.get().to_owned())
    }

    #[test]
    fn stdin_is_read_when_nothing_is_given_and_nobody_types() {
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
    fn what_is_no_object_is_bad_usage() {
        for bad in ["[1]", "3", "\"x\"", "{", "version=3", ""] {
            assert_eq!(read(Some(bad), None).unwrap_err().exit_code(), 2, "{bad}");
        }
        assert_eq!(read(Some("-"), Some("")).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_file_is_named_with_an_at_sign() {
        let path = std::env::temp_dir().join(format!("svc-payload-{}.json", uuid::Uuid::now_v7()));
        std::fs::write(&path, "{\"from\":\"file\"}\n").unwrap();
        let read_back = read(Some(&format!("@{}", path.display())), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_back.unwrap(), "{\"from\":\"file\"}");
        assert_eq!(read(Some("@/nowhere"), None).unwrap_err().exit_code(), 1);
    }
}
