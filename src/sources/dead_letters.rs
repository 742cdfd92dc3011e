//! Dead letters of sources: verified requests that did not become events, on disk until they are redelivered.
//!
//! Each source keeps a bounded number of them, and of bytes; the oldest make room for new ones. They are deleted with
//! their source.

use super::{records::Sources, source::Source, transform::VerifiedRequest};
use crate::{
    model::{
        id::{SourceId, SourceLetterId},
        timestamp::Timestamp,
    },
    platform::{
        collection::Change,
        store::{Store, StoreError, keys},
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// The most bytes of the letters of one source.
const MAX_BYTES: usize = 4 << 20;

/// The letters of all sources. Cloning the handle is cheap.
#[derive(Clone)]
pub struct DeadLetters {
    store: Store,
    /// The most letters of one source.
    most: usize,
    kept: Arc<Mutex<HashMap<SourceId, VecDeque<KeptLetter>>>>,
}

struct KeptLetter {
    id: SourceLetterId,
    bytes: usize,
    delivery_id: Option<String>,
}

/// A letter, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceLetter {
    pub id: SourceLetterId,
    pub received_at: Timestamp,
    /// The reason of the last failure, and what the transform printed then.
    pub why: String,
    #[serde(default)]
    pub log: Vec<String>,
    pub delivery_id: Option<String>,
    pub headers: Vec<(String, String)>,
    pub query: Vec<(String, String)>,
    body: LetterBody,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LetterBody {
    Text(String),
    /// A body that is no text.
    Base64(String),
}

impl DeadLetters {
    /// Reads which letters there are. Those of sources that `exists` denies are deleted.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, most: usize, exists: impl Fn(SourceId) -> bool) -> Result<Self, StoreError> {
        let mut kept = HashMap::<SourceId, VecDeque<KeptLetter>>::new();
        let mut orphans = Vec::new();
        for entry in store.scan(&[keys::SOURCE_LETTERS]) {
            let (key, value) = entry?;
            let ids =
                key.get(1..17).and_then(SourceId::from_slice).zip(key.get(17..).and_then(SourceLetterId::from_slice));
            match ids {
                Some((source, id)) if exists(source) => {
                    // A damaged letter is noticed when it is read.
                    let delivery_id =
                        serde_json::from_slice::<SourceLetter>(&value).ok().and_then(|letter| letter.delivery_id);
                    kept.entry(source).or_default().push_back(KeptLetter { id, bytes: value.len(), delivery_id });
                }
                _ => orphans.push(key),
            }
        }
        if !orphans.is_empty() {
            store.write_soon(move |batch| orphans.iter().for_each(|key| batch.delete(key.to_vec())));
        }
        Ok(Self { store, most, kept: Arc::new(Mutex::new(kept)) })
    }

    /// Deletes the letters of each source that is deleted from now on.
    pub fn follow(&self, sources: &Sources) {
        let letters = self.clone();
        sources.listen(move |change| {
            if let Change::Deleted(source) = change {
                letters.delete_all(source.id);
            }
        });
    }

    /// Keeps a request, and deletes the oldest letters if there are too many then. It is on disk afterwards. A delivery
    /// that is kept already is not kept twice, so that a repeated one does not push others out.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written. Nothing is kept then.
    pub async fn keep(
        &self,
        source: &Source,
        request: &VerifiedRequest,
        why: String,
        log: Vec<String>,
    ) -> Result<SourceLetterId, StoreError> {
        if let Some(known) = self.of_delivery(source.id, request.delivery_id.as_deref()) {
            return Ok(known);
        }
        let letter = SourceLetter::new(request, why, log);
        let (source_id, id) = (source.id, letter.id);
        let value = serde_json::to_vec(&letter).expect("texts are JSON");
        let new = KeptLetter { id, bytes: value.len(), delivery_id: letter.delivery_id };
        let dropped = self.make_room(source_id, new);
        if !dropped.is_empty() {
            log::warn!(
                "source `{}`: {} dead letters are deleted to make room for a new one",
                source.slug,
                dropped.len()
            );
        }
        let written = self.store.write(move |batch| {
            dropped.iter().for_each(|old| batch.delete(key(source_id, old.id)));
            batch.put(key(source_id, id), value);
        });
        let written = written.await;
        if written.is_err() {
            self.forget(source_id, id);
        }
        written.map(|()| id)
    }

    /// Replaces the reason of a letter that failed again. A letter that is gone meanwhile stays gone.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn fail_again(&self, source: SourceId, letter: SourceLetter) -> Result<(), StoreError> {
        let key = key(source, letter.id);
        let value = serde_json::to_vec(&letter).expect("texts are JSON");
        self.store
            .write(move |batch| {
                if batch.get(&key).is_ok_and(|found| found.is_some()) {
                    batch.put(key, value);
                }
            })
            .await
    }

    /// Up to `limit` letters of a source, oldest first, beginning after `cursor`. A damaged one is left out.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn page(
        &self,
        source: SourceId,
        cursor: Option<SourceLetterId>,
        limit: usize,
    ) -> Result<Vec<SourceLetter>, StoreError> {
        let ids: Vec<_> = self.ids(source).into_iter().filter(|id| cursor.is_none_or(|cursor| *id > cursor)).collect();
        let mut letters = Vec::new();
        for id in ids {
            if letters.len() == limit {
                break;
            }
            letters.extend(self.get(source, id)?);
        }
        Ok(letters)
    }

    /// A letter; `None` if it is gone or damaged.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn get(&self, source: SourceId, id: SourceLetterId) -> Result<Option<SourceLetter>, StoreError> {
        let key = key(source, id);
        match self.store.get(&key) {
            Ok(value) => Ok(value.and_then(|value| match serde_json::from_slice(&value) {
                Ok(letter) => Some(letter),
                Err(error) => {
                    log::error!("{}", StoreError::damaged(&key, error));
                    None
                }
            })),
            Err(error @ StoreError::Damaged { .. }) => {
                log::error!("{error}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The ids of a source's letters, oldest first.
    pub fn ids(&self, source: SourceId) -> Vec<SourceLetterId> {
        self.kept.lock().get(&source).map(|kept| kept.iter().map(|letter| letter.id).collect()).unwrap_or_default()
    }

    pub fn count(&self, source: SourceId) -> usize {
        self.kept.lock().get(&source).map_or(0, VecDeque::len)
    }

    /// Deletes a letter that was redelivered. It is off the disk afterwards.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn delete(&self, source: SourceId, id: SourceLetterId) -> Result<(), StoreError> {
        self.store.write(move |batch| batch.delete(key(source, id))).await?;
        self.forget(source, id);
        Ok(())
    }

    /// Deletes the letters of a source that is gone.
    pub fn delete_all(&self, source: SourceId) {
        let Some(kept) = self.kept.lock().remove(&source) else { return };
        self.store.write_soon(move |batch| kept.iter().for_each(|letter| batch.delete(key(source, letter.id))));
    }

    /// The letter of a delivery. One that is being written counts only once it is on disk.
    fn of_delivery(&self, source: SourceId, delivery_id: Option<&str>) -> Option<SourceLetterId> {
        let delivery_id = delivery_id?;
        let kept = self.kept.lock();
        let letter = kept.get(&source)?.iter().find(|letter| letter.delivery_id.as_deref() == Some(delivery_id))?;
        let id = letter.id;
        drop(kept);
        self.get(source, id).ok().flatten().map(|letter| letter.id)
    }

    /// Adds a letter to the list, and returns those that it pushes out.
    fn make_room(&self, source: SourceId, new: KeptLetter) -> Vec<KeptLetter> {
        let mut kept = self.kept.lock();
        let letters = kept.entry(source).or_default();
        letters.push_back(new);
        let mut bytes: usize = letters.iter().map(|letter| letter.bytes).sum();
        let mut dropped = Vec::new();
        while letters.len() > 1
            && (letters.len() > self.most || bytes > MAX_BYTES)
            && let Some(oldest) = letters.pop_front()
        {
            bytes -= oldest.bytes;
            dropped.push(oldest);
        }
        dropped
    }

    fn forget(&self, source: SourceId, id: SourceLetterId) {
        if let Some(letters) = self.kept.lock().get_mut(&source) {
            letters.retain(|letter| letter.id != id);
        }
    }
}

impl SourceLetter {
    fn new(request: &VerifiedRequest, why: String, log: Vec<String>) -> Self {
        let body = match std::str::from_utf8(&request.body) {
            Ok(text) => LetterBody::Text(text.to_owned()),
            Err(_) => LetterBody::Base64(STANDARD.encode(&request.body)),
        };
        Self {
            id: SourceLetterId::new(),
            received_at: Timestamp::now(),
            why,
            log,
            delivery_id: request.delivery_id.clone(),
            headers: request.headers.clone(),
            query: request.query.clone(),
            body,
        }
    }

    /// The letter with the reason of its last failure.
    pub fn failed_again(self, why: String, log: Vec<String>) -> Self {
        Self { why, log, ..self }
    }

    /// The request that was kept. Without an id of the provider it has that of the letter, so that a redelivery that
    /// ended halfway stores nothing twice.
    pub fn request(&self) -> VerifiedRequest {
        let body = match &self.body {
            LetterBody::Text(text) => text.clone().into_bytes(),
            LetterBody::Base64(encoded) => STANDARD.decode(encoded).unwrap_or_default(),
        };
        VerifiedRequest {
            headers: self.headers.clone(),
            query: self.query.clone(),
            body: body.into(),
            delivery_id: Some(self.delivery_id.clone().unwrap_or_else(|| self.id.to_string())),
        }
    }

    /// The body as text; bytes that are no text are replaced.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.request().body).into_owned()
    }
}

fn key(source: SourceId, letter: SourceLetterId) -> Vec<u8> {
    keys::key(keys::SOURCE_LETTERS, &[source.as_bytes(), letter.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::UserId;
    use serde_json::json;

    fn source() -> Source {
        let spec = json!({"slug": "a", "verify": {"type": "none", "insecure": true}});
        Source::define(serde_json::from_value(spec).unwrap(), UserId::new(), None).unwrap()
    }

    fn request(delivery_id: Option<&str>, body: &[u8]) -> VerifiedRequest {
        VerifiedRequest {
            headers: vec![("x-a".to_owned(), "1".to_owned())],
            query: Vec::new(),
            body: body.to_vec().into(),
            delivery_id: delivery_id.map(str::to_owned),
        }
    }

    async fn keep(letters: &DeadLetters, source: &Source, request: &VerifiedRequest) -> SourceLetterId {
        letters.keep(source, request, "why".to_owned(), vec!["line".to_owned()]).await.unwrap()
    }

    #[tokio::test]
    async fn letters_are_bounded_in_number_and_in_bytes_and_are_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let letters = DeadLetters::open(store.clone(), 3, |_| true).unwrap();
        let source = source();
        let mut ids = Vec::new();
        for n in 0..5 {
            ids.push(keep(&letters, &source, &request(None, &[n])).await);
        }
        assert_eq!(letters.ids(source.id), ids[2..]);
        let oldest = letters.get(source.id, ids[2]).unwrap().unwrap();
        assert_eq!(oldest.request().delivery_id, Some(ids[2].to_string()), "without an id it has that of the letter");
        let large = keep(&letters, &source, &request(None, &vec![b'x'; MAX_BYTES - 1000])).await;
        let larger = keep(&letters, &source, &request(None, &vec![b'x'; MAX_BYTES * 2])).await;
        assert_eq!(letters.ids(source.id), [larger], "the newest is kept, whatever its size");
        assert!(letters.get(source.id, large).unwrap().is_none());
        let binary = keep(&letters, &source, &request(Some("d"), b"\xff\x00")).await;
        let again = DeadLetters::open(store.clone(), 3, |_| true).unwrap();
        let [letter] = &again.page(source.id, Some(larger), 9).unwrap()[..] else { panic!("one letter is left") };
        assert_eq!((letter.id, letter.why.as_str(), &letter.log[..]), (binary, "why", &["line".to_owned()][..]));
        assert_eq!(&letter.request().body[..], b"\xff\x00");
        assert_eq!(letter.request().delivery_id.as_deref(), Some("d"));
        assert_eq!(keep(&again, &source, &request(Some("d"), b"again")).await, binary, "a delivery is kept once");
        assert_eq!(again.count(source.id), letters.count(source.id));
        store.close().await;
    }

    #[tokio::test]
    async fn letters_go_with_their_source_also_if_it_went_while_they_were_not_looked_after() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let letters = DeadLetters::open(store.clone(), 3, |_| true).unwrap();
        let (one, other) = (source(), source());
        keep(&letters, &one, &request(None, b"1")).await;
        keep(&letters, &other, &request(None, b"2")).await;
        letters.delete_all(one.id);
        // Writes are made in order, so this one waits for the deletion.
        store.write(|_| ()).await.unwrap();
        let again = DeadLetters::open(store.clone(), 3, |id| id != other.id).unwrap();
        assert_eq!((again.count(one.id), again.count(other.id)), (0, 0));
        store.close().await;
        assert_eq!(store.scan(&[keys::SOURCE_LETTERS]).count(), 0);
    }
}
