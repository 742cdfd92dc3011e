//! The stored scripts, on a store in a directory of its own.

use super::*;
use crate::{
    model::{id::UserId, owner::Owner, script_spec::ScriptKind},
    platform::{
        collection::{Change, Edit},
        store::{Store, StoreError},
    },
    scripting::scripts::records::MAX_LIBRARIES,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{future::ready, sync::Arc};
use tempfile::TempDir;

fn open(directory: &TempDir, most: usize) -> (Store, Scripts) {
    let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
    (store.clone(), Scripts::open(store, most).unwrap())
}

/// A script with these fields over the defaults of an empty Lua script.
fn script(user: UserId, rest: Value) -> Script {
    let mut spec = json!({"name": "x", "content": "return {}"});
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    Script::define(serde_json::from_value(spec).unwrap(), user, None).unwrap()
}

/// A later version of a script.
fn later(user: UserId, before: &Script, rest: Value) -> Script {
    let mut spec = serde_json::to_value(before.spec()).unwrap();
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    Script::define(serde_json::from_value(spec).unwrap(), user, Some(before)).unwrap()
}

async fn put(scripts: &Scripts, user: UserId, rest: Value) -> Arc<Script> {
    scripts.create(script(user, rest), |_| ()).await.unwrap()
}

/// Puts a later version of a script into its place.
async fn update(scripts: &Scripts, user: UserId, script: &Script, rest: Value) -> Result<Arc<Script>, ScriptsError> {
    scripts.edit(script.id, |before| ready(Ok(Edit::put(later(user, &before, rest.clone()))))).await
}

fn sources(libraries: &[Arc<Script>]) -> Vec<(String, &str)> {
    libraries.iter().map(|library| (library.library().unwrap().path(), library.content.as_str())).collect()
}

#[tokio::test]
async fn a_name_is_taken_per_owner_by_scripts_of_every_kind() {
    let directory = tempfile::tempdir().unwrap();
    let (_, scripts) = open(&directory, 1000);
    let (ada, bob) = (UserId::new(), UserId::new());
    put(&scripts, ada, json!({"name": "x"})).await;
    put(&scripts, bob, json!({"name": "x"})).await;
    put(&scripts, ada, json!({"name": "x", "owner": "global"})).await;
    let again = scripts.create(script(ada, json!({"name": "x", "kind": "library"})), |_| ()).await;
    assert!(matches!(again, Err(ScriptsError::NameTaken { kind: ScriptKind::Script, .. })), "{again:?}");
    let other = put(&scripts, ada, json!({"name": "y"})).await;
    let renamed = update(&scripts, ada, &other, json!({"name": "x"})).await;
    assert!(matches!(renamed, Err(ScriptsError::NameTaken { .. })), "{renamed:?}");
    assert_eq!((scripts.all().len(), scripts.of(Owner::User(ada)).len()), (4, 2));
}

#[tokio::test]
async fn two_tools_of_one_owner_cannot_have_one_mcp_name() {
    let directory = tempfile::tempdir().unwrap();
    let (_, scripts) = open(&directory, 1000);
    let ada = UserId::new();
    put(&scripts, ada, json!({"name": "a.b", "kind": "tool"})).await;
    put(&scripts, ada, json!({"name": "a_b.c", "kind": "script"})).await;
    put(&scripts, ada, json!({"name": "a_b", "kind": "tool", "owner": "global"})).await;
    let clash = scripts.create(script(ada, json!({"name": "a_b", "kind": "tool"})), |_| ()).await;
    assert!(
        matches!(&clash, Err(ScriptsError::Refused(ScriptRefusal::ToolNameTaken(other))) if other == "a.b"),
        "{clash:?}"
    );
    // A script may have that name, since it is no tool.
    put(&scripts, ada, json!({"name": "a_b"})).await;
    let names: Vec<_> = scripts.tools_for(ada).iter().map(|tool| (tool.name.clone(), tool.owner)).collect();
    assert_eq!(names, [("a.b".to_owned(), Owner::User(ada))], "the owner's own hides the global one");
    assert_eq!(scripts.tools_for(UserId::new())[0].name, "a_b");
}

#[tokio::test]
async fn the_scripts_of_an_owner_are_bounded_in_number() {
    let directory = tempfile::tempdir().unwrap();
    let (_, scripts) = open(&directory, 2);
    let ada = UserId::new();
    let first = put(&scripts, ada, json!({"name": "a"})).await;
    put(&scripts, ada, json!({"name": "b"})).await;
    let third = scripts.create(script(ada, json!({"name": "c"})), |_| ()).await;
    assert!(matches!(third, Err(ScriptsError::TooMany(2))), "{third:?}");
    update(&scripts, ada, &first, json!({"name": "c"})).await.unwrap();
    let moved = put(&scripts, ada, json!({"name": "d", "owner": "global"})).await;
    let taken = update(&scripts, ada, &moved, json!({"owner": "me"})).await;
    assert!(matches!(taken, Err(ScriptsError::TooMany(2))), "{taken:?}");
}

#[tokio::test]
async fn libraries_of_two_owners_fit_into_one_message() {
    let directory = tempfile::tempdir().unwrap();
    let (_, scripts) = open(&directory, 1000);
    let ada = UserId::new();
    // Each byte takes six in the JSON of a message.
    let content = "\u{1}".repeat(64 << 10);
    let mut refused = None;
    for owner in ["me", "global"] {
        for n in 0..100 {
            let library = json!({"name": format!("l{n}.of_{owner}"), "kind": "library", "language": "python",
                "owner": owner, "content": content});
            if let Err(error) = scripts.create(script(ada, library), |_| ()).await {
                refused = Some(error);
                break;
            }
        }
        assert!(
            matches!(refused.take(), Some(ScriptsError::Refused(ScriptRefusal::LibrariesTooLarge(bytes))) if bytes > MAX_LIBRARIES),
            "{owner}"
        );
    }
    let libraries: Vec<_> =
        scripts.libraries_for(Owner::User(ada)).iter().map(|script| script.library().unwrap()).collect();
    assert!(libraries.len() > 2);
    let message = crate::model::agent_protocol::encode(&crate::model::agent_protocol::ToAgent::Libraries(libraries));
    assert!(
        message.len() <= 2 * MAX_LIBRARIES && message.len() < crate::model::agent_protocol::MAX_MESSAGE / 2 + 1,
        "{}",
        message.len()
    );
}

#[tokio::test]
async fn an_owners_library_hides_the_global_one_of_its_name_while_it_is_active() {
    let directory = tempfile::tempdir().unwrap();
    let (_, scripts) = open(&directory, 1000);
    let ada = UserId::new();
    let library = |name: &str, owner: &str, content: &str| json!({"name": name, "kind": "library", "owner": owner, "content": content});
    put(&scripts, ada, library("text", "global", "return 'global'")).await;
    put(&scripts, ada, library("more", "global", "return 2")).await;
    let own = put(&scripts, ada, library("text", "me", "return 'own'")).await;
    put(&scripts, ada, json!({"name": "script", "content": "return 3"})).await;
    let mut python = library("snake", "me", "x = 1");
    python["language"] = "python".into();
    put(&scripts, ada, python).await;

    let (mine, global) = (Owner::User(ada), Owner::Global);
    let expected = [("more.lua", "return 2"), ("snake.py", "x = 1"), ("text.lua", "return 'own'")];
    assert_eq!(sources(&scripts.libraries_for(mine)), expected.map(|(path, source)| (path.to_owned(), source)));
    assert_eq!(sources(&scripts.libraries_for(global)).len(), 2);
    assert!(scripts.library(mine, "text").is_some() && scripts.library(mine, "more").is_some());
    for absent in ["script", "snake", "none"] {
        assert!(scripts.library(mine, absent).is_none(), "{absent}");
    }

    update(&scripts, ada, &own, json!({"active": false})).await.unwrap();
    assert_eq!(sources(&scripts.libraries_for(mine))[2].1, "return 'global'");
}

#[tokio::test]
async fn an_active_script_is_run_by_its_owner_and_a_global_one_by_everyone() {
    let directory = tempfile::tempdir().unwrap();
    let (_, scripts) = open(&directory, 1000);
    let (ada, bob) = (UserId::new(), UserId::new());
    let own = put(&scripts, ada, json!({"name": "own"})).await;
    let global = put(&scripts, ada, json!({"name": "global", "owner": "global"})).await;
    let tool = put(&scripts, ada, json!({"name": "tool", "kind": "tool"})).await;
    assert!(scripts.program(Owner::User(ada), own.id).is_ok());
    for owner in [Owner::User(bob), Owner::Global] {
        assert_eq!(scripts.program(owner, own.id).unwrap_err(), ScriptUnavailable::Missing(own.id));
        assert!(scripts.program(owner, global.id).is_ok());
    }
    assert!(matches!(
        scripts.program(Owner::User(ada), tool.id),
        Err(ScriptUnavailable::OtherKind { kind: ScriptKind::Tool, .. })
    ));
    update(&scripts, ada, &own, json!({"active": false})).await.unwrap();
    assert_eq!(scripts.program(Owner::User(ada), own.id).unwrap_err(), ScriptUnavailable::Inactive("own".to_owned()));
    scripts.delete(own.id, |_| ()).await.unwrap();
    assert_eq!(scripts.program(Owner::User(ada), own.id).unwrap_err(), ScriptUnavailable::Missing(own.id));
}

#[tokio::test]
async fn every_listener_gets_every_change_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let (_, scripts) = open(&directory, 1000);
    let changes = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let recorded = changes.clone();
        scripts.listen(move |change| {
            recorded.lock().push(match change {
                Change::Created(script) => format!("+{}", script.name),
                Change::Updated { before, after } => format!("{}>{}", before.name, after.name),
                Change::Deleted(script) => format!("-{}", script.name),
            });
        });
    }
    let ada = UserId::new();
    let first = put(&scripts, ada, json!({"name": "a"})).await;
    let second = update(&scripts, ada, &first, json!({"name": "b"})).await.unwrap();
    scripts.delete(second.id, |_| ()).await.unwrap();
    assert!(matches!(scripts.delete(second.id, |_| ()).await, Err(ScriptsError::NotFound)));
    assert!(matches!(update(&scripts, ada, &first, json!({})).await, Err(ScriptsError::NotFound)));
    assert_eq!(*changes.lock(), ["+a", "+a", "a>b", "a>b", "-b", "-b"]);
}

#[tokio::test]
async fn changes_survive_reopening_and_failed_writes_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, scripts) = open(&directory, 1000);
    let ada = UserId::new();
    let kept = scripts.create(script(ada, json!({"name": "kept"})), |batch| batch.put(b"zk", b"1")).await.unwrap();
    let gone = put(&scripts, ada, json!({"name": "gone"})).await;
    scripts.delete(gone.id, |batch| batch.put(b"zg", b"1")).await.unwrap();
    store.close().await;
    let unwritten = scripts.create(script(ada, json!({"name": "late"})), |_| ()).await;
    assert!(matches!(unwritten, Err(ScriptsError::Store(StoreError::Closing))), "{unwritten:?}");
    let unwritten = scripts.delete(kept.id, |_| ()).await;
    assert!(matches!(unwritten, Err(ScriptsError::Store(_))), "{unwritten:?}");
    assert_eq!((scripts.all().len(), scripts.find(Owner::User(ada), "late").is_none()), (1, true));
    drop((store, scripts));
    let (store, scripts) = open(&directory, 1000);
    assert_eq!(scripts.all().iter().map(|script| script.id).collect::<Vec<_>>(), [kept.id]);
    assert!(store.get(b"zk").unwrap().is_some() && store.get(b"zg").unwrap().is_some());
    store.close().await;
}
