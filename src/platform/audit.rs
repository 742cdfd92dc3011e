//! The audit log: every action with its actor and object, and every delivery that the service gave up.
//!
//! An entry is written in the same batch as the change it describes ([`Audit::record`]), so that neither is
//! ever on disk without the other. Keys are UUIDv7 and so sort by time; reading goes backwards from now. A damaged entry is
//! left out of pages and deleted in its time.

use crate::{
    model::{event::Actor, id::AuditId, timestamp::Timestamp},
    platform::store::{Batch, Store, StoreError, Value as Bytes, keys, readable},
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
            let surplus = self.bytes().await?.saturating_sub(bytes);
            let (mut old, mut freed) = (Vec::new(), 0);
            for key in self.store.keys(keys::key(keys::AUDIT, &[&[0; 16]])..vec![keys::AUDIT + 1]).take(PURGE) {
                let key = key?;
                if *key >= *bound(limit) && freed as u64 >= surplus {
                    break;
                }
                freed += length(self.store.get(&key))?;
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

    /// The size of the log: as it was counted, or counted anew if that number is damaged.
    async fn bytes(&self) -> Result<u64, StoreError> {
        match readable(self.store.get(&[keys::AUDIT_BYTES]))? {
            Some(value) => Ok(size(value.as_deref())),
            None => self.store.write(|batch| resize(batch, 0, 0)).await,
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
    let (mut last, mut damaged) = (None, 0);
    if end <= start {
        return Ok(AuditPage { entries, next: None });
    }
    let mut next = None;
    for (seen, key) in store.keys(start..end).rev().enumerate() {
        if entries.len() == limit || seen == SCAN {
            next = last;
            break;
        }
        let key = key?;
        last = AuditId::from_slice(&key[1..]).or(last);
        match readable(decode(&key, store.get(&key)))? {
            Some(Some(entry)) if filter.passes(&entry) => entries.push(entry),
            // Absent if it was deleted between the two reads.
            Some(_) => {}
            None => damaged += 1,
        }
    }
    if damaged > 0 {
        log::warn!("{damaged} damaged entries of the audit log are left out");
    }
    Ok(AuditPage { entries, next })
}

fn decode(key: &[u8], read: Result<Option<Bytes>, StoreError>) -> Result<Option<AuditEntry>, StoreError> {
    let Some(value) = read? else { return Ok(None) };
    serde_json::from_slice(&value).map(Some).map_err(|error| StoreError::damaged(key, error))
}

/// The length of a value; zero if it is damaged or absent.
fn length(read: Result<Option<Bytes>, StoreError>) -> Result<usize, StoreError> {
    Ok(readable(read)?.flatten().map_or(0, |value| value.len()))
}

/// Updates the size of the log and returns it. A damaged size is counted anew; an unreadable one stays as it is, and the
/// group is not written then.
fn resize(batch: &mut Batch<'_>, gone: usize, come: usize) -> u64 {
    let now = match batch.get(&[keys::AUDIT_BYTES]) {
        Err(StoreError::Damaged { .. }) => count(batch),
        read => size(read.ok().flatten().as_deref()),
    };
    let bytes = (now + come as u64).saturating_sub(gone as u64);
    batch.put([keys::AUDIT_BYTES], bytes.to_be_bytes());
    bytes
}

/// Counts the bytes of all entries.
fn count(batch: &Batch<'_>) -> u64 {
    log::warn!("the size of the audit log is damaged and counted anew");
    let entries = batch.keys(&[keys::AUDIT]).filter_map(Result::ok);
    entries.map(|key| length(batch.get(&key)).unwrap_or(0) as u64).sum()
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
    async fn a_damaged_entry_is_left_out_of_pages_and_purged_in_its_time() {
        let audit = open();
        let entries: Vec<_> = (0..4).map(|number| AuditEntry::new(None, "a.b", number)).collect();
        for entry in &entries {
            put(&audit, entry).await;
        }
        for entry in [&entries[1], &entries[3]] {
            audit.store.damage(&keys::key(keys::AUDIT, &[entry.id.as_bytes()]));
        }
        let first = audit.list(AuditFilter::default(), None, 1).await.unwrap();
        assert_eq!(first.entries, [entries[2].clone()]);
        let second = audit.list(AuditFilter::default(), first.next, 9).await.unwrap();
        assert_eq!((second.entries, second.next), (vec![entries[0].clone()], None));
        assert_eq!(audit.purge(Timestamp::from_micros(0), u64::MAX).await.unwrap(), 0);
        assert_eq!(audit.purge(Timestamp::now().after(DRIFT), u64::MAX).await.unwrap(), 4);
        assert_eq!(audit.store.keys(vec![keys::AUDIT]..vec![keys::AUDIT + 1]).count(), 0);
        close(audit).await;
    }

    #[tokio::test]
    async fn a_damaged_size_of_the_log_is_counted_anew() {
        let audit = open();
        for number in 0..5 {
            put(&audit, &AuditEntry::new(None, "a.b", number)).await;
        }
        let all = audit.bytes().await.unwrap();
        audit.store.damage(&[keys::AUDIT_BYTES]);
        put(&audit, &AuditEntry::new(None, "a.b", 5)).await;
        assert_eq!(audit.bytes().await.unwrap(), all / 5 * 6);
        audit.store.damage(&[keys::AUDIT_BYTES]);
        assert_eq!(audit.purge(Timestamp::from_micros(0), all).await.unwrap(), 1);
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
