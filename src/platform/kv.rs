//! The key-value store of scripts: small durable JSON values under short keys, separate for each owner.
//!
//! A value is stored as its expiry (microseconds since 1970, big-endian, 0 for never) and its JSON. An
//! expired value reads as absent at once and leaves the disk with the next [`Kv::purge`]. Every change
//! runs as one job on the store's writer, so that `add` and `increment` need no lock to be atomic.
//!
//! A damaged value fails its readers. It can be set anew and deleted, and stays in the way of nothing else.

use crate::{
    model::{owner::Owner, timestamp::Timestamp, units::Size},
    platform::store::{Batch, Store, StoreError, keys, readable},
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 256;

/// The largest value, in bytes of JSON.
pub const MAX_VALUE: usize = 64 << 10;

/// Keys an owner can have, expired ones included until they are purged.
pub const MAX_KEYS: usize = 10_000;

/// Bytes of keys and values that an owner can have, unless [`Kv::limited_to`] sets another limit.
const MAX_BYTES: u64 = 16 << 20;

/// The largest number that an increment counts to: all up to it are exact as numbers of Lua.
const MAX_COUNT: u64 = 1 << 53;

/// Values that a purge reads before it deletes those that have expired and goes on.
const PURGE_STEP: usize = 10_000;

/// A full owner's expired keys are looked for at most this often: the search runs on the writer.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The key-value store of every owner. Cloning it is cheap.
#[derive(Clone)]
pub struct Kv {
    store: Store,
    /// Bytes of keys and values that each owner can have.
    max_bytes: u64,
    counts: Arc<Mutex<HashMap<Owner, KeyCount>>>,
    /// Damaged values that the last purge found, so that they are logged once.
    damaged: Arc<AtomicUsize>,
}

/// The number of keys of an owner and the size of all, kept so that the limits cost no scan.
#[derive(Default)]
struct KeyCount {
    keys: usize,
    /// Bytes of keys and values. A damaged value counts as empty.
    bytes: u64,
    swept: Option<Instant>,
}

impl KeyCount {
    fn removed(&mut self, bytes: u64) {
        // Saturating, because a panic on the writer would stop the store for everyone.
        self.keys = self.keys.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Reason for which a value was not read or changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KvError {
    #[error("a key has at most {MAX_KEY} bytes; this one has {0}")]
    KeyTooLong(usize),
    #[error("a value has at most {MAX_VALUE} bytes of JSON; this one has {0}")]
    ValueTooLarge(usize),
    #[error("there are {MAX_KEYS} keys already: delete some, or give them a time to live")]
    TooManyKeys,
    #[error(
        "the keys and values would take more than {limit} (on a server `limits.kv`): delete some, or give them a time to live",
        limit = Size(*.0)
    )]
    TooManyBytes(u64),
    #[error("the value under `{0}` is no integer, or would grow past 2^53")]
    NotAnInteger(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Kv {
    /// Opens the values kept in `store` and counts each owner's keys.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn new(store: Store) -> Result<Self, StoreError> {
        let mut counts = HashMap::<Owner, KeyCount>::new();
        for key in store.keys(vec![keys::KV]..vec![keys::KV + 1]) {
            let key = key?;
            if let Some(owner) = owner_of(&key) {
                let count = counts.entry(owner).or_default();
                count.keys += 1;
                count.bytes += size(&key, readable(store.get(&key))?.flatten().as_deref());
            }
        }
        Ok(Self { store, max_bytes: MAX_BYTES, counts: Arc::new(Mutex::new(counts)), damaged: Arc::default() })
    }

    /// Limits the keys and values of each owner to this many bytes.
    #[must_use]
    pub fn limited_to(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    /// The value under `key`, unless it is absent or expired.
    ///
    /// # Errors
    ///
    /// Fails if the key is too long or the store cannot be read.
    pub fn get(&self, owner: Owner, key: &str) -> Result<Option<Box<RawValue>>, KvError> {
        let value = self.store.get(&store_key(owner, key)?)?;
        Ok(value.and_then(|value| KvEntry::read(&value, Timestamp::now())?.json()))
    }

    /// Puts `value` under `key`, over the previous one, for `ttl` or for good.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if a limit is passed or the store cannot be written.
    pub async fn set(
        &self,
        owner: Owner,
        key: &str,
        value: Box<RawValue>,
        ttl: Option<Duration>,
    ) -> Result<(), KvError> {
        let value = checked(value)?;
        self.change(owner, key, move |change| {
            change.put(&value, expiry(change.now, ttl))?;
            Ok(())
        })
        .await
    }

    /// Puts `value` under `key` only if there is none, and returns true if it did. Of several callers that add the
    /// same key at once, one gets `true`.
    ///
    /// # Errors
    ///
    /// Fails as [`Kv::set`] does.
    pub async fn add(
        &self,
        owner: Owner,
        key: &str,
        value: Box<RawValue>,
        ttl: Option<Duration>,
    ) -> Result<bool, KvError> {
        let value = checked(value)?;
        self.change(owner, key, move |change| {
            if change.current()?.is_some() {
                return Ok(false);
            }
            change.put(&value, expiry(change.now, ttl))?;
            Ok(true)
        })
        .await
    }

    /// Adds `by` to the integer under `key` and returns the sum. An absent value counts as 0 and lives for `ttl`; an
    /// existing one keeps its expiry.
    ///
    /// # Errors
    ///
    /// Fails as [`Kv::set`] does, and if the present value is no integer.
    pub async fn increment(&self, owner: Owner, key: &str, by: i64, ttl: Option<Duration>) -> Result<i64, KvError> {
        let name = key.to_owned();
        self.change(owner, key, move |change| {
            let (value, expires) = match change.current()? {
                Some(stored) => (stored.integer(), stored.expires),
                None => (Some(0), expiry(change.now, ttl)),
            };
            let sum = value.and_then(|value| value.checked_add(by)).filter(|sum| sum.unsigned_abs() <= MAX_COUNT);
            let sum = sum.ok_or(KvError::NotAnInteger(name))?;
            change.put(sum.to_string().as_bytes(), expires)?;
            Ok(sum)
        })
        .await
    }

    /// Removes `key`, and returns true if it was there.
    ///
    /// # Errors
    ///
    /// Fails if the key is too long or the store cannot be written.
    pub async fn delete(&self, owner: Owner, key: &str) -> Result<bool, KvError> {
        self.change(owner, key, |change| {
            // A damaged value is there, whatever it was.
            let there = readable(change.current())?.is_none_or(|value| value.is_some());
            change.delete()?;
            Ok(there)
        })
        .await
    }

    /// Removes every expired value from the disk and returns how many there were. To be called periodically. The
    /// expiry of a damaged value is unknown, so it stays.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read or written.
    pub async fn purge(&self) -> Result<usize, StoreError> {
        let now = Timestamp::now();
        let (mut purged, mut damaged, mut from) = (0, 0, Some(vec![keys::KV]));
        while let Some(start) = from {
            let store = self.store.clone();
            let scan = tokio::task::spawn_blocking(move || scan_expired(&store, start, PURGE_STEP, now));
            let scanned = scan.await.unwrap_or(Err(StoreError::Closing))?;
            damaged += scanned.damaged;
            purged += self.delete_expired(scanned.expired, now).await?;
            from = scanned.next;
        }
        if self.damaged.swap(damaged, Relaxed) < damaged {
            log::warn!("{damaged} stored values of scripts are damaged: they can be set anew or deleted");
        }
        Ok(purged)
    }

    async fn delete_expired(&self, expired: Vec<Vec<u8>>, now: Timestamp) -> Result<usize, StoreError> {
        if expired.is_empty() {
            return Ok(0);
        }
        let counts = self.counts.clone();
        self.store
            .write(move |batch| {
                let mut counts = counts.lock();
                let mut purged = 0;
                for key in expired {
                    // It may have been set anew since the scan.
                    let Some(value) = readable(batch.get(&key))?.flatten() else { continue };
                    let Some(owner) = owner_of(&key) else { continue };
                    if KvEntry::read(&value, now).is_none() {
                        batch.delete(&*key);
                        purged += 1;
                        counts.entry(owner).or_default().removed(size(&key, Some(&value)));
                    }
                }
                Ok(purged)
            })
            .await?
    }

    /// Removes all values of an owner who has been deleted, and returns how many there were.
    ///
    /// # Errors
    ///
    /// Fails, and removes nothing, if the store cannot be read or written.
    pub async fn forget(&self, owner: Owner) -> Result<usize, StoreError> {
        let counts = self.counts.clone();
        self.store
            .write(move |batch| {
                let forgotten = batch.delete_prefix(&keys::key(keys::KV, &[&owner.key()]))?;
                counts.lock().remove(&owner);
                Ok(forgotten)
            })
            .await?
    }

    /// Owners who have values, or had some since the start.
    pub fn owners(&self) -> Vec<Owner> {
        self.counts.lock().keys().copied().collect()
    }

    async fn change<T: Send + 'static>(
        &self,
        owner: Owner,
        key: &str,
        job: impl FnOnce(&mut KvChange<'_, '_>) -> Result<T, KvError> + Send + 'static,
    ) -> Result<T, KvError> {
        let key = store_key(owner, key)?;
        let Self { store, max_bytes, counts, .. } = self.clone();
        self.store
            .write(move |batch| {
                let mut counts = counts.lock();
                let count = counts.entry(owner).or_default();
                job(&mut KvChange { store, batch, owner, key, count, max_bytes, now: Timestamp::now() })
            })
            .await?
    }
}

/// A step of a purge.
struct ScannedValues {
    expired: Vec<Vec<u8>>,
    damaged: usize,
    /// The key at which the next step begins; `None` after the last one.
    next: Option<Vec<u8>>,
}

/// Reads at most `most` values.
fn scan_expired(store: &Store, from: Vec<u8>, most: usize, now: Timestamp) -> Result<ScannedValues, StoreError> {
    let mut scanned = ScannedValues { expired: Vec::new(), damaged: 0, next: None };
    for (read, key) in store.keys(from..vec![keys::KV + 1]).enumerate() {
        let key = key?;
        if read == most {
            scanned.next = Some(key.to_vec());
            break;
        }
        match readable(store.get(&key))? {
            Some(Some(value)) if KvEntry::read(&value, now).is_none() => scanned.expired.push(key.to_vec()),
            Some(_) => {}
            None => scanned.damaged += 1,
        }
    }
    Ok(scanned)
}

/// One change, on the writer thread.
struct KvChange<'a, 'b> {
    store: Store,
    batch: &'a mut Batch<'b>,
    owner: Owner,
    key: Vec<u8>,
    count: &'a mut KeyCount,
    max_bytes: u64,
    now: Timestamp,
}

impl KvChange<'_, '_> {
    /// The value under the key, unless it has expired.
    fn current(&self) -> Result<Option<KvEntry>, StoreError> {
        Ok(self.batch.get(&self.key)?.and_then(|value| KvEntry::read(&value, self.now)))
    }

    /// The size of the key and its value, also of one that has expired or is damaged; `None` if there is none.
    fn taken(&self) -> Result<Option<u64>, StoreError> {
        let value = readable(self.batch.get(&self.key))?;
        Ok(value.map_or(Some(None), |value| value.map(Some)).map(|value| size(&self.key, value.as_deref())))
    }

    fn put(&mut self, json: &[u8], expires: i64) -> Result<(), KvError> {
        let mut value = Vec::with_capacity(8 + json.len());
        value.extend_from_slice(&expires.to_be_bytes());
        value.extend_from_slice(json);
        let (taken, new) = (self.taken()?, size(&self.key, Some(&value)));
        let mut refusal = self.refusal(taken, new);
        if refusal.is_some() {
            self.sweep()?;
            // The sweep may have deleted an expired value under this key too.
            refusal = self.refusal(self.taken()?, new);
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let taken = self.taken()?;
        if new > taken.unwrap_or(0) {
            self.store.check_room()?;
        }
        self.count.keys += usize::from(taken.is_none());
        self.count.bytes = (self.count.bytes + new).saturating_sub(taken.unwrap_or(0));
        self.batch.put(self.key.clone(), value);
        Ok(())
    }

    /// The limit that a key and value of `new` bytes would pass, in place of one of `taken` bytes. A smaller value is
    /// never refused.
    fn refusal(&self, taken: Option<u64>, new: u64) -> Option<KvError> {
        if taken.is_none() && self.count.keys >= MAX_KEYS {
            return Some(KvError::TooManyKeys);
        }
        let grows = new > taken.unwrap_or(0);
        let bytes = (self.count.bytes + new).saturating_sub(taken.unwrap_or(0));
        if grows && bytes > self.max_bytes {
            return Some(KvError::TooManyBytes(self.max_bytes));
        }
        None
    }

    fn delete(&mut self) -> Result<(), StoreError> {
        if let Some(bytes) = self.taken()? {
            self.batch.delete(self.key.clone());
            self.count.removed(bytes);
        }
        Ok(())
    }

    /// Deletes the owner's expired keys, unless that was just done.
    fn sweep(&mut self) -> Result<(), StoreError> {
        if self.count.swept.is_some_and(|swept| swept.elapsed() < SWEEP_EVERY) {
            return Ok(());
        }
        self.count.swept = Some(Instant::now());
        let prefix = keys::key(keys::KV, &[&self.owner.key()]);
        let found = self.batch.keys(&prefix).collect::<Result<Vec<_>, _>>()?;
        for key in found {
            let Some(value) = readable(self.batch.get(&key))?.flatten() else { continue };
            if KvEntry::read(&value, self.now).is_none() {
                self.batch.delete(&*key);
                self.count.removed(size(&key, Some(&value)));
            }
        }
        Ok(())
    }
}

/// A value as it is stored.
struct KvEntry {
    /// Microseconds since 1970; 0 for never.
    expires: i64,
    json: String,
}

impl KvEntry {
    /// Reads a value; `None` if it has expired.
    fn read(value: &[u8], now: Timestamp) -> Option<Self> {
        let (expires, json) = value.split_first_chunk::<8>()?;
        let expires = i64::from_be_bytes(*expires);
        if expires != 0 && expires <= now.micros() {
            return None;
        }
        Some(Self { expires, json: String::from_utf8(json.to_vec()).ok()? })
    }

    fn json(self) -> Option<Box<RawValue>> {
        RawValue::from_string(self.json).ok()
    }

    fn integer(&self) -> Option<i64> {
        self.json.parse().ok()
    }
}

/// Checks a key, for callers that reach the store through an agent.
///
/// # Errors
///
/// Fails if it is too long.
pub const fn check_key(key: &str) -> Result<(), KvError> {
    match key.len() > MAX_KEY {
        true => Err(KvError::KeyTooLong(key.len())),
        false => Ok(()),
    }
}

/// Checks a value, for callers that reach the store through an agent.
///
/// # Errors
///
/// Fails if it is too large.
pub fn check_value(value: &RawValue) -> Result<(), KvError> {
    match value.get().len() > MAX_VALUE {
        true => Err(KvError::ValueTooLarge(value.get().len())),
        false => Ok(()),
    }
}

/// The bytes that a key and its value count for.
fn size(key: &[u8], value: Option<&[u8]>) -> u64 {
    (key.len() + value.map_or(0, <[u8]>::len)) as u64
}

fn store_key(owner: Owner, key: &str) -> Result<Vec<u8>, KvError> {
    check_key(key)?;
    Ok(keys::key(keys::KV, &[&owner.key(), key.as_bytes()]))
}

fn checked(value: Box<RawValue>) -> Result<Vec<u8>, KvError> {
    check_value(&value)?;
    Ok(String::from(Box::<str>::from(value)).into_bytes())
}

fn expiry(now: Timestamp, ttl: Option<Duration>) -> i64 {
    ttl.map_or(0, |ttl| now.after(ttl).micros())
}

/// The owner in a store key, the reverse of [`Owner::key`].
fn owner_of(key: &[u8]) -> Option<Owner> {
    match key.get(1)? {
        0 => Some(Owner::Global),
        _ => crate::model::id::UserId::from_slice(key.get(2..18)?).map(Owner::User),
    }
}

#[cfg(test)]
mod tests;
