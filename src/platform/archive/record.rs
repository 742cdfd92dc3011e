//! One record of an archive as a line of JSON.
//!
//! `{"kind":"queue","key":["0198…",7],"value":…}`: the value is the stored JSON, byte for byte. A value that is no
//! JSON, or that would not fit into a line as it is, is written as `"base64"` instead, and a key whose form is unknown
//! as `"key64"`. A kind without a name is written as `x` and its byte in hexadecimal digits.

use super::kinds::{self, ArchivedKind, FILE, KeyPart, ValueForm};
use crate::platform::secret_keys::KEY_FILE;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, io::Write as _};
use uuid::Uuid;

/// The files of a data directory that belong into an archive: without them an administrator could not log in, and
/// webhook secrets could not be decrypted. A key file that the settings put elsewhere is not among them, and its owner
/// keeps it.
pub const ARCHIVED_FILES: [&str; 3] = ["admin.token", "admin.password", KEY_FILE];

/// One record, as it was read.
#[derive(Debug, PartialEq, Eq)]
pub enum ArchiveRecord<'l> {
    Row {
        key: Vec<u8>,
        value: Cow<'l, [u8]>,
    },
    /// A file of the data directory, one of [`ARCHIVED_FILES`].
    File {
        name: &'static str,
        content: Vec<u8>,
    },
}

/// A line, before its kind gives its fields a meaning.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine<'l> {
    #[serde(borrow)]
    kind: &'l str,
    #[serde(borrow)]
    key: Option<Vec<LinePart<'l>>>,
    key64: Option<&'l str>,
    #[serde(borrow)]
    value: Option<&'l RawValue>,
    base64: Option<&'l str>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LinePart<'l> {
    Number(u64),
    #[serde(borrow)]
    Text(Cow<'l, str>),
}

/// Appends the line of a row, with its line feed.
pub(super) fn write_row(line: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let (byte, rest) = key.split_first().unwrap_or((&0, &[]));
    let kind = kinds::of_byte(*byte);
    line.extend_from_slice(b"{\"kind\":\"");
    match kind {
        Some(kind) => line.extend_from_slice(kind.name.as_bytes()),
        None => infallible(write!(line, "x{byte:02x}")),
    }
    line.extend_from_slice(b"\",");
    if !kind.is_some_and(|kind| write_key(line, kind, rest)) {
        line.extend_from_slice(b"\"key64\":\"");
        append_base64(line, rest);
        line.extend_from_slice(b"\",");
    }
    let is_json = kind.is_some_and(|kind| kind.value != ValueForm::Bytes);
    if is_json && fits_as_it_is(value) {
        line.extend_from_slice(b"\"value\":");
        line.extend_from_slice(value);
    } else {
        line.extend_from_slice(b"\"base64\":\"");
        append_base64(line, value);
        line.push(b'"');
    }
    line.extend_from_slice(b"}\n");
}

/// Appends the line of a file, with its line feed.
pub(super) fn write_file(line: &mut Vec<u8>, name: &str, content: &[u8]) {
    infallible(write!(line, "{{\"kind\":\"{FILE}\",\"key\":[\"{name}\"],\"base64\":\""));
    append_base64(line, content);
    line.extend_from_slice(b"\"}\n");
}

/// Reads a line.
///
/// # Errors
///
/// Fails with the reason if the line is no record.
pub(super) fn read(line: &[u8]) -> Result<ArchiveRecord<'_>, String> {
    let line: RecordLine<'_> = serde_json::from_slice(line).map_err(|error| format!("a line is no record: {error}"))?;
    let value = match (line.value, line.base64) {
        (Some(value), None) => Cow::Borrowed(value.get().as_bytes()),
        (None, Some(encoded)) => Cow::Owned(decode_base64(encoded)?),
        _ => return Err("a record has no value, or two".to_owned()),
    };
    if line.kind == FILE {
        let Some([LinePart::Text(wanted)]) = line.key.as_deref() else { return Err("a file has no name".to_owned()) };
        let known = ARCHIVED_FILES.into_iter().find(|name| name == wanted);
        let name = known.ok_or_else(|| format!("it has a file `{}`, which no backup has", wanted.escape_debug()))?;
        return Ok(ArchiveRecord::File { name, content: value.into_owned() });
    }
    let kind = kinds::of_name(line.kind);
    let unnamed = || u8::from_str_radix(line.kind.strip_prefix('x').filter(|digits| digits.len() == 2)?, 16).ok();
    let byte = kind.map(|kind| kind.byte).or_else(unnamed);
    let byte = byte.ok_or_else(|| format!("it has a record of the unknown kind `{}`", line.kind.escape_debug()))?;
    let mut key = vec![byte];
    match (kind, line.key, line.key64) {
        (Some(kind), Some(parts), None) => read_key(&mut key, kind, &parts)?,
        (_, None, Some(encoded)) => key.extend(decode_base64(encoded)?),
        _ => return Err(format!("a record of the kind `{}` has no key", line.kind)),
    }
    Ok(ArchiveRecord::Row { key, value })
}

/// Appends the parts of a key; writes nothing and returns `false` if the key has another form than its kind.
fn write_key(line: &mut Vec<u8>, kind: &ArchivedKind, mut rest: &[u8]) -> bool {
    let start = line.len();
    line.extend_from_slice(b"\"key\":[");
    for (index, part) in kind.key.iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        let written = match part {
            KeyPart::Id => rest.split_first_chunk::<16>().map(|(id, behind)| {
                let mut text = Uuid::encode_buffer();
                line.push(b'"');
                line.extend_from_slice(Uuid::from_bytes(*id).hyphenated().encode_lower(&mut text).as_bytes());
                line.push(b'"');
                behind
            }),
            KeyPart::Number => rest.split_first_chunk::<8>().map(|(number, behind)| {
                infallible(write!(line, "{}", u64::from_be_bytes(*number)));
                behind
            }),
            KeyPart::Text => std::str::from_utf8(rest).ok().map(|text| {
                serde_json::to_writer(&mut *line, text).expect("a string is JSON, and a vector takes it");
                &[][..]
            }),
        };
        match written {
            Some(behind) => rest = behind,
            None => {
                line.truncate(start);
                return false;
            }
        }
    }
    if !rest.is_empty() {
        line.truncate(start);
        return false;
    }
    line.extend_from_slice(b"],");
    true
}

fn read_key(key: &mut Vec<u8>, kind: &ArchivedKind, parts: &[LinePart<'_>]) -> Result<(), String> {
    let wrong = || format!("the key of a record of the kind `{}` has another form", kind.name);
    if parts.len() != kind.key.len() {
        return Err(wrong());
    }
    for (form, part) in kind.key.iter().zip(parts) {
        match (form, part) {
            (KeyPart::Id, LinePart::Text(id)) => {
                key.extend_from_slice(id.parse::<Uuid>().map_err(|_| wrong())?.as_bytes());
            }
            (KeyPart::Number, LinePart::Number(number)) => key.extend_from_slice(&number.to_be_bytes()),
            (KeyPart::Text, LinePart::Text(text)) => key.extend_from_slice(text.as_bytes()),
            _ => return Err(wrong()),
        }
    }
    Ok(())
}

/// True for JSON that reads back as the same bytes from a line: without line feeds, or blanks around it. A plain `null`
/// would read back as no value.
fn fits_as_it_is(value: &[u8]) -> bool {
    !value.contains(&b'\n')
        && value != b"null"
        && serde_json::from_slice::<&RawValue>(value).is_ok_and(|raw| raw.get().len() == value.len())
}

fn append_base64(line: &mut Vec<u8>, bytes: &[u8]) {
    let start = line.len();
    line.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written =
        STANDARD.encode_slice(bytes, &mut line[start..]).expect("there is room for four digits per three bytes");
    line.truncate(start + written);
}

fn decode_base64(encoded: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(encoded).map_err(|error| format!("a record has bytes that are no base64: {error}"))
}

fn infallible(written: std::io::Result<()>) {
    written.expect("a vector takes every write");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::store::keys;
    use proptest::prelude::*;

    fn line(key: &[u8], value: &[u8]) -> String {
        let mut line = Vec::new();
        write_row(&mut line, key, value);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_record_is_readable_where_its_form_is_known() {
        let (id, other) = (Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0001), Uuid::from_u128(2));
        let id_text = "01980000-0000-7000-8000-000000000001";
        let sink = keys::key(keys::SINKS, &[id.as_bytes()]);
        assert_eq!(
            line(&sink, br#"{"name":"a"}"#),
            format!("{{\"kind\":\"sink\",\"key\":[\"{id_text}\"],\"value\":{{\"name\":\"a\"}}}}\n")
        );
        let queued = keys::key(keys::QUEUE, &[id.as_bytes(), &7_u64.to_be_bytes()]);
        assert_eq!(
            line(&queued, other.as_bytes()),
            format!("{{\"kind\":\"queue\",\"key\":[\"{id_text}\",7],\"base64\":\"AAAAAAAAAAAAAAAAAAAAAg==\"}}\n")
        );
        let method = keys::key(keys::SUBSCRIPTIONS, &[id.as_bytes(), b"say \"hi\""]);
        assert_eq!(
            line(&method, b"1"),
            format!("{{\"kind\":\"subscription\",\"key\":[\"{id_text}\",\"say \\\"hi\\\"\"],\"value\":1}}\n")
        );
        assert_eq!(line(b"H", &[1]), "{\"kind\":\"history_bytes\",\"key\":[],\"base64\":\"AQ==\"}\n");
        assert_eq!(line(b"sodd", b"{}"), "{\"kind\":\"sink\",\"key64\":\"b2Rk\",\"value\":{}}\n");
        assert_eq!(line(b"\x01k", b"{}"), "{\"kind\":\"x01\",\"key64\":\"aw==\",\"base64\":\"e30=\"}\n");
    }

    #[test]
    fn json_that_would_change_in_a_line_is_written_as_bytes() {
        for value in [&b"{\n}"[..], b" {}", b"null", b"{", b"\"\xff\"", b""] {
            let line = line(b"s0123456789abcdef", value);
            assert!(line.contains("\"base64\":\"") && line.matches('\n').count() == 1, "{line}");
            let Ok(ArchiveRecord::Row { value: read, .. }) = read(line.trim_end().as_bytes()) else { panic!("{line}") };
            assert_eq!(&*read, value);
        }
    }

    #[test]
    fn a_line_of_another_form_is_refused_with_its_fault() {
        for (line, fault) in [
            ("{\"kind\":\"sink\",\"key\":[],\"value\":1}", "another form"),
            ("{\"kind\":\"sink\",\"key\":[\"x\"],\"value\":1}", "another form"),
            ("{\"kind\":\"sink\",\"value\":1}", "no key"),
            ("{\"kind\":\"sink\",\"key64\":\"AA==\"}", "no value"),
            ("{\"kind\":\"sinks\",\"key\":[],\"value\":1}", "unknown kind `sinks`"),
            ("{\"kind\":\"file\",\"key\":[\"../x\"],\"base64\":\"\"}", "`../x`"),
            ("{\"kind\":\"sink\",\"key64\":\"AA==\",\"base64\":\"?\"}", "no base64"),
            ("{\"kind\":\"sink\",\"key64\":\"AA==\",\"value\":1,\"more\":1}", "unknown field"),
        ] {
            let read = read(line.as_bytes()).unwrap_err();
            assert!(read.contains(fault), "{line}: {read}");
        }
    }

    proptest! {
        #[test]
        fn every_key_and_value_reads_back_as_it_was(
            key in proptest::collection::vec(any::<u8>(), 1..60),
            kind in proptest::sample::select(b"ETQSDXHABKurgtcspqlmoO!".to_vec()),
            value in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..60),
                "\\{\"[a-z]{0,5}\": ?[0-9]{1,4}\\}".prop_map(String::into_bytes),
            ],
        ) {
            let mut key = key;
            key[0] = kind;
            let line = line(&key, &value);
            prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
            let Ok(ArchiveRecord::Row { key: read_key, value: read_value }) = read(line.trim_end().as_bytes()) else {
                panic!("{line}");
            };
            prop_assert_eq!(read_key, key);
            prop_assert_eq!(&*read_value, &value[..]);
        }
    }
}
