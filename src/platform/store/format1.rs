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

/// Calls `visit` with each row in the current format, and returns the number of damaged rows that it left out.
pub fn rows(tree: &sled::Db, mut visit: impl FnMut(&[u8], &[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut times = HashMap::<[u8; ID], [u8; 8]>::new();
    for key in tree.scan_prefix([TIMELINE]).keys() {
        let key = key?;
        if let (Some(time), Some(event)) = (array::<8>(&key, 1), array::<ID>(&key, 9)) {
            times.insert(event, time);
        }
    }
    let time_of = |event: &[u8; ID]| times.get(event).copied().unwrap_or_default();
    let mut damaged = 0;
    for row in tree.iter() {
        let (key, raw) = row?;
        let kind = key.first().copied().unwrap_or_default();
        if matches!(kind, TIMELINE | keys::PIECE | keys::COMMIT) {
            continue;
        }
        let Some(value) = value(tree, &key, &raw)? else {
            log::warn!("the stored {} {} is damaged and left out", keys::kind_name(&key), keys::display(&key));
            damaged += 1;
            continue;
        };
        match (kind, array::<ID>(&key, 1)) {
            (keys::EVENT, Some(event)) => {
                visit(&keys::key(keys::EVENT, &[&time_of(&event), &event]), &value)?;
            }
            (keys::DELIVERY, Some(event)) => {
                visit(&keys::key(keys::DELIVERY, &[&time_of(&event), &event, &key[1 + ID..]]), &value)?;
            }
            (keys::QUEUE, _) => match array::<ID>(&value, 0) {
                Some(event) => visit(&key, &[&time_of(&event)[..], &event].concat())?,
                None => damaged += 1,
            },
            _ => visit(&key, &value)?,
        }
    }
    Ok(damaged)
}

/// The value of a row; `None` if it is damaged.
fn value(tree: &sled::Db, key: &[u8], raw: &Value) -> io::Result<Option<Value>> {
    if keys::is_small(key) {
        return Ok(Some(raw.clone()));
    }
    match (raw.first(), array::<8>(raw, 1), array::<4>(raw, 9)) {
        (Some(&WHOLE), ..) => Ok(Some(raw.subslice(1, raw.len() - 1))),
        (Some(&HEAD), Some(generation), Some(count)) => {
            let mut value = Vec::new();
            for index in 0..u32::from_be_bytes(count) {
                match tree.get(keys::key(keys::PIECE, &[key, &generation, &index.to_be_bytes()]))? {
                    Some(piece) => value.extend_from_slice(&piece),
                    None => return Ok(None),
                }
            }
            Ok(Some(value.into()))
        }
        _ => Ok(None),
    }
}

fn array<const LENGTH: usize>(bytes: &[u8], at: usize) -> Option<[u8; LENGTH]> {
    bytes.get(at..at + LENGTH)?.try_into().ok()
}
