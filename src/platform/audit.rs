//! The audit log: every action with its actor and object, and every delivery that the service gave up.
//!
//! An entry is written in the same batch as the change it describes ([`Audit::record`]), so that neither is
//! ever on disk without the other. Keys are UUIDv7 and so sort by time; reading goes backwards from now.

use crate::{
    model::{event::Actor, id::AuditId, timestamp::Timestamp},
    platform::store::{Batch, Store, StoreError, keys},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Entries read for one page. A filter that matches almost nothing must not read the whole log in one request; the page
/// is then short, with a cursor to go on from.
const SCAN: usize = 10_000;

/// Time by which the clock of ids may run ahead of the entry's time: ids never go backwards, the machine's clock may.
const DRIFT: Duration = Duration::from_secs(60);

/// Entries deleted in one batch by [`Audit::purge`].
const PURGE: usize = 1_000;

/// The log. Cloning it is cheap.
#[derive(Clone)]
pub struct Audit {
    store: Store,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub id: AuditId,
    pub at: Timestamp,
    /// `None` when nobody could be named, as at a failed login.
    pub actor: Option<Actor>,
    /// The action, as `kind.verb`: `sink.create`, `login.failure`.
    pub action: String,
    /// The object of the action: a name or an id, whichever a reader would look for.
    pub object: String,
    /// Further facts: a JSON object, or null.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

/// Selects entries; the default selects all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// The actor's name or id.
    pub actor: Option<String>,
    /// The whole action, or its beginning as `sink.*`.
    pub action: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// Some entries of the log, newest first.
#[derive(Debug)]
pub struct AuditPage {
    pub entries: Vec<AuditEntry>,
    /// The cursor of the next page; `None` at the end of the log.
    pub next: Option<AuditId>,
}

impl Audit {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Puts `entry` into the batch of the change it describes.
    pub fn record(batch: &mut Batch<'_>, entry: &AuditEntry) {
        let value = serde_json::to_vec(entry).expect("an entry has string keys and no failing serializers");
        resize(batch, 0, value.len());
        batch.put(keys::key(keys::AUDIT, &[entry.id.as_bytes()]), value);
    }

    /// Writes an entry about an action that changed nothing on disk, without waiting for it.
    pub fn note(&self, entry: AuditEntry) {
        self.store.write_soon(move |batch| Self::record(batch, &entry));
    }

    /// Reads at most `limit` entries that pass `filter`, newest first, from `cursor` on.
    ///
    /// A page may be short, even empty, and still have a next one.
    ///
    /// # Errors
    ///
    /// Fails if the log cannot be read.
    pub async fn list(
        &self,
        filter: AuditFilter,
        cursor: Option<AuditId>,
        limit: usize,
    ) -> Result<AuditPage, StoreError> {
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || read(&store, &filter, cursor, limit))
            .await
            .unwrap_or(Err(StoreError::Closing))
    }

    /// Deletes the entries written before `limit`, then the oldest ones until the log has at most `bytes`, and returns how
    /// many entries it deleted.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read or written; entries deleted before that stay deleted.
    pub async fn purge(&self, limit: Timestamp, bytes: u64) -> Result<usize, StoreError> {
        let mut purged = 0;
        loop {
            let surplus = size(self.store.get(&[keys::AUDIT_BYTES])?.as_deref()).saturating_sub(bytes);
            let (mut old, mut freed) = (Vec::new(), 0);
            for entry in self.store.range(keys::key(keys::AUDIT, &[&[0; 16]])..vec![keys::AUDIT + 1]).take(PURGE) {
                let (key, value) = entry?;
                if *key >= *bound(limit) && freed as u64 >= surplus {
                    break;
                }
                freed += value.len();
                old.push(key);
            }
            let count = old.len();
            if count > 0 {
                let delete = move |batch: &mut Batch<'_>| {
                    resize(batch, freed, 0);
                    old.iter().for_each(|key| batch.delete(key.to_vec()));
                };
                self.store.write(delete).await?;
            }
            purged += count;
            if count < PURGE {
                return Ok(purged);
            }
        }
    }
}

impl AuditEntry {
    /// An action of `actor` at this moment.
    pub fn new(actor: Option<Actor>, action: &str, object: impl ToString) -> Self {
        let at = Timestamp::now();
        Self {
            id: AuditId::new(),
            at,
            actor,
            action: action.to_owned(),
            object: object.to_string(),
            detail: Value::Null,
        }
    }

    /// The same entry with further facts.
    #[must_use]
    pub fn with(self, detail: Value) -> Self {
        Self { detail, ..self }
    }
}

impl AuditFilter {
    fn passes(&self, entry: &AuditEntry) -> bool {
        let actor = |wanted: &String| {
            entry.actor.as_ref().is_some_and(|actor| actor.username == *wanted || actor.id.to_string() == *wanted)
        };
        let action = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => entry.action.starts_with(prefix),
            None => entry.action == *wanted,
        };
        self.actor.as_ref().is_none_or(actor)
            && self.action.as_ref().is_none_or(action)
            && self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at <= until)
    }
}

fn read(store: &Store, filter: &AuditFilter, cursor: Option<AuditId>, limit: usize) -> Result<AuditPage, StoreError> {
    let start = bound(filter.since.unwrap_or(Timestamp::from_micros(0)));
    let end = match (cursor, filter.until) {
        (Some(cursor), _) => keys::key(keys::AUDIT, &[cursor.as_bytes()]),
        (None, Some(until)) => bound(until.after(DRIFT)),
        (None, None) => vec![keys::AUDIT + 1],
    };
    let mut entries: Vec<AuditEntry> = Vec::new();
    let mut last = None;
    if end <= start {
        return Ok(AuditPage { entries, next: None });
    }
    for (seen, entry) in store.range(start..end).rev().enumerate() {
        if entries.len() == limit || seen == SCAN {
            return Ok(AuditPage { entries, next: last });
        }
        let (key, value) = entry?;
        let entry: AuditEntry = serde_json::from_slice(&value).map_err(|error| StoreError::damaged(&key, error))?;
        last = Some(entry.id);
        if filter.passes(&entry) {
            entries.push(entry);
        }
    }
    Ok(AuditPage { entries, next: None })
}

/// Updates the size of the log.
fn resize(batch: &mut Batch<'_>, gone: usize, come: usize) {
    let now = batch.get(&[keys::AUDIT_BYTES]).ok().flatten();
    let bytes = (size(now.as_deref()) + come as u64).saturating_sub(gone as u64);
    batch.put([keys::AUDIT_BYTES], bytes.to_be_bytes());
}

fn size(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| keys::number(value, 0)).unwrap_or(0)
}

/// The first key an entry of this moment can have: a UUIDv7 begins with its milliseconds in 48 bits.
fn bound(moment: Timestamp) -> Vec<u8> {
    let millis = u64::try_from(moment.micros().div_euclid(1_000)).unwrap_or(0).min((1 << 48) - 1);
    keys::key(keys::AUDIT, &[&millis.to_be_bytes()[2..]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::ActorKind;
    use serde_json::json;

    fn open() -> Audit {
        let directory = tempfile::TempDir::new().unwrap().keep();
        Audit::new(Store::open(&directory, 0, std::sync::Arc::default()).unwrap())
    }

    async fn close(audit: Audit) {
        let directory = audit.store.directory().to_owned();
        audit.store.close().await;
        std::fs::remove_dir_all(directory).unwrap();
    }

    fn actor(name: &str) -> Option<Actor> {
        Some(Actor { id: uuid::Uuid::now_v7(), username: name.to_owned(), kind: ActorKind::User })
    }

    async fn put(audit: &Audit, entry: &AuditEntry) {
        let entry = entry.clone();
        audit.store.write(move |batch| Audit::record(batch, &entry)).await.unwrap();
    }

    async fn actions(audit: &Audit, filter: AuditFilter) -> Vec<String> {
        audit.list(filter, None, 50).await.unwrap().entries.into_iter().map(|entry| entry.action).collect()
    }

    #[tokio::test]
    async fn entries_come_back_newest_first_page_by_page() {
        let audit = open();
        for number in 0..5 {
            put(&audit, &AuditEntry::new(None, "a.b", number)).await;
        }
        let first = audit.list(AuditFilter::default(), None, 3).await.unwrap();
        assert_eq!(first.entries.iter().map(|entry| entry.object.as_str()).collect::<Vec<_>>(), ["4", "3", "2"]);
        let second = audit.list(AuditFilter::default(), first.next, 3).await.unwrap();
        assert_eq!(second.entries.iter().map(|entry| entry.object.as_str()).collect::<Vec<_>>(), ["1", "0"]);
        assert_eq!(second.next, None);
        close(audit).await;
    }

    #[tokio::test]
    async fn a_page_that_ends_with_the_log_has_no_next() {
        let audit = open();
        put(&audit, &AuditEntry::new(None, "a.b", 1)).await;
        assert_eq!(audit.list(AuditFilter::default(), None, 1).await.unwrap().next, None);
        close(audit).await;
    }

    #[tokio::test]
    async fn filters_choose_by_actor_action_and_time() {
        let audit = open();
        let ada = actor("ada");
        put(&audit, &AuditEntry::new(ada.clone(), "sink.create", "s").with(json!({"type": "webhook"}))).await;
        put(&audit, &AuditEntry::new(actor("bob"), "sink.delete", "s")).await;
        put(&audit, &AuditEntry::new(None, "sinking", "s")).await;
        let filter = |change: fn(&mut AuditFilter)| {
            let mut filter = AuditFilter::default();
            change(&mut filter);
            filter
        };
        assert_eq!(actions(&audit, filter(|f| f.actor = Some("ada".into()))).await, ["sink.create"]);
        let by_id = AuditFilter { actor: Some(ada.unwrap().id.to_string()), ..AuditFilter::default() };
        assert_eq!(actions(&audit, by_id).await, ["sink.create"]);
        assert_eq!(actions(&audit, filter(|f| f.action = Some("sink.*".into()))).await, ["sink.delete", "sink.create"]);
        assert_eq!(actions(&audit, filter(|f| f.action = Some("sink.delete".into()))).await, ["sink.delete"]);
        assert_eq!(actions(&audit, filter(|f| f.since = Some(Timestamp::now().after(DRIFT)))).await, [""; 0]);
        assert_eq!(actions(&audit, filter(|f| f.until = Some(Timestamp::now()))).await.len(), 3);
        assert_eq!(actions(&audit, filter(|f| f.until = Some(Timestamp::from_micros(0)))).await, [""; 0]);
        close(audit).await;
    }

    #[tokio::test]
    async fn a_purge_deletes_only_older_entries() {
        let audit = open();
        for _ in 0..3 {
            put(&audit, &AuditEntry::new(None, "old.one", "x")).await;
        }
        let hour = Duration::from_secs(3600);
        assert_eq!(audit.purge(Timestamp::now().before(hour), u64::MAX).await.unwrap(), 0);
        assert_eq!(audit.purge(Timestamp::now().after(hour), u64::MAX).await.unwrap(), 3);
        assert_eq!(actions(&audit, AuditFilter::default()).await, [""; 0]);
        close(audit).await;
    }

    #[tokio::test]
    async fn a_log_that_takes_too_much_room_loses_its_oldest_entries() {
        let audit = open();
        for number in 0..5 {
            put(&audit, &AuditEntry::new(None, "a.b", number)).await;
        }
        let all = size(audit.store.get(&[keys::AUDIT_BYTES]).unwrap().as_deref());
        let long_ago = Timestamp::from_micros(0);
        assert_eq!(audit.purge(long_ago, all).await.unwrap(), 0);
        assert_eq!(audit.purge(long_ago, all * 3 / 5).await.unwrap(), 2);
        let left = audit.list(AuditFilter::default(), None, 9).await.unwrap().entries;
        assert_eq!(left.iter().map(|entry| entry.object.as_str()).collect::<Vec<_>>(), ["4", "3", "2"]);
        close(audit).await;
    }
}
