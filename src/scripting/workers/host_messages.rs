//! The requests of a run to the server, and the answers.
//!
//! A request comes from a worker and is untrusted: it names no owner, and its texts are checked where they are used.

use super::wire::{FrameReader, FrameWriter, Malformed};
use crate::scripting::lua::{HttpRequest, HttpResponse};
use std::time::Duration;

/// A request of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostRequest {
    Http(HttpRequest),
    KvGet { key: String },
    KvSet { key: String, value: String, ttl: Option<Duration> },
    KvAdd { key: String, value: String, ttl: Option<Duration> },
    KvIncrement { key: String, by: i64, ttl: Option<Duration> },
    KvDelete { key: String },
    Call { method: String, params: String },
    Emit { kind: String, payload: String },
    Require { name: String },
}

/// The answer to a request that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostReply {
    Done,
    Bool(bool),
    Integer(i64),
    /// A JSON text, if there is one.
    Json(Option<String>),
    Http(HttpResponse),
    /// The id of a program that the worker has, if there is such a library.
    Library(Option<u64>),
}

/// The answer to a request, or the message of its failure.
pub(super) type HostResult = Result<HostReply, String>;

impl HostRequest {
    /// Returns false if the request only reads what the server has.
    pub fn may_change_something(&self) -> bool {
        !matches!(self, Self::KvGet { .. } | Self::Require { .. })
    }

    pub fn write(&self, frame: &mut FrameWriter) {
        match self {
            Self::Http(request) => {
                frame.u8(0);
                frame.text(&request.method);
                frame.text(&request.url);
                write_headers(frame, &request.headers);
                frame.data(&request.body);
                write_span(frame, request.timeout);
            }
            Self::KvGet { key } => {
                frame.u8(1);
                frame.text(key);
            }
            Self::KvSet { key, value, ttl } => write_entry(frame, 2, key, value, *ttl),
            Self::KvAdd { key, value, ttl } => write_entry(frame, 3, key, value, *ttl),
            Self::KvIncrement { key, by, ttl } => {
                frame.u8(4);
                frame.text(key);
                frame.i64(*by);
                write_span(frame, *ttl);
            }
            Self::KvDelete { key } => {
                frame.u8(5);
                frame.text(key);
            }
            Self::Call { method, params } => write_pair(frame, 6, method, params),
            Self::Emit { kind, payload } => write_pair(frame, 7, kind, payload),
            Self::Require { name } => {
                frame.u8(8);
                frame.text(name);
            }
        }
    }

    pub fn read(frame: &mut FrameReader) -> Result<Self, Malformed> {
        Ok(match frame.u8()? {
            0 => Self::Http(HttpRequest {
                method: frame.text()?,
                url: frame.text()?,
                headers: read_headers(frame)?,
                body: frame.data()?,
                timeout: read_span(frame)?,
            }),
            1 => Self::KvGet { key: frame.text()? },
            2 => Self::KvSet { key: frame.text()?, value: frame.text()?, ttl: read_span(frame)? },
            3 => Self::KvAdd { key: frame.text()?, value: frame.text()?, ttl: read_span(frame)? },
            4 => Self::KvIncrement { key: frame.text()?, by: frame.i64()?, ttl: read_span(frame)? },
            5 => Self::KvDelete { key: frame.text()? },
            6 => Self::Call { method: frame.text()?, params: frame.text()? },
            7 => Self::Emit { kind: frame.text()?, payload: frame.text()? },
            8 => Self::Require { name: frame.text()? },
            _ => return Err(Malformed),
        })
    }
}

impl HostReply {
    pub fn write(&self, frame: &mut FrameWriter) {
        match self {
            Self::Done => frame.u8(0),
            Self::Bool(value) => {
                frame.u8(1);
                frame.u8(u8::from(*value));
            }
            Self::Integer(value) => {
                frame.u8(2);
                frame.i64(*value);
            }
            Self::Json(json) => {
                frame.u8(3);
                frame.option(json.as_deref(), FrameWriter::text);
            }
            Self::Http(response) => {
                frame.u8(4);
                frame.u32(u32::from(response.status));
                write_headers(frame, &response.headers);
                frame.data(&response.body);
            }
            Self::Library(program) => {
                frame.u8(5);
                frame.option(*program, FrameWriter::u64);
            }
        }
    }

    pub fn read(frame: &mut FrameReader) -> Result<Self, Malformed> {
        Ok(match frame.u8()? {
            0 => Self::Done,
            1 => Self::Bool(frame.u8()? != 0),
            2 => Self::Integer(frame.i64()?),
            3 => Self::Json(frame.option(FrameReader::text)?),
            4 => Self::Http(HttpResponse {
                status: u16::try_from(frame.u32()?).map_err(|_| Malformed)?,
                headers: read_headers(frame)?,
                body: frame.data()?,
            }),
            5 => Self::Library(frame.option(FrameReader::u64)?),
            _ => return Err(Malformed),
        })
    }
}

pub(super) fn write_result(frame: &mut FrameWriter, result: &HostResult) {
    match result {
        Ok(reply) => {
            frame.u8(1);
            reply.write(frame);
        }
        Err(message) => {
            frame.u8(0);
            frame.text(message);
        }
    }
}

pub(super) fn read_result(frame: &mut FrameReader) -> Result<HostResult, Malformed> {
    Ok(match frame.u8()? {
        0 => Err(frame.text()?),
        _ => Ok(HostReply::read(frame)?),
    })
}

fn write_pair(frame: &mut FrameWriter, code: u8, one: &str, other: &str) {
    frame.u8(code);
    frame.text(one);
    frame.text(other);
}

fn write_entry(frame: &mut FrameWriter, code: u8, key: &str, value: &str, ttl: Option<Duration>) {
    write_pair(frame, code, key, value);
    write_span(frame, ttl);
}

fn write_headers(frame: &mut FrameWriter, headers: &[(String, String)]) {
    frame.list(headers.iter(), |frame, (name, value)| {
        frame.text(name);
        frame.text(value);
    });
}

fn read_headers(frame: &mut FrameReader) -> Result<Vec<(String, String)>, Malformed> {
    frame.list(|frame| Ok((frame.text()?, frame.text()?)))
}

fn write_span(frame: &mut FrameWriter, span: Option<Duration>) {
    frame.option(span, |frame, span| frame.u64(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)));
}

fn read_span(frame: &mut FrameReader) -> Result<Option<Duration>, Malformed> {
    Ok(frame.option(FrameReader::u64)?.map(Duration::from_micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through<T>(write: impl FnOnce(&mut FrameWriter), read: impl FnOnce(&mut FrameReader) -> T) -> T {
        let mut writer = FrameWriter::default();
        write(&mut writer);
        let mut reader = FrameReader(writer.bytes.into());
        let value = read(&mut reader);
        reader.end().unwrap();
        value
    }

    #[test]
    fn every_request_and_every_reply_reads_back_as_it_was_written() {
        let (key, value, ttl) = (|| "k".to_owned(), || "[1]".to_owned(), Some(Duration::from_millis(1500)));
        let headers = vec![("A".to_owned(), "b".to_owned())];
        let http = HttpRequest {
            method: "PUT".to_owned(),
            url: "http://a".to_owned(),
            headers: headers.clone(),
            body: "body".into(),
            timeout: None,
        };
        for request in [
            HostRequest::Http(HttpRequest { timeout: ttl, ..http.clone() }),
            HostRequest::Http(http),
            HostRequest::KvGet { key: key() },
            HostRequest::KvSet { key: key(), value: value(), ttl },
            HostRequest::KvAdd { key: key(), value: value(), ttl: None },
            HostRequest::KvIncrement { key: key(), by: -3, ttl },
            HostRequest::KvDelete { key: key() },
            HostRequest::Call { method: "m".to_owned(), params: value() },
            HostRequest::Emit { kind: "t".to_owned(), payload: value() },
            HostRequest::Require { name: "acme.text".to_owned() },
        ] {
            let read = through(|frame| request.write(frame), |frame| HostRequest::read(frame).unwrap());
            assert_eq!(read, request);
        }
        for reply in [
            Err("no".to_owned()),
            Ok(HostReply::Done),
            Ok(HostReply::Bool(true)),
            Ok(HostReply::Integer(i64::MIN)),
            Ok(HostReply::Json(None)),
            Ok(HostReply::Json(Some(value()))),
            Ok(HostReply::Http(HttpResponse { status: 201, headers, body: "x".into() })),
            Ok(HostReply::Library(Some(7))),
        ] {
            let read = through(|frame| write_result(frame, &reply), |frame| read_result(frame).unwrap());
            assert_eq!(read, reply);
        }
    }
}
