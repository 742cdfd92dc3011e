//! The lifecycle of a space, from creation to deletion: states, events, tokens, names and audit entries.

use super::*;
use crate::{
    model::{event::ActorKind, id::EventId, space_settings::SpaceSettingsError, template_spec::TemplateSpec},
    platform::collection::{Changes, Precondition},
    spaces::row::SpaceRow,
};

/// Settings with every field that events carry.
fn web() -> Value {
    json!({
        "host": "box.example", "ports": [{"name": "web", "port": 8080}], "custom": {"TEAM": "ops"},
        "startup_script_id": "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77",
        "health_check": {"type": "tcp", "port": 8080, "failures": 2},
    })
}

#[tokio::test]
async fn each_of_the_six_events_has_exactly_its_fields() {
    let fixture = TestSpaces::new().await;
    let template_id = TemplateId::new();
    let settings = serde_json::from_value(web()).unwrap();
    let new = NewSpace {
        name: "web".parse().unwrap(),
        owner: fixture.ada.id,
        template_id: Some(template_id),
        driver: Driver::External,
        settings,
    };
    let (space, _) = fixture.spaces.create(fixture.ada.actor(), new).await.unwrap();
    let id = space.id;
    let started = fixture.spaces.linked(id, "node-1", AgentConnect::Started).await.unwrap();
    let (good, bad) = (result(true), result(false));
    for result in [good.clone(), good.clone(), bad.clone(), bad.clone(), bad.clone(), good.clone()] {
        fixture.spaces.checked(id, result).await.unwrap();
    }
    let stopped = fixture.spaces.stop(fixture.ada.actor(), id).await.unwrap();
    let bounds = (Timestamp::now(), fixture.spaces.delete(fixture.ada.actor(), id).await.unwrap(), Timestamp::now());
    let mut events = fixture.emitted();
    let deleted_at: Timestamp = serde_json::from_value(events[6].1["deleted_at"].take()).unwrap();
    assert!((bounds.0..=bounds.2).contains(&deleted_at));
    let named = |rest: Value| {
        let mut data = json!({"space_name": "web", "space_id": id});
        data.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        data
    };
    let health = |previous: &str, current: &str, result: &CheckResult| {
        named(json!({"previous": previous, "current": current, "checked_at": result.checked_at}))
    };
    let mut unhealthy = health("healthy", "unhealthy", &bad);
    unhealthy["consecutive_failures"] = 2.into();
    let urls = json!(["http://box.example:8080"]);
    let script = "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77";
    let expected = [
        ("space.created", named(json!({"space_urls": urls, "template_id": template_id, "startup_script_id": script}))),
        (
            "space.started",
            named(json!({"space_urls": urls, "node_id": "node-1", "started_at": started.started_at.unwrap()})),
        ),
        ("space.healthy", health("unknown", "healthy", &good)),
        ("space.unhealthy", unhealthy),
        ("space.healthy", health("unhealthy", "healthy", &good)),
        ("space.stopped", named(json!({"stopped_at": stopped.stopped_at.unwrap()}))),
        ("space.deleted", named(json!({"deleted_at": null}))),
    ];
    assert_eq!(events, expected.map(|(kind, data)| (kind.to_owned(), data)));
    fixture.close().await;
}

#[tokio::test]
async fn absent_fields_of_a_space_are_null_in_its_event() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("bare", json!({})).await;
    let expected = json!({
        "space_name": "bare", "space_id": space.id, "space_urls": [], "template_id": null, "startup_script_id": null,
    });
    assert_eq!(fixture.emitted(), [("space.created".to_owned(), expected)]);
    fixture.close().await;
}

#[tokio::test]
async fn an_event_belongs_to_the_owner_and_says_who_acted() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", web()).await;
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    fixture.spaces.checked(space.id, result(true)).await.unwrap();
    let root = admin(&fixture.identity, fixture.store.directory());
    fixture.spaces.stop(root.actor(), space.id).await.unwrap();
    let events = fixture.events.lock().clone();
    for event in &events {
        assert_eq!((event.user_id, event.space_id), (fixture.ada.id, space.id));
        assert_eq!(event.space.as_ref(), Some(&space.origin()));
    }
    assert_eq!(space.origin().custom["TEAM"], "ops");
    let actors: Vec<_> = events.iter().map(|event| (event.actor.username.as_str(), event.actor.kind)).collect();
    let agent = ("ada", ActorKind::Agent);
    assert_eq!(actors, [("ada", ActorKind::User), agent, agent, ("admin", ActorKind::User)]);
    let by = |who: &str| who.to_owned();
    let entries = [("space.create", "User"), ("space.deploy", "Agent"), ("space.stop", "User")];
    assert_eq!(fixture.audited().await, entries.map(|(action, kind)| (by(action), by(kind))));
    fixture.close().await;
}

#[tokio::test]
async fn the_goodbye_of_an_agent_that_another_has_replaced_is_no_stop() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    fixture.spaces.linked(space.id, "old", AgentConnect::Started).await.unwrap();
    fixture.spaces.linked(space.id, "new", AgentConnect::Started).await.unwrap();
    fixture.emitted();
    fixture.spaces.goodbye(space.id).await.unwrap();
    fixture.spaces.unlinked(space.id);
    assert_eq!(fixture.spaces.get(space.id).unwrap().state, SpaceState::Deployed);
    assert_eq!(fixture.emitted_kinds(), [""; 0]);
    fixture.spaces.goodbye(space.id).await.unwrap();
    fixture.spaces.unlinked(space.id);
    assert_eq!(fixture.spaces.get(space.id).unwrap().state, SpaceState::Stopped);
    assert_eq!(fixture.emitted_kinds(), ["space.stopped"]);
    fixture.close().await;
}

#[tokio::test]
async fn a_stop_while_the_agent_is_away_holds_when_it_comes_back_but_not_for_a_new_one() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    fixture.spaces.unlinked(space.id);
    fixture.spaces.linked(space.id, "n", AgentConnect::Reconnected).await.unwrap();
    fixture.spaces.unlinked(space.id);
    fixture.spaces.stop(fixture.ada.actor(), space.id).await.unwrap();
    let back = fixture.spaces.linked(space.id, "n", AgentConnect::Reconnected).await;
    assert!(matches!(back, Err(SpaceError::WasStopped(_))), "{back:?}");
    assert_eq!(fixture.spaces.get(space.id).unwrap().state, SpaceState::Stopped);
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    assert_eq!(fixture.spaces.get(space.id).unwrap().state, SpaceState::Deployed);
    fixture.close().await;
}

#[tokio::test]
async fn an_agents_first_link_deploys_a_space_and_its_goodbye_stops_it() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    assert_eq!((space.state, fixture.spaces.status(space.id).linked), (SpaceState::Created, false));
    let linked = fixture.spaces.linked(space.id, "n1", AgentConnect::Started).await.unwrap();
    assert_eq!((linked.state, linked.node_id.as_deref()), (SpaceState::Deployed, Some("n1")));
    assert!(fixture.spaces.status(space.id).linked);
    // A broken link is no stop, and a new one no start.
    fixture.spaces.unlinked(space.id);
    assert_eq!(fixture.spaces.get(space.id).unwrap().state, SpaceState::Deployed);
    let again = fixture.spaces.linked(space.id, "n2", AgentConnect::Started).await.unwrap();
    assert_eq!((again.started_at, again.node_id.as_deref()), (linked.started_at, Some("n2")));
    fixture.spaces.goodbye(space.id).await.unwrap();
    fixture.spaces.goodbye(space.id).await.unwrap();
    fixture.spaces.unlinked(space.id);
    assert_eq!(fixture.spaces.get(space.id).unwrap().state, SpaceState::Stopped);
    fixture.spaces.linked(space.id, "n3", AgentConnect::Started).await.unwrap();
    assert_eq!(
        fixture.emitted_kinds(),
        ["space.created", "space.started", "space.stopped", "space.started"],
        "only what changed"
    );
    fixture.close().await;
}

#[tokio::test]
async fn a_transition_that_does_not_exist_is_refused_with_what_to_do() {
    let fixture = TestSpaces::new().await;
    let (spaces, ada) = (&fixture.spaces, fixture.ada.actor());
    let space = fixture.space("web", json!({})).await;
    let stop = spaces.stop(ada.clone(), space.id).await.unwrap_err();
    assert_eq!(stop.to_string(), "`web` is not running: there is nothing to stop");
    let start = spaces.start(ada.clone(), space.id).await.unwrap_err();
    assert!(start.to_string().contains("svc agent start"), "{start}");
    spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    let start = spaces.start(ada.clone(), space.id).await.unwrap_err();
    assert!(matches!(start, SpaceError::AlreadyStarted(_)), "{start}");
    spaces.stop(ada.clone(), space.id).await.unwrap();
    assert!(matches!(spaces.stop(ada.clone(), space.id).await, Err(SpaceError::NotRunning(_))));
    spaces.delete(ada.clone(), space.id).await.unwrap();
    for gone in [
        spaces.stop(ada.clone(), space.id).await,
        spaces.start(ada.clone(), space.id).await,
        spaces.delete(ada.clone(), space.id).await,
        spaces.linked(space.id, "n", AgentConnect::Started).await,
        spaces.rotate_token(ada.clone(), space.id).await.map(|(space, _)| space),
        spaces.checked(space.id, result(true)).await.map(|()| space.clone()),
        spaces.goodbye(space.id).await.map(|()| space.clone()),
    ] {
        assert!(matches!(gone, Err(SpaceError::NotFound)), "{gone:?}");
    }
    assert!(spaces.get(space.id).is_none() && spaces.origin(space.id).is_none());
    fixture.close().await;
}

#[tokio::test]
async fn a_name_is_the_owners_until_its_space_is_deleted() {
    let fixture = TestSpaces::new().await;
    let first = fixture.space("web", json!({})).await;
    let again = fixture.try_create("web", Driver::External, json!({})).await;
    assert!(matches!(again, Err(SpaceError::NameTaken(name)) if name.as_str() == "web"));
    let root = admin(&fixture.identity, fixture.store.directory());
    let new = NewSpace {
        name: "web".parse().unwrap(),
        owner: root.user.id,
        template_id: None,
        driver: Driver::External,
        settings: SpaceSettings::default(),
    };
    let (others, _) = fixture.spaces.create(root.actor(), new).await.unwrap();
    assert_eq!(fixture.spaces.find(fixture.ada.id, "web").unwrap().id, first.id);
    assert_eq!(fixture.spaces.find(root.user.id, "web").unwrap().id, others.id);
    fixture.spaces.delete(root.actor(), first.id).await.unwrap();
    assert!(fixture.spaces.find(fixture.ada.id, "web").is_none());
    fixture.space("web", json!({})).await;
    fixture.close().await;
}

#[tokio::test]
async fn a_user_has_so_many_spaces_and_no_more() {
    let fixture = TestSpaces::new().await;
    for name in ["a", "b", "c"] {
        fixture.space(name, json!({})).await;
    }
    let more = fixture.try_create("d", Driver::External, json!({})).await;
    assert!(matches!(more, Err(SpaceError::TooMany(3))));
    fixture.spaces.delete(fixture.ada.actor(), fixture.spaces.of(fixture.ada.id)[0].id).await.unwrap();
    fixture.space("d", json!({})).await;
    fixture.close().await;
}

#[tokio::test]
async fn creations_at_once_take_no_name_twice() {
    let fixture = Arc::new(TestSpaces::new().await);
    let tasks = (0..16).map(|_| {
        let fixture = fixture.clone();
        tokio::spawn(async move { fixture.try_create("web", Driver::External, json!({})).await.is_ok() })
    });
    let made = futures_util::future::join_all(tasks).await;
    assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 1);
    assert_eq!(fixture.emitted_kinds(), ["space.created"]);
    Arc::into_inner(fixture).unwrap().close().await;
}

#[tokio::test]
async fn a_spaces_events_are_in_the_order_of_its_transitions_for_any_actor() {
    let fixture = TestSpaces::new().await;
    let id = fixture.space("web", json!({})).await.id;
    let tasks = (0..40).map(|n| {
        let (spaces, ada) = (fixture.spaces.clone(), fixture.ada.actor());
        tokio::spawn(async move {
            match n % 2 {
                0 => drop(spaces.linked(id, "n", AgentConnect::Started).await),
                _ => drop(spaces.stop(ada, id).await),
            }
        })
    });
    futures_util::future::join_all(tasks).await;
    fixture.spaces.delete(fixture.ada.actor(), id).await.unwrap();
    let events = fixture.events.lock().clone();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("space.created", "space.deleted"));
    for (n, kind) in kinds[1..kinds.len() - 1].iter().enumerate() {
        assert_eq!(*kind, ["space.started", "space.stopped"][n % 2], "{kinds:?}");
    }
    let ids: Vec<EventId> = events.iter().map(|event| event.id).collect();
    assert!(ids.is_sorted());
    fixture.close().await;
}

#[tokio::test]
async fn an_agents_token_is_shown_once_and_valid_until_it_is_rotated_or_the_space_is_deleted() {
    let fixture = TestSpaces::new().await;
    let (space, first) = fixture.try_create("web", Driver::External, json!({})).await.unwrap();
    let first = first.unwrap();
    assert!(first.reveal().starts_with("sva_"));
    assert_eq!(fixture.caller(first.reveal()).unwrap().user.id, fixture.ada.id);
    let (_, second) = fixture.spaces.rotate_token(fixture.ada.actor(), space.id).await.unwrap();
    assert!(fixture.caller(first.reveal()).is_none() && fixture.caller(second.reveal()).is_some());
    let fixture = fixture.reopened(0).await;
    assert!(fixture.caller(first.reveal()).is_none() && fixture.caller(second.reveal()).is_some());
    // Stopping takes nothing away: the agent may come back.
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    fixture.spaces.stop(fixture.ada.actor(), space.id).await.unwrap();
    assert!(fixture.caller(second.reveal()).is_some());
    fixture.spaces.delete(fixture.ada.actor(), space.id).await.unwrap();
    assert!(fixture.caller(second.reveal()).is_none());
    let fixture = fixture.reopened(0).await;
    assert!(fixture.caller(second.reveal()).is_none() && fixture.spaces.all().is_empty());
    fixture.close().await;
}

#[tokio::test]
async fn changes_are_there_after_reopening() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", web()).await;
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    fixture.spaces.checked(space.id, result(true)).await.unwrap();
    let before = fixture.spaces.get(space.id).unwrap();
    assert_eq!((before.state, before.health), (SpaceState::Deployed, SpaceHealth::Healthy));
    let fixture = fixture.reopened(0).await;
    assert_eq!(*fixture.spaces.get(space.id).unwrap(), *before);
    fixture.spaces.resume().await;
    assert_eq!(fixture.emitted_kinds(), [""; 0], "everything had been emitted");
    fixture.close().await;
}

#[tokio::test]
async fn listeners_get_every_change_in_order_and_before_its_event() {
    let fixture = TestSpaces::new().await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (notes, events) = (heard.clone(), fixture.events.clone());
    fixture.spaces.listen(move |change| {
        let word = match change {
            SpaceChange::Created(_) => "created",
            SpaceChange::Updated { .. } => "updated",
            SpaceChange::Started(_) => "started",
            SpaceChange::Stopped(_) => "stopped",
            SpaceChange::Deleted(_) => "deleted",
            SpaceChange::TokenRotated(_) => "rotated",
        };
        notes.lock().push((word, change.space().state, events.lock().len()));
    });
    let ada = fixture.ada.actor();
    let space = fixture.space("web", json!({})).await;
    let described = SpaceSettings { description: "new".to_owned(), ..SpaceSettings::default() };
    let change = move |_: &Space| Ok::<_, SpaceError>(described);
    fixture.spaces.update(ada.clone(), space.id, change).await.unwrap();
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    fixture.spaces.rotate_token(ada.clone(), space.id).await.unwrap();
    fixture.spaces.stop(ada.clone(), space.id).await.unwrap();
    fixture.spaces.delete(ada, space.id).await.unwrap();
    let expected = [
        ("created", SpaceState::Created, 0),
        ("updated", SpaceState::Created, 1),
        ("started", SpaceState::Deployed, 1),
        ("rotated", SpaceState::Deployed, 2),
        ("stopped", SpaceState::Stopped, 2),
        ("deleted", SpaceState::Stopped, 3),
    ];
    assert_eq!(*heard.lock(), expected);
    fixture.close().await;
}

#[tokio::test]
async fn unfit_settings_change_nothing() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    let unfit = SpaceSettings { methods_file: Some("/x".into()), ..SpaceSettings::default() };
    let change = move |_: &Space| Ok::<_, SpaceError>(unfit);
    let refused = fixture.spaces.update(fixture.ada.actor(), space.id, change).await;
    assert!(matches!(refused, Err(SpaceError::Invalid(SpaceSettingsError::Misplaced("methods_file")))));
    assert_eq!(*fixture.spaces.get(space.id).unwrap(), *space);
    let made = fixture.try_create("y", Driver::External, json!({"directory": "/x"})).await;
    assert!(matches!(made, Err(SpaceError::Invalid(_))));
    fixture.close().await;
}

#[tokio::test]
async fn a_change_that_was_not_written_did_not_happen() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    fixture.store.close().await;
    let ada = fixture.ada.actor();
    assert!(matches!(fixture.spaces.linked(space.id, "n", AgentConnect::Started).await, Err(SpaceError::Store(_))));
    assert!(matches!(fixture.spaces.delete(ada.clone(), space.id).await, Err(SpaceError::Store(_))));
    assert!(matches!(fixture.try_create("x", Driver::External, json!({})).await, Err(SpaceError::Store(_))));
    assert_eq!(*fixture.spaces.get(space.id).unwrap(), *space);
    assert!(!fixture.spaces.status(space.id).linked);
    assert!(fixture.spaces.find(fixture.ada.id, "x").is_none());
    fixture.close().await;
}

#[tokio::test]
async fn a_change_to_a_space_does_not_overwrite_that_of_another_writer() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    let records = &fixture.spaces.0.records;
    let row = records.get(space.id).unwrap();
    let moved = Arc::new(Space { node_id: Some("other".to_owned()), ..Space::clone(&space) });
    // The other writer's change is written only after this one has been decided.
    let (decided, wait) = std::sync::mpsc::channel();
    let other = Changes::new().put(SpaceRow { space: moved, ..SpaceRow::clone(&row) }, Precondition::Present);
    let mut other = Box::pin(records.commit(other.with(move |_| wait.recv().unwrap())));
    assert!(futures_util::poll!(&mut other).is_pending());
    let change = move |_: &Space| {
        decided.send(()).unwrap();
        Ok::<_, SpaceError>(SpaceSettings { description: "new".to_owned(), ..SpaceSettings::default() })
    };
    let updated = fixture.spaces.update(fixture.ada.actor(), space.id, change).await;
    assert!(matches!(updated, Err(SpaceError::Conflict)), "{updated:?}");
    other.await.unwrap();
    let now = fixture.spaces.get(space.id).unwrap();
    assert_eq!((now.node_id.as_deref(), now.settings.description.as_str()), (Some("other"), ""));
    fixture.close().await;
}

#[tokio::test]
async fn of_two_changes_to_a_template_at_once_neither_is_lost() {
    let fixture = TestSpaces::new().await;
    let ada = fixture.ada.actor();
    let templates = Templates::open(fixture.store.clone()).unwrap();
    let spec: TemplateSpec = serde_json::from_value(json!({"name": "web"})).unwrap();
    let web = templates.create(ada.clone(), spec).await.unwrap();
    let rename = |before: &Template| {
        let name = "site".parse().unwrap();
        Ok::<_, TemplateError>(TemplateSpec { name, ..before.spec.clone() })
    };
    // The caller goes away while the change is written, so that the next one does not wait for it.
    let mut renamed = Box::pin(templates.update(ada.clone(), web.id, rename));
    assert!(futures_util::poll!(&mut renamed).is_pending());
    drop(renamed);
    let describe = |before: &Template| {
        let description = "new".to_owned();
        Ok::<_, TemplateError>(TemplateSpec { description, ..before.spec.clone() })
    };
    let described = templates.update(ada, web.id, describe).await.unwrap();
    assert_eq!((described.spec.name.as_str(), described.spec.description.as_str()), ("site", "new"));
    fixture.close().await;
}

#[tokio::test]
async fn templates_keep_their_names_apart_and_survive_a_restart() {
    let fixture = TestSpaces::new().await;
    let ada = fixture.ada.actor();
    let spec =
        |name: &str| serde_json::from_value::<TemplateSpec>(json!({"name": name, "custom": {"A": "b"}})).unwrap();
    let templates = Templates::open(fixture.store.clone()).unwrap();
    let web = templates.create(ada.clone(), spec("web")).await.unwrap();
    assert!(matches!(templates.create(ada.clone(), spec("web")).await, Err(TemplateError::NameTaken(_))));
    let db = templates.create(ada.clone(), spec("db")).await.unwrap();
    let rename = |to: &str| {
        let spec = spec(to);
        move |_: &Template| Ok::<_, TemplateError>(spec.clone())
    };
    assert!(matches!(templates.update(ada.clone(), db.id, rename("web")).await, Err(TemplateError::NameTaken(_))));
    templates.update(ada.clone(), db.id, rename("sql")).await.unwrap();
    templates.delete(ada.clone(), web.id).await.unwrap();
    assert!(matches!(templates.delete(ada.clone(), web.id).await, Err(TemplateError::NotFound)));
    let reopened = Templates::open(fixture.store.clone()).unwrap();
    assert_eq!(reopened.all().iter().map(|template| template.spec.clone()).collect::<Vec<_>>(), [spec("sql")]);
    assert_eq!(reopened.find("sql").unwrap().id, db.id);
    assert_eq!(reopened.find(&db.id.to_string()).unwrap().id, db.id);
    let unfit = serde_json::from_value(json!({"name": "x", "custom": {"a b": ""}})).unwrap();
    assert!(matches!(templates.create(ada, unfit).await, Err(TemplateError::Invalid(_))));
    fixture.close().await;
}
