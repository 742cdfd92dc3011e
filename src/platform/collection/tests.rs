//! The contract of a collection, on records that are a name and a namespace.

use super::{ATTEMPTS, Change, Changes, Collection, CollectionError, CollectionRecord, Edit, Precondition};
use crate::platform::store::{Store, StoreError, Table, keys};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    cell::RefCell,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    id: Uuid,
    namespace: u8,
    name: String,
    text: String,
}

#[derive(Debug, thiserror::Error)]
#[error("the texts of a namespace have at most 8 bytes together")]
struct TooLong;

thread_local! {
    /// Called once, when a change made on this thread next reads the key of a note.
    static ON_KEY: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

impl CollectionRecord for Note {
    type Id = Uuid;
    type Namespace = u8;
    type Refusal = TooLong;

    const TABLE: Table<Self> = Table::new(keys::TEMPLATES);

    fn id(&self) -> Uuid {
        self.id
    }

    fn key(&self) -> Vec<u8> {
        if let Some(called) = ON_KEY.take() {
            called();
        }
        self.id.as_bytes().to_vec()
    }

    fn namespace(&self) -> u8 {
        self.namespace
    }

    fn name(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(&self.name)
    }

    fn is_counted(&self) -> bool {
        self.namespace != 0
    }

    fn check(&self, others: &mut dyn Iterator<Item = &Self>) -> Result<(), TooLong> {
        let bytes = self.text.len() + others.map(|other| other.text.len()).sum::<usize>();
        if bytes > 8 { Err(TooLong) } else { Ok(()) }
    }
}

fn note(namespace: u8, name: &str) -> Note {
    Note { id: Uuid::now_v7(), namespace, name: name.to_owned(), text: String::new() }
}

fn open(directory: &TempDir, quota: usize) -> (Store, Collection<Note>) {
    let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
    (store.clone(), Collection::open(store, quota).unwrap())
}

async fn put(notes: &Collection<Note>, record: Note, expected: Precondition) -> Result<(), CollectionError<Note>> {
    notes.commit(Changes::new().put(record, expected)).await.map(drop)
}

/// Lists the changes of a collection in the order in which a listener gets them.
fn record_changes(notes: &Collection<Note>) -> Arc<Mutex<Vec<String>>> {
    let received = Arc::new(Mutex::new(Vec::new()));
    let list = received.clone();
    notes.listen(move |change| {
        list.lock().push(match change {
            Change::Created(new) => format!("+{}", new.name),
            Change::Updated { before, after } => format!("{}>{}", before.name, after.name),
            Change::Deleted(old) => format!("-{}", old.name),
        });
    });
    received
}

#[tokio::test]
async fn names_are_unique_within_a_namespace_and_free_again_after_a_rename_or_delete() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 10);
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    notes.create(note(2, "a"), |_| ()).await.unwrap();
    let taken = notes.create(note(1, "a"), |_| ()).await;
    assert!(matches!(&taken, Err(CollectionError::NameTaken(other)) if other.id == first.id), "{taken:?}");
    let renamed = Note { name: "b".to_owned(), ..Note::clone(&first) };
    put(&notes, renamed, Precondition::Present).await.unwrap();
    assert!(notes.find(1, "a").is_none());
    assert_eq!(notes.find(1, "b").unwrap().id, first.id);
    notes.create(note(1, "a"), |_| ()).await.unwrap();
    notes.delete(first.id, |_| ()).await.unwrap();
    notes.create(note(1, "b"), |_| ()).await.unwrap();
    let names: Vec<_> = notes.in_namespace(1).iter().map(|note| note.name.clone()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn of_many_creations_at_once_one_takes_the_name_and_the_quota_holds() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 3);
    let create = |notes: &Collection<Note>, record: Note| {
        let notes = notes.clone();
        tokio::spawn(async move { notes.create(record, |_| ()).await.is_ok() })
    };
    let same = futures_util::future::join_all((0..16).map(|_| create(&notes, note(1, "x")))).await;
    assert_eq!(same.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 1);
    let many = futures_util::future::join_all((0..16).map(|n| create(&notes, note(1, &format!("n{n}"))))).await;
    assert_eq!(many.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 2);
    assert!(matches!(notes.create(note(1, "y"), |_| ()).await, Err(CollectionError::QuotaReached(3))));
    for n in 0..5 {
        notes.create(note(0, &format!("n{n}")), |_| ()).await.unwrap();
    }
    // A record that moves into a full namespace is refused, one that stays in it is not.
    let moved = Note { namespace: 1, ..Note::clone(&notes.find(0, "n0").unwrap()) };
    let moved = put(&notes, Note { name: "z".to_owned(), ..moved }, Precondition::Present).await;
    assert!(matches!(moved, Err(CollectionError::QuotaReached(3))), "{moved:?}");
    let stays = Note { name: "z".to_owned(), ..Note::clone(&notes.find(1, "x").unwrap()) };
    put(&notes, stays, Precondition::Present).await.unwrap();
}

#[tokio::test]
async fn rules_of_the_kind_see_the_records_that_are_being_written() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 100);
    let creations = (0..16).map(|n| {
        let notes = notes.clone();
        let record = Note { text: "1234".to_owned(), ..note(1, &format!("n{n}")) };
        tokio::spawn(async move { notes.create(record, |_| ()).await.is_ok() })
    });
    let made = futures_util::future::join_all(creations).await;
    assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 2);
    let refused = notes.create(Note { text: "1".to_owned(), ..note(1, "x") }, |_| ()).await;
    assert!(matches!(refused, Err(CollectionError::Refused(TooLong))), "{refused:?}");
}

#[tokio::test]
async fn a_change_to_a_record_that_is_not_as_expected_is_refused() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 10);
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    let (_, revision) = notes.get_revision(first.id).unwrap();
    let edited = |text: &str| Note { text: text.to_owned(), ..Note::clone(&first) };
    put(&notes, edited("1"), Precondition::Revision(revision)).await.unwrap();
    let late = put(&notes, edited("2"), Precondition::Revision(revision)).await;
    assert!(matches!(late, Err(CollectionError::Conflict(id)) if id == first.id), "{late:?}");
    assert!(matches!(notes.create(edited("3"), |_| ()).await, Err(CollectionError::Conflict(_))));
    assert_eq!(notes.get(first.id).unwrap().text, "1");
    // All of a change is refused for one record of it.
    let other = note(1, "b");
    let both =
        Changes::new().put(other.clone(), Precondition::Absent).delete(first.id, Precondition::Revision(revision));
    assert!(matches!(notes.commit(both).await, Err(CollectionError::Conflict(_))));
    assert!(notes.get(other.id).is_none() && notes.get(first.id).is_some());
    notes.create(other, |_| ()).await.unwrap();
    notes.delete(first.id, |_| ()).await.unwrap();
    assert!(matches!(notes.delete(first.id, |_| ()).await, Err(CollectionError::NotFound(_))));
    let gone = put(&notes, edited("4"), Precondition::Present).await;
    assert!(matches!(gone, Err(CollectionError::NotFound(_))), "{gone:?}");
}

/// Adds one to the number in a note's text.
fn counted(before: &Note) -> Note {
    let count: u32 = before.text.parse().unwrap_or_default();
    Note { text: (count + 1).to_string(), ..before.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_edit_of_many_at_once_is_lost() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 10);
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    let edits = (0..40).map(|_| {
        let (notes, id) = (notes.clone(), first.id);
        tokio::spawn(async move {
            notes.edit(id, |before| ready(Ok::<_, TooLong>(Edit::put(counted(&before))))).await.unwrap().unwrap()
        })
    });
    futures_util::future::join_all(edits).await;
    assert_eq!(notes.get(first.id).unwrap().text, "40");
}

#[tokio::test]
async fn an_edit_that_another_change_overtook_is_decided_again_on_the_record_as_it_has_become() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 10);
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    let decisions = AtomicU32::new(0);
    let edited = notes.edit(first.id, |before| {
        let (notes, overtaken) = (&notes, decisions.fetch_add(1, Ordering::Relaxed) == 0);
        async move {
            if overtaken {
                let renamed = Note { name: "b".to_owned(), ..Note::clone(&before) };
                notes.commit(Changes::new().put(renamed, Precondition::Present)).await.unwrap();
            }
            Ok::<_, TooLong>(Edit::put(counted(&before)))
        }
    });
    let edited = edited.await.unwrap().unwrap();
    assert_eq!((edited.name.as_str(), edited.text.as_str()), ("b", "1"), "neither change is lost");
    assert_eq!(notes.get(first.id), Some(edited));
    assert_eq!(decisions.into_inner(), 2);
}

#[tokio::test]
async fn an_edit_that_is_overtaken_every_time_fails_in_the_end() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 10);
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    let decisions = AtomicU32::new(0);
    let edited = notes.edit(first.id, |before| {
        let (notes, number) = (&notes, decisions.fetch_add(1, Ordering::Relaxed));
        async move {
            let renamed = Note { name: format!("n{number}"), ..Note::clone(&before) };
            notes.commit(Changes::new().put(renamed, Precondition::Present)).await.unwrap();
            Ok::<_, TooLong>(Edit::put(counted(&before)))
        }
    });
    let edited = edited.await;
    assert!(matches!(edited, Err(CollectionError::Conflict(id)) if id == first.id), "{edited:?}");
    assert_eq!(decisions.into_inner(), ATTEMPTS);
    assert_eq!(notes.get(first.id).unwrap().text, "");
}

#[tokio::test]
async fn an_edit_can_delete_the_record_and_one_that_is_refused_changes_nothing() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 10);
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    let refused = notes.edit(first.id, |_| ready(Err(TooLong))).await;
    assert!(matches!(refused, Ok(Err(TooLong))), "{refused:?}");
    assert_eq!(notes.get(first.id).as_ref(), Some(&first));
    let deleted = notes.edit(first.id, |_| ready(Ok::<_, TooLong>(Edit::delete()))).await.unwrap().unwrap();
    assert_eq!(deleted, first);
    let gone = notes.edit(first.id, |_| ready(Ok::<_, TooLong>(Edit::delete()))).await;
    assert!(matches!(gone, Err(CollectionError::NotFound(_))), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_committed_soon_cannot_be_taken_before_it_is_in_memory() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 10);
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    let (begin, begun) = mpsc::channel();
    let other = notes.clone();
    let taken = tokio::task::spawn_blocking(move || {
        begun.recv().unwrap();
        tokio::runtime::Handle::current().block_on(other.create(note(1, "b"), |_| ()))
    });
    // The former key is read between the reservation of the name and the change in memory. By then another thread asks
    // for the name, and is the first to get the lock.
    let asked = notes.clone();
    ON_KEY.set(Some(Box::new(move || {
        begin.send(()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !asked.has_waiting_writer() {
            assert!(Instant::now() < deadline, "nobody asks for the name");
            std::thread::yield_now();
        }
    })));
    let renamed = Note { name: "b".to_owned(), ..Note::clone(&first) };
    notes.commit_soon(Changes::new().put(renamed, Precondition::Present)).await.unwrap();
    let taken = taken.await.unwrap();
    assert!(matches!(&taken, Err(CollectionError::NameTaken(other)) if other.id == first.id), "{taken:?}");
}

#[tokio::test]
async fn one_change_can_pass_a_name_from_one_record_to_another() {
    let directory = TempDir::new().unwrap();
    let (store, notes) = open(&directory, 1);
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    let received = record_changes(&notes);
    let second = note(1, "a");
    let swap = Changes::new().delete(first.id, Precondition::Present).put(second.clone(), Precondition::Absent);
    notes.commit(swap).await.unwrap();
    assert_eq!(*received.lock(), ["-a", "+a"]);
    assert_eq!(notes.find(1, "a").as_deref(), Some(&second));
    store.close().await;
    drop((store, notes));
    let (store, notes) = open(&directory, 1);
    assert_eq!(notes.all(), [Arc::new(second)]);
    store.close().await;
}

#[tokio::test]
async fn every_listener_gets_every_change_in_order_before_the_caller_returns() {
    let directory = TempDir::new().unwrap();
    let (_, notes) = open(&directory, 100);
    notes.listen(|_| panic!("a listener of somebody else"));
    let (one, two) = (record_changes(&notes), record_changes(&notes));
    let (memory, unseen) = (notes.clone(), Arc::new(Mutex::new(0)));
    let count = unseen.clone();
    notes.listen(move |change| {
        *count.lock() += usize::from(memory.get(change.record().id).as_deref() != change.sides().1);
    });
    let first = notes.create(note(1, "a"), |_| ()).await.unwrap();
    assert_eq!(*one.lock(), ["+a"], "received before the change's caller returns");
    let edits = (0..20).map(|n| {
        let (notes, record) = (notes.clone(), Note { name: format!("n{n}"), ..Note::clone(&first) });
        tokio::spawn(async move { put(&notes, record, Precondition::Present).await.unwrap() })
    });
    futures_util::future::join_all(edits).await;
    notes.delete(first.id, |_| ()).await.unwrap();
    let received = one.lock().clone();
    assert_eq!(received, *two.lock());
    assert_eq!(received.len(), 22);
    // The record before each change is the record after the previous one.
    let mut name = "a".to_owned();
    for change in &received[1..21] {
        let (before, after) = change.split_once('>').unwrap();
        assert_eq!(before, name);
        name = after.to_owned();
    }
    assert_eq!(received[21], format!("-{name}"));
    assert_eq!(*unseen.lock(), 0, "a change is in memory when it is received of");
}

#[tokio::test]
async fn a_change_whose_caller_goes_away_is_made_and_reported_to_listeners() {
    let directory = TempDir::new().unwrap();
    let (store, notes) = open(&directory, 10);
    let received = record_changes(&notes);
    let record = note(1, "a");
    let mut create = Box::pin(notes.create(record.clone(), |batch| batch.put(b"za", b"1")));
    assert!(futures_util::poll!(&mut create).is_pending());
    drop(create);
    let deadline = Instant::now() + Duration::from_secs(60);
    while received.lock().is_empty() {
        assert!(Instant::now() < deadline, "no listener is called");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(*received.lock(), ["+a"]);
    assert_eq!(notes.get(record.id).as_deref(), Some(&record));
    assert!(store.get(b"za").unwrap().is_some(), "its other writes are in the same batch");
}

#[tokio::test]
async fn a_change_that_the_store_refuses_leaves_memory_as_it_was_and_releases_the_name() {
    let directory = TempDir::new().unwrap();
    let (store, notes) = open(&directory, 2);
    let kept = notes.create(note(1, "kept"), |_| ()).await.unwrap();
    let received = record_changes(&notes);
    store.close().await;
    // Each name is tried twice: the second refusal comes from the store again, since the name was not taken.
    for _ in 0..2 {
        let refused = notes.create(note(1, "x"), |_| ()).await;
        assert!(matches!(refused, Err(CollectionError::Store(StoreError::Closing))), "{refused:?}");
        let renamed = Note { name: "new".to_owned(), ..Note::clone(&kept) };
        let refused = put(&notes, renamed, Precondition::Present).await;
        assert!(matches!(refused, Err(CollectionError::Store(_))), "{refused:?}");
        assert!(matches!(notes.delete(kept.id, |_| ()).await, Err(CollectionError::Store(_))));
    }
    assert_eq!(notes.all(), std::slice::from_ref(&kept));
    assert_eq!(notes.find(1, "kept"), Some(kept));
    assert!(received.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_at_once_leave_memory_disk_and_listeners_in_agreement() {
    let directory = TempDir::new().unwrap();
    let (store, notes) = open(&directory, 5);
    let ids: Vec<Uuid> = (0..12).map(|_| Uuid::now_v7()).collect();
    // A listener that keeps a copy of the collection from the changes alone.
    let copy = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
    let followed = copy.clone();
    notes.listen(move |change| {
        let mut copy = followed.lock();
        match change {
            Change::Created(new) => assert!(copy.insert(new.id, new.clone()).is_none()),
            Change::Updated { before, after } => {
                assert_eq!(copy.insert(after.id, after.clone()).as_ref(), Some(before))
            }
            Change::Deleted(old) => assert_eq!(copy.remove(&old.id).as_ref(), Some(old)),
        }
    });
    let writers = (0..8_usize).map(|writer| {
        let (notes, ids) = (notes.clone(), ids.clone());
        tokio::spawn(async move {
            let mut random = writer * 7919 + 1;
            for _ in 0..150 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (id, namespace) = (ids[(random >> 33) % ids.len()], ((random >> 40) % 2 + 1) as u8);
                let name = format!("n{}", (random >> 45) % 6);
                let record = Note { id, namespace, name, text: String::new() };
                let changes = match (random >> 50) % 4 {
                    0 => Changes::new().delete(id, Precondition::Present),
                    1 => Changes::new().put(record, Precondition::Present),
                    2 => match notes.get_revision(id) {
                        Some((_, revision)) => Changes::new().put(record, Precondition::Revision(revision)),
                        None => Changes::new().put(record, Precondition::Absent),
                    },
                    _ => Changes::new().put(record, Precondition::Absent),
                };
                let _ = notes.commit(changes).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let all = notes.all();
    for namespace in [1, 2] {
        let names: Vec<_> = notes.in_namespace(namespace).iter().map(|note| note.name.clone()).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert!(names.len() <= 5);
        assert_eq!(names.len(), all.iter().filter(|note| note.namespace == namespace).count());
    }
    assert_eq!(copy.lock().values().cloned().collect::<Vec<_>>(), all);
    store.close().await;
    drop((store, notes));
    let (store, notes) = open(&directory, 5);
    assert_eq!(notes.all(), all);
    store.close().await;
}
