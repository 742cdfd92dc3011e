//! The audit log: every action with its actor and object, and every delivery that the service gave up.
//!
//! An entry is written in the same batch as the change it describes ([`Audit::record`]), so that neither is
//! ever on disk without the other. Keys are UUIDv7 and so sort by time; reading goes backwards from now. A damaged
//! entry is left out of pages and deleted in its time.
//!
//! The log has two rooms, each with a bound of its own: one for the entries of administrators, and one for all others.
//! So nobody else can push an administrator's entries out, however many entries they cause.

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
    #[serde(default, skip_serializing_if = "AuditRoom::is_ordinary")]
    pub room: AuditRoom,
}

/// The room of the log that an entry takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditRoom {
    #[default]
    Ordinary,
    /// Entries of actions that need a permission to administer the service.
    Administrative,
}

/// Bytes of the two rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditSizes {
    pub ordinary: u64,
    pub administrative: u64,
}

/// The part of an entry that says which room it takes.
#[derive(Default, Deserialize)]
struct EntryRoom {
    #[serde(default)]
    room: AuditRoom,
}

/// Entries to delete, as one step of a purge found them.
struct Purgeable {
    keys: Vec<Vec<u8>>,
    freed: AuditSizes,
    /// The key to go on from; `None` at the end.
    next: Option<Vec<u8>>,
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
        resize(batch, AuditSizes::default(), AuditSizes::default().plus(entry.room, value.len()));
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

    /// Deletes the entries written before `limit`, then the oldest ones of each room until it has at most its part of
    /// `most`, and returns how many entries it deleted.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read or written; entries deleted before that stay deleted.
    pub async fn purge(&self, limit: Timestamp, most: AuditSizes) -> Result<usize, StoreError> {
        let mut purged = 0;
        let mut from = keys::key(keys::AUDIT, &[&[0; 16]]);
        loop {
            let surplus = self.sizes().await?.beyond(most);
            let store = self.store.clone();
            let scan = tokio::task::spawn_blocking(move || purgeable(&store, from, limit, surplus));
            let Purgeable { keys, freed, next } = scan.await.unwrap_or(Err(StoreError::Closing))?;
            if !keys.is_empty() {
                purged += keys.len();
                let delete = move |batch: &mut Batch<'_>| {
                    resize(batch, freed, AuditSizes::default());
                    keys.into_iter().for_each(|key| batch.delete(key));
                };
                self.store.write(delete).await?;
            }
            match next {
                Some(next) => from = next,
                None => return Ok(purged),
            }
        }
    }

    /// The sizes of the rooms: as they were counted, or counted anew if those numbers are damaged.
    async fn sizes(&self) -> Result<AuditSizes, StoreError> {
        match readable(self.store.get(&[keys::AUDIT_BYTES]))?.map(|value| AuditSizes::of_stored(value.as_deref())) {
            Some(Some(sizes)) => Ok(sizes),
            Some(None) | None => {
                self.store.write(|batch| resize(batch, AuditSizes::default(), AuditSizes::default())).await
            }
        }
    }
}

impl AuditRoom {
    const fn is_ordinary(&self) -> bool {
        matches!(self, Self::Ordinary)
    }
}

impl AuditSizes {
    /// The sizes as they are stored; `None` for another form, as older versions and repairs write it.
    fn of_stored(value: Option<&[u8]>) -> Option<Self> {
        let Some(value) = value else { return Some(Self::default()) };
        if value.len() != 16 {
            return None;
        }
        Some(Self { ordinary: keys::number(value, 0)?, administrative: keys::number(value, 8)? })
    }

    fn to_stored(self) -> [u8; 16] {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.ordinary.to_be_bytes());
        value[8..].copy_from_slice(&self.administrative.to_be_bytes());
        value
    }

    const fn of(&self, room: AuditRoom) -> u64 {
        match room {
            AuditRoom::Ordinary => self.ordinary,
            AuditRoom::Administrative => self.administrative,
        }
    }

    #[must_use]
    const fn plus(mut self, room: AuditRoom, bytes: usize) -> Self {
        match room {
            AuditRoom::Ordinary => self.ordinary += bytes as u64,
            AuditRoom::Administrative => self.administrative += bytes as u64,
        }
        self
    }

    /// The bytes of each room that are more than `most`.
    const fn beyond(self, most: Self) -> Self {
        Self {
            ordinary: self.ordinary.saturating_sub(most.ordinary),
            administrative: self.administrative.saturating_sub(most.administrative),
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
            room: AuditRoom::Ordinary,
        }
    }

    /// The same entry in this room.
    #[must_use]
    pub fn in_room(self, room: AuditRoom) -> Self {
        Self { room, ..self }
    }

    /// Another entry of the same action, for a step that is made now.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { id: AuditId::new(), at: Timestamp::now(), ..self.clone() }
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

/// The room and length of an entry; length zero if it is damaged or absent.
fn place(read: Result<Option<Bytes>, StoreError>) -> Result<(AuditRoom, usize), StoreError> {
    let Some(value) = readable(read)?.flatten() else { return Ok((AuditRoom::Ordinary, 0)) };
    let EntryRoom { room } = serde_json::from_slice(&value).unwrap_or_default();
    Ok((room, value.len()))
}

/// One step of a purge: the entries from `from` on that are older than `limit`, or that are the oldest of a room with a
/// surplus.
fn purgeable(store: &Store, from: Vec<u8>, limit: Timestamp, surplus: AuditSizes) -> Result<Purgeable, StoreError> {
    let (old, mut found) = (bound(limit), Purgeable { keys: Vec::new(), freed: AuditSizes::default(), next: None });
    for key in store.keys(from..vec![keys::AUDIT + 1]) {
        let key = key?;
        let is_old = *key < *old;
        let left = surplus.beyond(found.freed);
        if !is_old && left == AuditSizes::default() {
            return Ok(found);
        }
        if found.keys.len() == PURGE {
            found.next = Some(key.to_vec());
            return Ok(found);
        }
        let (room, length) = place(store.get(&key))?;
        if is_old || left.of(room) > 0 {
            found.freed = found.freed.plus(room, length);
            found.keys.push(key.to_vec());
        }
    }
    Ok(found)
}

/// Updates the sizes of the rooms and returns them. Damaged sizes are counted anew; unreadable ones stay as they are,
/// and the group is not written then.
fn resize(batch: &mut Batch<'_>, gone: AuditSizes, come: AuditSizes) -> AuditSizes {
    let now = match batch.get(&[keys::AUDIT_BYTES]) {
        Err(StoreError::Damaged { .. }) => count(batch),
        read => AuditSizes::of_stored(read.ok().flatten().as_deref()).unwrap_or_else(|| count(batch)),
    };
    let sizes = AuditSizes {
        ordinary: (now.ordinary + come.ordinary).saturating_sub(gone.ordinary),
        administrative: (now.administrative + come.administrative).saturating_sub(gone.administrative),
    };
    batch.put([keys::AUDIT_BYTES], sizes.to_stored());
    sizes
}

/// Counts the bytes of all entries.
fn count(batch: &Batch<'_>) -> AuditSizes {
    log::info!("the entries of the audit log are counted");
    let entries = batch.keys(&[keys::AUDIT]).filter_map(Result::ok);
    entries.fold(AuditSizes::default(), |sizes, key| {
        let (room, length) = place(batch.get(&key)).unwrap_or((AuditRoom::Ordinary, 0));
        sizes.plus(room, length)
    })
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

    const NO_BOUND: AuditSizes = AuditSizes { ordinary: u64::MAX, administrative: u64::MAX };

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
        assert_eq!(audit.purge(Timestamp::now().before(hour), NO_BOUND).await.unwrap(), 0);
        assert_eq!(audit.purge(Timestamp::now().after(hour), NO_BOUND).await.unwrap(), 3);
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
        assert_eq!(audit.purge(Timestamp::from_micros(0), NO_BOUND).await.unwrap(), 0);
        assert_eq!(audit.purge(Timestamp::now().after(DRIFT), NO_BOUND).await.unwrap(), 4);
        assert_eq!(audit.store.keys(vec![keys::AUDIT]..vec![keys::AUDIT + 1]).count(), 0);
        close(audit).await;
    }

    #[tokio::test]
    async fn damaged_sizes_and_those_of_an_older_form_are_counted_anew() {
        let audit = open();
        for number in 0..5 {
            put(&audit, &AuditEntry::new(None, "a.b", number)).await;
        }
        put(&audit, &AuditEntry::new(None, "a.b", 5).in_room(AuditRoom::Administrative)).await;
        let all = audit.sizes().await.unwrap();
        assert!(all.ordinary > 0 && all.administrative > 0, "{all:?}");
        audit.store.damage(&[keys::AUDIT_BYTES]);
        put(&audit, &AuditEntry::new(None, "a.b", 5)).await;
        let more = AuditSizes { ordinary: all.ordinary / 5 * 6, ..all };
        assert_eq!(audit.sizes().await.unwrap(), more);
        audit.store.write(|batch| batch.put([keys::AUDIT_BYTES], 7_u64.to_be_bytes())).await.unwrap();
        assert_eq!(audit.sizes().await.unwrap(), more);
        audit.store.damage(&[keys::AUDIT_BYTES]);
        assert_eq!(audit.purge(Timestamp::from_micros(0), all).await.unwrap(), 1);
        close(audit).await;
    }

    #[tokio::test]
    async fn a_room_that_is_full_loses_its_own_oldest_entries() {
        let audit = open();
        let room = |number| if number % 2 == 0 { AuditRoom::Ordinary } else { AuditRoom::Administrative };
        for number in 0..10 {
            put(&audit, &AuditEntry::new(None, "a.b", number).in_room(room(number))).await;
        }
        let (all, long_ago) = (audit.sizes().await.unwrap(), Timestamp::from_micros(0));
        assert_eq!(audit.purge(long_ago, all).await.unwrap(), 0);
        let most = AuditSizes { ordinary: all.ordinary * 2 / 5, ..all };
        assert_eq!(audit.purge(long_ago, most).await.unwrap(), 3);
        let left = async || {
            let left = audit.list(AuditFilter::default(), None, 99).await.unwrap().entries;
            left.into_iter().map(|entry| entry.object).collect::<Vec<_>>()
        };
        assert_eq!(left().await, ["9", "8", "7", "6", "5", "3", "1"]);
        assert_eq!(audit.sizes().await.unwrap(), most);
        let none = AuditSizes { ordinary: u64::MAX, administrative: 0 };
        assert_eq!(audit.purge(long_ago, none).await.unwrap(), 5);
        assert_eq!(left().await, ["8", "6"]);
        close(audit).await;
    }

    #[tokio::test]
    async fn ordinary_entries_push_no_administrative_one_out() {
        let audit = open();
        put(&audit, &AuditEntry::new(None, "user.delete", "ada").in_room(AuditRoom::Administrative)).await;
        let flood = |batch: &mut Batch<'_>| {
            (0..2_500).for_each(|number| Audit::record(batch, &AuditEntry::new(None, "login.failure", number)));
        };
        audit.store.write(flood).await.unwrap();
        let most = AuditSizes { ordinary: 1_000, administrative: 1_000 };
        assert!(audit.purge(Timestamp::from_micros(0), most).await.unwrap() > 2_400);
        assert!(audit.sizes().await.unwrap().ordinary <= 1_000);
        let filter = AuditFilter { action: Some("user.*".to_owned()), ..AuditFilter::default() };
        assert_eq!(actions(&audit, filter).await, ["user.delete"]);
        close(audit).await;
    }
}
