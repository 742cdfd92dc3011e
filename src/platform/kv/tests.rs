//! Tests of the key-value store.

use super::*;
use crate::model::id::UserId;
use tempfile::TempDir;

/// An empty key-value store in a directory of its own.
struct KvDirectory {
    directory: TempDir,
    kv: Kv,
}

impl KvDirectory {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let kv = Kv::new(Store::open(directory.path(), 0, Arc::default()).unwrap()).unwrap();
        Self { directory, kv }
    }

    async fn end(self) {
        self.kv.store.close().await;
    }
}

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn text(value: Option<Box<RawValue>>) -> Option<String> {
    value.map(|value| value.get().to_owned())
}

#[tokio::test]
async fn a_value_is_its_owners_alone_and_survives_reopening() {
    let KvDirectory { directory, kv } = KvDirectory::new();
    let user = Owner::User(UserId::new());
    kv.set(user, "k", json(r#"{"a":9007199254740993}"#), None).await.unwrap();
    assert_eq!(text(kv.get(Owner::Global, "k").unwrap()), None);
    kv.store.close().await;
    drop(kv);
    let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
    let kv = Kv::new(store).unwrap();
    assert_eq!(text(kv.get(user, "k").unwrap()).as_deref(), Some(r#"{"a":9007199254740993}"#));
    assert_eq!(kv.counts.lock()[&user].keys, 1);
    assert!(kv.delete(user, "k").await.unwrap());
    assert!(!kv.delete(user, "k").await.unwrap());
    assert_eq!(text(kv.get(user, "k").unwrap()), None);
    KvDirectory { directory, kv }.end().await;
}

#[tokio::test]
async fn the_bytes_of_an_owner_are_limited_and_deleted_and_expired_ones_are_free_again() {
    let KvDirectory { directory, kv } = KvDirectory::new();
    let kv = kv.limited_to(3000);
    let large = || json(&format!("\"{}\"", "x".repeat(1000)));
    let (user, other) = (Owner::User(UserId::new()), Owner::User(UserId::new()));
    kv.set(user, "a", large(), None).await.unwrap();
    kv.set(user, "b", large(), Some(Duration::ZERO)).await.unwrap();
    kv.set(user, "c", large(), None).await.unwrap();
    let refused = kv.set(user, "d", large(), None).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the keys and values would take more than 3000B (on a server `limits.kv`): delete some, or give them a time to live"
    );
    assert_eq!(kv.counts.lock()[&user].keys, 2, "the expired one made room, and not enough");
    kv.set(other, "d", large(), None).await.unwrap();
    kv.set(user, "a", json("1"), None).await.unwrap();
    kv.set(user, "d", large(), None).await.unwrap();
    assert!(kv.delete(user, "c").await.unwrap());
    kv.set(user, "e", large(), None).await.unwrap();
    let counted = kv.counts.lock()[&user].bytes;
    kv.store.close().await;
    drop(kv);
    let kv = Kv::new(Store::open(directory.path(), 0, Arc::default()).unwrap()).unwrap();
    assert_eq!(kv.counts.lock()[&user].bytes, counted, "counted anew at the next start");
    KvDirectory { directory, kv }.end().await;
}

#[tokio::test]
async fn a_damaged_value_fails_its_readers_only_and_can_be_set_anew_and_deleted() {
    let KvDirectory { directory, kv } = KvDirectory::new();
    for key in ["bad", "worse"] {
        kv.set(Owner::Global, key, json("1"), Some(Duration::from_secs(600))).await.unwrap();
        kv.store.damage(&store_key(Owner::Global, key).unwrap());
    }
    kv.set(Owner::Global, "gone", json("1"), Some(Duration::ZERO)).await.unwrap();
    kv.set(Owner::Global, "stays", json("1"), None).await.unwrap();
    let damaged = |read: Result<_, KvError>| matches!(read, Err(KvError::Store(StoreError::Damaged { .. })));
    assert!(damaged(kv.get(Owner::Global, "bad").map(drop)));
    assert!(damaged(kv.add(Owner::Global, "bad", json("2"), None).await.map(drop)));
    assert!(damaged(kv.increment(Owner::Global, "bad", 1, None).await.map(drop)));
    assert_eq!(kv.purge().await.unwrap(), 1, "the expired value behind the damaged ones");
    assert_eq!(kv.purge().await.unwrap(), 0);
    kv.store.close().await;
    drop(kv);
    let kv = Kv::new(Store::open(directory.path(), 0, Arc::default()).unwrap()).unwrap();
    assert_eq!(kv.counts.lock()[&Owner::Global].keys, 3);
    kv.set(Owner::Global, "bad", json("3"), None).await.unwrap();
    assert_eq!(text(kv.get(Owner::Global, "bad").unwrap()).as_deref(), Some("3"));
    assert!(kv.delete(Owner::Global, "worse").await.unwrap());
    assert_eq!(kv.counts.lock()[&Owner::Global].keys, 2);
    KvDirectory { directory, kv }.end().await;
}

#[tokio::test]
async fn a_full_owner_makes_room_past_a_damaged_value() {
    let opened = KvDirectory::new();
    let kv = &opened.kv;
    kv.set(Owner::Global, "a", json("1"), None).await.unwrap();
    kv.store.damage(&store_key(Owner::Global, "a").unwrap());
    kv.set(Owner::Global, "short-lived", json("1"), Some(Duration::ZERO)).await.unwrap();
    kv.counts.lock().get_mut(&Owner::Global).unwrap().keys = MAX_KEYS;
    kv.set(Owner::Global, "takes its place", json("1"), None).await.unwrap();
    opened.end().await;
}

#[tokio::test]
async fn of_many_that_add_the_same_key_one_succeeds() {
    let opened = KvDirectory::new();
    let adds = (0..50).map(|_| {
        let kv = opened.kv.clone();
        tokio::spawn(async move { kv.add(Owner::Global, "once", json("true"), None).await.unwrap() })
    });
    let mut first = 0;
    for add in adds.collect::<Vec<_>>() {
        first += usize::from(add.await.unwrap());
    }
    assert_eq!(first, 1);
    opened.end().await;
}

#[tokio::test]
async fn an_expired_value_reads_as_absent_can_be_added_again_and_is_purged() {
    let opened = KvDirectory::new();
    let kv = &opened.kv;
    kv.set(Owner::Global, "gone", json("1"), Some(Duration::ZERO)).await.unwrap();
    kv.set(Owner::Global, "again", json("1"), Some(Duration::ZERO)).await.unwrap();
    kv.set(Owner::Global, "stays", json("1"), Some(Duration::from_secs(600))).await.unwrap();
    assert_eq!(text(kv.get(Owner::Global, "gone").unwrap()), None);
    assert!(kv.add(Owner::Global, "again", json("2"), None).await.unwrap());
    assert_eq!(kv.purge().await.unwrap(), 1);
    assert_eq!(kv.purge().await.unwrap(), 0);
    assert_eq!(text(kv.get(Owner::Global, "again").unwrap()).as_deref(), Some("2"));
    assert_eq!(text(kv.get(Owner::Global, "stays").unwrap()).as_deref(), Some("1"));
    assert_eq!(kv.counts.lock()[&Owner::Global].keys, 2);
    opened.end().await;
}

#[tokio::test]
async fn increments_add_up_and_refuse_a_value_that_is_no_integer() {
    let opened = KvDirectory::new();
    let kv = &opened.kv;
    assert_eq!(kv.increment(Owner::Global, "n", 2, None).await.unwrap(), 2);
    assert_eq!(kv.increment(Owner::Global, "n", -5, None).await.unwrap(), -3);
    let most = 1 << 53;
    assert_eq!(kv.increment(Owner::Global, "n", most + 3, None).await.unwrap(), most);
    for value in [most, -most, i64::MAX, i64::MIN] {
        kv.set(Owner::Global, "n", json(&value.to_string()), None).await.unwrap();
        let past = kv.increment(Owner::Global, "n", value.signum(), None).await;
        assert!(matches!(past, Err(KvError::NotAnInteger(key)) if key == "n"), "{value}");
    }
    kv.set(Owner::Global, "n", json("\"x\""), None).await.unwrap();
    assert!(matches!(kv.increment(Owner::Global, "n", 1, None).await, Err(KvError::NotAnInteger(_))));
    opened.end().await;
}

#[tokio::test]
async fn forgetting_an_owner_removes_only_its_values_and_makes_room() {
    let opened = KvDirectory::new();
    let kv = &opened.kv;
    let (gone, stays) = (Owner::User(UserId::new()), Owner::User(UserId::new()));
    for (owner, key) in [(gone, "a"), (gone, "b"), (stays, "a"), (Owner::Global, "a")] {
        kv.set(owner, key, json("1"), None).await.unwrap();
    }
    assert_eq!(kv.forget(gone).await.unwrap(), 2);
    assert_eq!(kv.forget(gone).await.unwrap(), 0);
    assert_eq!(text(kv.get(gone, "a").unwrap()), None);
    for owner in [stays, Owner::Global] {
        assert_eq!(text(kv.get(owner, "a").unwrap()).as_deref(), Some("1"));
    }
    assert!(!kv.counts.lock().contains_key(&gone));
    opened.end().await;
}

#[tokio::test]
async fn limits_hold_and_a_full_owner_makes_room_by_deleting_expired_keys() {
    let opened = KvDirectory::new();
    let kv = &opened.kv;
    let long = "k".repeat(MAX_KEY + 1);
    assert!(matches!(kv.get(Owner::Global, &long), Err(KvError::KeyTooLong(257))));
    let large = json(&format!("\"{}\"", "v".repeat(MAX_VALUE)));
    assert!(matches!(kv.set(Owner::Global, "k", large, None).await, Err(KvError::ValueTooLarge(_))));
    kv.set(Owner::Global, "short-lived", json("1"), Some(Duration::ZERO)).await.unwrap();
    kv.counts.lock().get_mut(&Owner::Global).unwrap().keys = MAX_KEYS;
    kv.set(Owner::Global, "takes its place", json("1"), None).await.unwrap();
    let full = kv.set(Owner::Global, "one too many", json("1"), None).await;
    assert!(matches!(full, Err(KvError::TooManyKeys)), "{full:?}");
    kv.set(Owner::Global, "takes its place", json("2"), None).await.unwrap();
    kv.set(Owner::User(UserId::new()), "another's", json("1"), None).await.unwrap();
    opened.end().await;
}

#[tokio::test]
async fn a_purge_goes_on_where_its_last_step_ended() {
    let store = KvDirectory::new();
    let kv = &store.kv;
    let ttls = [Some(Duration::ZERO), None, Some(Duration::ZERO), None, Some(Duration::ZERO)];
    for (n, ttl) in ttls.into_iter().enumerate() {
        kv.set(Owner::Global, &n.to_string(), json("1"), ttl).await.unwrap();
    }
    let (mut found, mut from) = (Vec::new(), Some(vec![keys::KV]));
    while let Some(start) = from {
        let scanned = scan_expired(&kv.store, start, 2, Timestamp::now()).unwrap();
        found.push(scanned.expired.len());
        from = scanned.next;
    }
    assert_eq!(found, [1, 1, 1]);
    assert_eq!(kv.purge().await.unwrap(), 3);
    assert_eq!(kv.counts.lock()[&Owner::Global].keys, 2);
    store.end().await;
}

#[tokio::test]
async fn on_a_full_disk_values_do_not_grow() {
    let KvDirectory { directory, kv } = KvDirectory::new();
    kv.set(Owner::Global, "k", json("100"), None).await.unwrap();
    kv.store.close().await;
    drop(kv);
    let kv = Kv::new(Store::open(directory.path(), u64::MAX, Arc::default()).unwrap()).unwrap();
    for refused in [
        kv.set(Owner::Global, "k", json("1000"), None).await,
        kv.add(Owner::Global, "other", json("1"), None).await.map(drop),
    ] {
        assert!(matches!(refused, Err(KvError::Store(StoreError::DiskFull))), "{refused:?}");
    }
    assert_eq!(kv.increment(Owner::Global, "k", 1, None).await.unwrap(), 101);
    assert!(kv.delete(Owner::Global, "k").await.unwrap());
    KvDirectory { directory, kv }.end().await;
}
