//! Reads a database of format 1 as the rows of the current format.
//!
//! | format 1 | current |
//! |---|---|
//! | values without a checksum | values in a frame |
//! | `E` event | `E` time event |
//! | `T` time event | none; `E` is in the order of time |
//! | `D` event sink | `D` time event sink |
//! | `Q` sink sequence: event | `Q` sink sequence: time event |
//!
//! All other rows keep their keys. A damaged row is left out and counted.

use super::{chunked::Value, keys};
use std::{collections::HashMap, io};

const WHOLE: u8 = 0;
const HEAD: u8 = 1;
const TIMELINE: u8 = b'T';

/// Length of an id in a key.
const ID: usize = 16;

/// The number of the last group, from its row.
pub fn commit_number(row: &Value) -> Option<u64> {
    keys::number(row, 0)
}

/// The accepted times of events, from their index.
#[derive(Default)]
pub struct EventTimes(HashMap<[u8; ID], [u8; 8]>);

impl EventTimes {
    /// Notes the time if this is a key of the index.
    pub fn see(&mut self, key: &[u8]) {
        if let (Some(&TIMELINE), Some(time), Some(event)) = (key.first(), array::<8>(key, 1), array::<ID>(key, 9)) {
            self.0.insert(event, time);
        }
    }

    fn of(&self, event: &[u8; ID]) -> [u8; 8] {
        self.0.get(event).copied().unwrap_or_default()
    }
}

/// A row of format 1 in the current format.
pub enum CurrentRow {
    Row {
        key: Vec<u8>,
        value: Value,
    },
    /// The current format has no such row.
    Absent,
    Damaged,
}

/// Calls `visit` with each row in the current format, and returns the number of damaged rows that it left out.
pub fn rows(tree: &sled::Db, mut visit: impl FnMut(&[u8], &[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut times = EventTimes::default();
    for key in tree.scan_prefix([TIMELINE]).keys() {
        times.see(&key?);
    }
    let mut damaged = 0;
    for row in tree.iter() {
        let (key, raw) = row?;
        match current_row(&times, &key, &raw, |piece| Ok(tree.get(piece)?))? {
            CurrentRow::Row { key, value } => visit(&key, &value)?,
            CurrentRow::Absent => {}
            CurrentRow::Damaged => {
                log::warn!("the stored {} {} is damaged and left out", keys::kind_name(&key), keys::display(&key));
                damaged += 1;
            }
        }
    }
    Ok(damaged)
}

/// The row in the current format. `piece` reads the rows that hold the pieces of its value.
pub fn current_row(
    times: &EventTimes,
    key: &[u8],
    raw: &Value,
    piece: impl FnMut(&[u8]) -> io::Result<Option<Value>>,
) -> io::Result<CurrentRow> {
    let kind = key.first().copied().unwrap_or_default();
    if matches!(kind, TIMELINE | keys::PIECE | keys::COMMIT) {
        return Ok(CurrentRow::Absent);
    }
    let Some(value) = value(key, raw, piece)? else { return Ok(CurrentRow::Damaged) };
    Ok(match (kind, array::<ID>(key, 1)) {
        (keys::EVENT, Some(event)) => {
            CurrentRow::Row { key: keys::key(keys::EVENT, &[&times.of(&event), &event]), value }
        }
        (keys::DELIVERY, Some(event)) => {
            let key = keys::key(keys::DELIVERY, &[&times.of(&event), &event, &key[1 + ID..]]);
            CurrentRow::Row { key, value }
        }
        (keys::QUEUE, _) => match array::<ID>(&value, 0) {
            Some(event) => {
                CurrentRow::Row { key: key.to_vec(), value: [&times.of(&event)[..], &event].concat().into() }
            }
            None => CurrentRow::Damaged,
        },
        _ => CurrentRow::Row { key: key.to_vec(), value },
    })
}

/// The value of a row; `None` if it is damaged.
fn value(
    key: &[u8],
    raw: &Value,
    mut piece: impl FnMut(&[u8]) -> io::Result<Option<Value>>,
) -> io::Result<Option<Value>> {
    if is_small(key) {
        return Ok(Some(raw.clone()));
    }
    match (raw.first(), array::<8>(raw, 1), array::<4>(raw, 9)) {
        (Some(&WHOLE), ..) => Ok(Some(raw.subslice(1, raw.len() - 1))),
        (Some(&HEAD), Some(generation), Some(count)) => {
            let mut value = Vec::new();
            for index in 0..u32::from_be_bytes(count) {
                match piece(&keys::key(keys::PIECE, &[key, &generation, &index.to_be_bytes()]))? {
                    Some(piece) => value.extend_from_slice(&piece),
                    None => return Ok(None),
                }
            }
            Ok(Some(value.into()))
        }
        _ => Ok(None),
    }
}

/// Tells the kinds whose values are a few bytes at most, and had no frame.
fn is_small(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(TIMELINE | keys::QUEUE | keys::SEQUENCE | keys::HISTORY | keys::AUDIT_BYTES)))
}

fn array<const LENGTH: usize>(bytes: &[u8], at: usize) -> Option<[u8; LENGTH]> {
    bytes.get(at..at + LENGTH)?.try_into().ok()
}
